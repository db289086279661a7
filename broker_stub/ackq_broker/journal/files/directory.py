"""The data directory: file names, lock and FORMAT; one process, one history at a time.

    LOCK                             held with flock(2) by the owner; its text is the owner's pid
    FORMAT                           JSON: see below
    journal-00000000000000000001.seg a segment of the log, by segment number
    snapshot-00000000000000000042.snap  the state after record 42
    transient-00000000000000000001.seg  transient blocks of the running process
    *.new                            a file that does not count: not finished, or a spare
    damaged-N/                       files that repair moved aside

FORMAT holds the format version; the history id and why that history began (Q8); the blocks that
repair gave up and the broker has not dropped yet; where the log ended when FORMAT was written, at
or before its present end; and the identity of the FORMAT file itself. Every start and every clean
end write a new FORMAT. So a data directory that was copied, or restored over the old one by a tool
that copies files, is detected: its FORMAT names the identity of another file. A rename of the
directory or a new mount point is not taken for a copy, as intended. A copy below the file system
(the snapshot of a volume or of a virtual machine) cannot be detected, nor can a copy made while the
broker ran and restored before its next start: after these, an operator declares it with
`ackq-broker new-history`.

Invariant: while a `DataDirectory` is open no other process writes to it. A file of the log gets its
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

# Why a history began; "" for the first history of a journal.
COPIED: Final = "copied"
DECLARED: Final = "declared"
REPAIRED: Final = "repaired"

# The unit of `st_blocks`, whatever the file system's own is.
_BLOCK_BYTES: Final = 512
_NAME: Final = re.compile(r"(journal|snapshot|transient)-(\d{20})\.(seg|snap)")
# Names that may be in a data directory; a file system has its own folder in its root.
_OWN: Final = re.compile(rf"({_NAME.pattern}|FORMAT)(\.new)?|LOCK|damaged-\d+|lost\+found")

# Errors of an invalid FORMAT: no JSON, wrong values, a number out of range, too deep nesting.
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
    """The file name of a segment of the log."""
    return f"journal-{number:020d}.seg"


def snapshot_name(sequence: int) -> str:
    """The file name of the snapshot after record `sequence`."""
    return f"snapshot-{sequence:020d}.snap"


def transient_name(number: int) -> str:
    """The name of a file of transient blocks."""
    return f"transient-{number:020d}.seg"


def unfinished(path: Path) -> Path:
    """The temporary name of a file, until it is complete."""
    return path.with_name(path.name + ".new")


class LogEnd(NamedTuple):
    """The end of the log as recorded in FORMAT.

    Attributes:
        segment: The last segment when FORMAT was written.
        group: The last group at that time: the log does not end before it.
        file_bytes: The last segment has at least this size.
        closed: The log was closed after `group`, and its file may end after that group.
    """

    segment: int
    group: int
    file_bytes: int
    closed: bool


class DataDirectory:
    """An open data directory, locked for this process.

    Attributes:
        path: The directory.
        formatted: Whether FORMAT exists: the directory holds a journal.
        history_id: 16 bytes; None without a FORMAT, and in a copy of another data directory (Q8).
        history_cause: Why the history began.
        lost_blocks: Blocks that repair found lost, whose messages are still to be dropped.
        log_end: A bound on the end of the log; None after a repair and in a directory of an older
            version, where nothing is known.

    Args:
        create: Create a missing directory, and accept an empty one; False: refuse a directory
            without a journal.

    Raises:
        InvalidArgumentError: It has no journal, and foreign files.
        InUseError: Another process has it open; the message names the directory and that process.
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
        """Begins a new history with a new id, from the next `write_format` on; returns it (Q8)."""
        self.history_id, self.history_cause = uuid.uuid4().bytes, cause
        return self.history_id

    def write_format(self) -> None:
        """Writes and syncs FORMAT with the current history, lost blocks and end of the log."""
        self._write_format(self.path, self.log_end, identity)

    def write_backup_format(self, directory: Path, log_end: LogEnd) -> None:
        """Writes and syncs the FORMAT of a backup, with no file's identity: it counts as a copy."""
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
        """The history id, which must be known."""
        assert self.history_id is not None
        return self.history_id

    def segments(self) -> list[int]:
        """The numbers of the segments, ascending."""
        return sorted(numbers(self.path, "journal"))

    def snapshots(self) -> list[int]:
        """The sequences of the snapshots, ascending."""
        return sorted(numbers(self.path, "snapshot"))

    def used_bytes(self) -> int:
        """Disk space used by the directory's files, without holes; may wait for the disk."""
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
        """Reads FORMAT, but leaves out the history id if its identity reveals a copy (Q8).

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
    """The end of the log as recorded in FORMAT, or None; works while a broker runs."""
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
    """Raises NotFoundError unless `path` holds a journal: a wrong path must not be written to."""
    if not path.is_dir():
        raise NotFoundError(f"there is no data directory {path}", directory=path)
    if not (path / "FORMAT").exists() and not any(_NAME.fullmatch(f.name) for f in path.iterdir()):
        raise NotFoundError(
            f"{path} holds no journal: give the directory that the broker was started with",
            directory=path,
        )


def _check_foreign(path: Path) -> None:
    """Refuses a directory of foreign files; in a data directory a foreign file is only logged."""
    names = sorted(file.name for file in path.iterdir())
    foreign = [name for name in names if not _OWN.fullmatch(name)]
    if not foreign:
        return
    what = f"'{foreign[0]}'" + (f" and {len(foreign) - 1} more" if foreign[1:] else "")
    if "FORMAT" in names or any(_NAME.fullmatch(name) for name in names):
        _log.warning("data directory %s holds %s, which is not a file of a broker", path, what)
        return
    raise InvalidArgumentError(
        f"directory {path} is not a data directory, and holds {what}: name an empty directory, or "
        "one that does not exist yet",
        directory=path,
        file=foreign[0],
    )


def make_directories(path: Path, disk: Disk) -> None:
    """Makes a directory and its missing parents, and syncs each name."""
    for missing in reversed([each for each in (path, *path.parents) if not each.is_dir()]):
        disk.make_directory(missing)
        disk.sync_directory(missing.parent)
    # An earlier process may have died between creation and sync. Directories that it created belong
    # to its user, who may read them.
    for parent in path.absolute().parents:
        with suppress(PermissionError):
            disk.sync_directory(parent)
        if parent.is_mount():
            break


def numbers(directory: Path, kind: str) -> Iterator[int]:
    """The numbers in the names of the files of one kind, in no order."""
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
