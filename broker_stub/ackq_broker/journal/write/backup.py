"""A backup of an open journal: a directory that opens as the journal was at a mark.

It has a snapshot of the state at the mark, the segments with live blocks, and the bytes up to the
mark of the segment that contains it. Full segments never change, so they are hard-linked where both
directories are on one file system: that takes no room and no time. A dead segment is not written
over while it has another name (`Spares`). The backup's FORMAT names no file's identity, so that the
opened backup, or a copy of it, is another history (Q8).

Invariant: the directory has its name only when all of it is on the disk; the journal is not
changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ackq.errors import ClosedError, PreconditionFailedError
from ackq_broker.journal.files.directory import (
    DataDirectory,
    LogEnd,
    make_directories,
    segment_name,
    snapshot_name,
    unfinished,
)
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.write.group_commit import Capture

_COPY_BYTES: Final = 4 * 1024 * 1024
# Another file system, one without hard links, or a file that has its maximum number of links.
_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


class Backup(NamedTuple):
    """A completed backup.

    Attributes:
        directory: The backup's directory.
        sequence: The last record in the backup.
        total_bytes: Size of all its files.
        copied_bytes: Bytes that were written; the rest is linked.
    """

    directory: Path
    sequence: int
    total_bytes: int
    copied_bytes: int


def back_up(
    data: DataDirectory,
    capture: Capture,
    state: Iterable[bytes],
    target: Path,
    disk: Disk,
    going: Callable[[], bool],
) -> Backup:
    """Makes a backup at `target`; no segment may be deleted meanwhile.

    Args:
        data: The data directory.
        capture: The log at the mark, and its live blocks.
        state: The state at the mark, in chunks.
        target: A directory that does not exist yet; its parents are created.
        disk: Makes every change.
        going: Returning False ends the backup with ClosedError.

    Raises:
        PreconditionFailedError: `target` exists already, or another broker makes a backup in the
            same directory.
        OSError, ClosedError: The backup failed; its files were deleted.
    """
    if target.exists():
        raise PreconditionFailedError(
            f"{target} exists already: give the backup another name, or remove it.",
            directory=target,
        )
    make_directories(target.parent, disk)
    making = unfinished(target)
    with _locked(target.parent):
        shutil.rmtree(making, ignore_errors=True)  # left by a process that died
        disk.make_directory(making)
        try:
            copied = _fill(data, capture, state, making, disk, going)
            total = sum(path.stat().st_size for path in making.iterdir())
            disk.sync_directory(making)
            disk.rename(making, target)
            disk.sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    return Backup(target, capture.position.sequence, total, copied)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keeps other brokers from making a backup in the directory, where its file system has locks.

    Raises:
        PreconditionFailedError: Another broker makes one.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PreconditionFailedError(
                f"Another broker makes a backup in {directory}. Give each broker a --backup-dir of"
                " its own.",
                directory=directory,
            ) from None
        except OSError:
            pass  # NFS locks no directory
        yield
    finally:
        os.close(fd)


def _fill(
    data: DataDirectory,
    capture: Capture,
    state: Iterable[bytes],
    making: Path,
    disk: Disk,
    going: Callable[[], bool],
) -> int:
    """Makes the files of a backup; returns the number of bytes written."""
    at = capture.position
    copied = 0
    for number in sorted(capture.table.live_bytes()):
        if number != at.segment:
            name = segment_name(number)
            copied += _link_or_copy(data.path / name, making / name, disk, going)
    last = segment_name(at.segment)
    copied += _copy(data.path / last, making / last, at.offset, disk, going)
    snapshot = snapshots.Snapshot(at, capture.table, state, data.require_history())
    snapshots.write(making, snapshot, disk)
    snapshots.publish(making, snapshot, disk)
    end = LogEnd(at.segment, at.group, at.offset, closed=True)
    data.write_backup_format(making, end)
    return copied + (making / snapshot_name(at.sequence)).stat().st_size


def _link_or_copy(source: Path, target: Path, disk: Disk, going: Callable[[], bool]) -> int:
    try:
        disk.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return _copy(source, target, source.stat().st_size, disk, going)
    return 0


def _copy(source: Path, target: Path, length: int, disk: Disk, going: Callable[[], bool]) -> int:
    """Copies the first bytes of a file, and syncs them."""
    fd = disk.create(target)
    try:
        with source.open("rb") as file:
            for offset in range(0, length, _COPY_BYTES):
                if not going():
                    raise ClosedError("The broker stopped before the backup was complete.")
                part = os.pread(file.fileno(), min(_COPY_BYTES, length - offset), offset)
                disk.write(fd, [part], offset)
        disk.sync_file(fd)
    finally:
        os.close(fd)
    return length
