"""The data directory: file names, lock and FORMAT; one process, one history at a time.

    LOCK                             held with flock(2) by the owner; its text is the owner's pid
    FORMAT                           JSON: see below
    journal-00000000000000000001.seg a segment of the log, by segment number
    snapshot-00000000000000000042.snap  the state after record 42
    transient-00000000000000000001.seg  transient blocks of the running process
    *.new                            a file that does not count: not finished, or a spare
    damaged-N/                       what repair moved aside

FORMAT holds the format version; the history id and why that history began (Q8); the blocks that
repair gave up and the broker has not dropped yet; where the log ended when it was written, which is
not behind its end now; and the identity of the very file it stands in. Every start and every clean
end write FORMAT anew. So a data directory that was copied, or restored over the old one by whatever
copies files, shows: the FORMAT that came back is another file than it says. A rename of the
directory or a new mount point does not show, as it should be. What is copied below the file system
cannot show (the snapshot of a volume or of a virtual machine), nor can a copy made while the broker
ran and restored before its next start: after these, `ackq-broker new-history` says so.

Invariant: while a `DataDirectory` is open nobody else writes there. A file of the log gets its
final name only when it is complete and on the disk.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ackq.errors import (
    DamagedError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from ackq_broker.journal.files.disk import Disk, with_descriptor
from ackq_broker.journal.files.format import FORMAT_VERSION
from ackq_broker.journal.files.identity import Identity, identity

# Why a history began; "" for the first of a journal.
COPIED: Final = "copied"
DECLARED: Final = "declared"
REPAIRED: Final = "repaired"

# The unit of `st_blocks`, whatever the file system's own is.
_BLOCK_BYTES: Final = 512
_NAME: Final = re.compile(r"(journal|snapshot|transient)-(\d{20})\.(seg|snap)")
# What may be in a data directory; a file system has its own folder in its root.
_OWN: Final = re.compile(rf"({_NAME.pattern}|FORMAT)(\.new)?|LOCK|damaged-\d+|lost\+found")

# What a FORMAT raises that is none: no JSON, other values, a number beyond all, too many brackets.
_UNREADABLE: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)

_log: Final = logging.getLogger(__name__)


def segment_name(number: int) -> str:
    """The file of a segment of the log."""
    return f"journal-{number:020d}.seg"


def snapshot_name(sequence: int) -> str:
    """The file of the snapshot after record `sequence`."""
    return f"snapshot-{sequence:020d}.snap"


def transient_name(number: int) -> str:
    """A file of transient blocks."""
    return f"transient-{number:020d}.seg"


def unfinished(path: Path) -> Path:
    """The name a file has until it is complete."""
    return path.with_name(path.name + ".new")


class LogEnd(NamedTuple):
    """What FORMAT says of the end of the log.

    Attributes:
        segment: The last segment when FORMAT was written.
        group: The last group then: the log does not end before it.
        file_bytes: The last segment has at least this size.
        closed: The log was closed behind `group`, and its file may end there.
    """

    segment: int
    group: int
    file_bytes: int
    closed: bool


class DataDirectory:
    """An open data directory, locked for this process.

    Attributes:
        path: The directory.
        formatted: Whether there is a FORMAT: a journal was made here.
        history_id: 16 bytes; None without a FORMAT, and in a copy of another data directory (Q8).
        history_cause: Why it began.
        lost_blocks: Blocks that repair found lost, whose messages are still to be dropped.
        log_end: A bound on the end of the log; None after a repair and in a directory of an older
            version, where nothing is known.

    Args:
        create: Make the directory, and take an empty one; else leave one without a journal alone.

    Raises:
        InvalidArgumentError: It has no journal, and files of something else.
        InUseError: Another process has it; the message names the directory and that process.
        NotFoundError: No such directory, or no journal in it, and `create` is off.
        UnsupportedError: Its format is newer than this program.
        DamagedError: FORMAT cannot be read.
    """

    def __init__(self, path: Path, disk: Disk, *, create: bool = True) -> None:
        if create:
            if not (path / "FORMAT").exists():
                make_directories(path, disk)
            _check_foreign(path)
        else:
            require_journal(path)
        self.path = path
        self._disk = disk
        self._lock = _lock(path)
        try:
            self.formatted = (path / "FORMAT").exists()
            self.history_id: bytes | None = None
            self.history_cause = ""
            self.lost_blocks: tuple[int, ...] = ()
            self.log_end: LogEnd | None = None
            if self.formatted:
                self._read_format()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlocks the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def new_history(self, cause: str) -> bytes:
        """Another history, of a new id, from the next `write_format` on (Q8)."""
        self.history_id, self.history_cause = uuid.uuid4().bytes, cause
        return self.history_id

    def write_format(self) -> None:
        """Writes and syncs FORMAT with the present history, lost blocks and end of the log."""
        self._write_format(self.path, self.log_end, identity)

    def write_backup_format(self, directory: Path, log_end: LogEnd) -> None:
        """Writes and syncs the FORMAT of a backup, which is of no file: it shows as a copy."""
        self._write_format(directory, log_end, lambda _: Identity(0, 0))

    def _write_format(
        self, directory: Path, log_end: LogEnd | None, identify: Callable[[int], Identity]
    ) -> None:
        path = directory / "FORMAT"
        fd = self._disk.create(unfinished(path))
        try:
            meta = {
                "format": FORMAT_VERSION,
                "history_id": self.require_history().hex(),
                "cause": self.history_cause,
                "lost_blocks": self.lost_blocks,
                "log_end": log_end and log_end._asdict(),
                **identify(fd)._asdict(),
            }
            self._disk.write(fd, [json.dumps(meta).encode() + b"\n"], 0)
            self._disk.sync_file(fd)
        finally:
            os.close(fd)
        self._disk.rename(unfinished(path), path)
        self._disk.sync_directory(directory)

    def require_history(self) -> bytes:
        """The history id of a directory that has one."""
        assert self.history_id is not None
        return self.history_id

    def segments(self) -> list[int]:
        """The numbers of the segments, ascending."""
        return sorted(numbers(self.path, "journal"))

    def snapshots(self) -> list[int]:
        """The sequences of the snapshots, ascending."""
        return sorted(numbers(self.path, "snapshot"))

    def used_bytes(self) -> int:
        """What the files take on the disk, holes left out; may wait for it."""
        used = 0
        with os.scandir(self.path) as files:
            for file in files:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    used += file.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        return used

    def remove_leftovers(self) -> None:
        """Removes unfinished and transient files of an earlier process."""
        for path in self.path.glob("*.new"):
            if path.stem == "FORMAT" or _NAME.fullmatch(path.stem):
                self._disk.unlink(path)
        for number in numbers(self.path, "transient"):
            self._disk.unlink(self.path / transient_name(number))

    def _read_format(self) -> None:
        """Reads FORMAT, but no history id where the identity shows that this is a copy (Q8).

        The copy of a data directory is another history, because the original may have gone on.
        """
        path = self.path / "FORMAT"
        try:
            meta = json.loads(path.read_bytes())
            version = int(meta["format"])
            if version > FORMAT_VERSION:
                raise UnsupportedError(
                    f"data directory {self.path} has journal format {version}, this program knows "
                    f"formats up to {FORMAT_VERSION}: start it with the version that wrote it",
                    directory=self.path,
                    format=version,
                )
            history_id = uuid.UUID(meta["history_id"]).bytes
            written_to = Identity(int(meta["inode"]), int(meta.get("born_ns", 0)))
            self.history_cause = str(meta.get("cause", ""))
            self.lost_blocks = tuple(map(int, meta.get("lost_blocks", ())))
            self.log_end = _log_end(meta)
        except _UNREADABLE as error:
            raise DamagedError(
                f"{path} cannot be read ({error!r}): restore it from a copy of the data directory",
                file=path,
            ) from error
        with path.open("rb") as file:
            if identity(file.fileno()).is_of(written_to):
                self.history_id = history_id


def read_log_end(directory: Path) -> LogEnd | None:
    """What FORMAT says of the end of the log, also while a process has the directory; or None."""
    try:
        return _log_end(json.loads((directory / "FORMAT").read_bytes()))
    except (OSError, *_UNREADABLE):
        return None


def _log_end(meta: Any) -> LogEnd | None:
    end = meta.get("log_end")
    return end and LogEnd(
        int(end["segment"]),
        int(end["group"]),
        int(end["file_bytes"]),
        closed=bool(end["closed"]),
    )


def require_journal(path: Path) -> None:
    """Raises NotFoundError unless there is a journal: a wrong path must not be written to."""
    if not path.is_dir():
        raise NotFoundError(f"there is no data directory {path}", directory=path)
    if not (path / "FORMAT").exists() and not any(_NAME.fullmatch(f.name) for f in path.iterdir()):
        raise NotFoundError(
            f"{path} holds no journal: give the directory that the broker was started with",
            directory=path,
        )


def _check_foreign(path: Path) -> None:
    """Refuses a directory that is somebody else's; in a journal's such a file is only told."""
    names = sorted(file.name for file in path.iterdir())
    foreign = [name for name in names if not _OWN.fullmatch(name)]
    if not foreign:
        return
    what = f"'{foreign[0]}'" + (f" and {len(foreign) - 1} more" if foreign[1:] else "")
    if "FORMAT" in names or any(_NAME.fullmatch(name) for name in names):
        _log.warning("data directory %s holds %s, which is no file of a broker", path, what)
        return
    raise InvalidArgumentError(
        f"directory {path} is no data directory, and holds {what}: name an empty directory, or one"
        " that is not there yet",
        directory=path,
        file=foreign[0],
    )


def make_directories(path: Path, disk: Disk) -> None:
    """Makes a directory and its missing parents, and syncs each name."""
    for missing in reversed([each for each in (path, *path.parents) if not each.is_dir()]):
        disk.make_directory(missing)
        disk.sync_directory(missing.parent)
    # A process may have died between these two. What it made is of its user, who may read it.
    for parent in path.absolute().parents:
        with suppress(PermissionError):
            disk.sync_directory(parent)
        if parent.is_mount():
            break


def numbers(directory: Path, kind: str) -> Iterator[int]:
    """The numbers in the names of one kind of file, in no order."""
    for path in with_descriptor(lambda: list(directory.iterdir())):
        match = _NAME.fullmatch(path.name)
        if match and match[1] == kind:
            yield int(match[2])


def _lock(directory: Path) -> int:
    fd = os.open(directory / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise InUseError(
            f"data directory {directory} is in use by process {owner}: stop that broker, or "
            "give this one a directory of its own",
            directory=directory,
            pid=owner,
        ) from None
    except BaseException:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
