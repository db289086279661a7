"""Named points at which a crash test kills the process: around every change of the disk.

A point names a change and the kind of file: `before_rename_snapshot`. A kill after a change leaves
the same disk as a kill before the next one, so only a sync and a rename have a point after them as
well: at that point the process knows more than it has reported. Unarmed, a journal uses its disk
directly; armed, its disk is wrapped.

Invariant: this module does not read the environment; the command parses `ACKQ_FAILPOINT` once and
passes the result in.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ackq.errors import InvalidArgumentError
from ackq_broker.journal.files.disk import Disk

Failpoint = Callable[[str], None]

# The changes that a journal makes, in the order of their first occurrence. A dead segment is a
# `spare` while it waits and until a new segment takes it over, and `data` is the directory.
_CHANGES: Final = (
    "make_directory_parent",
    "make_directory_data",
    "sync_directory_parent",
    "sync_directory_data",
    "create_segment",
    "allocate_segment",
    "write_segment",
    "sync_file_segment",
    "rename_segment",
    "create_format",
    "write_format",
    "sync_file_format",
    "rename_format",
    "unlink_format",
    "sync_data_segment",
    "truncate_segment",
    "create_transient",
    "write_transient",
    "unlink_transient",
    "create_snapshot",
    "write_snapshot",
    "sync_file_snapshot",
    "rename_snapshot",
    "unlink_snapshot",
    "rename_spare",
    "reopen_segment",
    "unlink_segment",
    "unlink_spare",
    "make_directory_backup",
    "link_backup",
    "create_backup",
    "write_backup",
    "sync_file_backup",
    "rename_backup",
    "sync_directory_backup",
    "rename_backup_directory",
)
_AFTER: Final = ("sync", "rename")

POINTS: Final = tuple(
    f"{when}_{change}"
    for change in _CHANGES
    for when in ("before", "after")
    if when == "before" or change.startswith(_AFTER)
)


def unarmed(_point: str) -> None:
    """The failpoint of a journal that is not under test."""


def kill_at(text: str) -> Failpoint:
    """A failpoint that ends this process with SIGKILL.

    `text` is `POINT:HIT`, as in `before_write_segment:3`: at the third hit; without HIT the first.

    Raises:
        InvalidArgumentError: `text` does not have that form, or names an unknown point.
    """
    point, _, count = text.partition(":")
    if point not in POINTS or not (count or "1").isdecimal() or int(count or "1") < 1:
        raise InvalidArgumentError(
            f"failpoint {text!r} is not POINT or POINT:HIT with HIT from 1; the points are "
            f"{', '.join(POINTS)}",
            failpoint=text,
        )
    left = int(count or "1")

    def hit(name: str) -> None:
        nonlocal left
        if name != point:
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return hit


class FailpointDisk(Disk):
    """A disk that calls a failpoint around each change.

    Args:
        disk: Makes the changes.
        failpoint: Called with each point of `POINTS` when it is reached.
        data: The data directory; a path neither in it nor above it belongs to a backup.
    """

    def __init__(self, disk: Disk, failpoint: Failpoint, data: Path) -> None:
        super().__init__()
        self._disk = disk
        self._failpoint = failpoint
        self._data = data.absolute()
        self._kinds: dict[int, str] = {}

    def create(self, path: Path) -> int:
        """As `Disk.create`."""
        with self._around("create", self._kind(path)):
            return self._opened(self._disk.create(path), path)

    def reopen(self, path: Path) -> int:
        """As `Disk.reopen`."""
        with self._around("reopen", self._kind(path)):
            return self._opened(self._disk.reopen(path), path)

    def allocate(self, fd: int, size: int) -> None:
        """As `Disk.allocate`."""
        with self._around("allocate", self._kinds[fd]):
            self._disk.allocate(fd, size)

    def write(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """As `Disk.write`."""
        with self._around("write", self._kinds[fd]):
            self._disk.write(fd, buffers, offset)

    def truncate(self, fd: int, size: int) -> None:
        """As `Disk.truncate`."""
        with self._around("truncate", self._kinds[fd]):
            self._disk.truncate(fd, size)

    def sync_data(self, fd: int) -> None:
        """As `Disk.sync_data`."""
        with self._around("sync_data", self._kinds[fd]):
            self._disk.sync_data(fd)

    def sync_file(self, fd: int) -> None:
        """As `Disk.sync_file`."""
        with self._around("sync_file", self._kinds[fd]):
            self._disk.sync_file(fd)

    def sync_directory(self, directory: Path) -> None:
        """As `Disk.sync_directory`."""
        with self._around("sync_directory", self._kind(directory)):
            self._disk.sync_directory(directory)

    def rename(self, source: Path, target: Path) -> None:
        """As `Disk.rename`."""
        kind = self._kind(target)
        if kind == "segment" and target.suffix == ".new":
            kind = "spare"
        elif source.is_dir():
            kind += "_directory"
        with self._around("rename", kind):
            self._disk.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """As `Disk.link`."""
        with self._around("link", self._kind(target)):
            self._disk.link(source, target)

    def make_directory(self, path: Path) -> None:
        """As `Disk.make_directory`."""
        with self._around("make_directory", self._kind(path)):
            self._disk.make_directory(path)

    def unlink(self, path: Path) -> None:
        """As `Disk.unlink`."""
        kind = self._kind(path)
        if kind == "segment" and path.suffix == ".new":
            kind = "spare"
        with self._around("unlink", kind):
            self._disk.unlink(path)

    def free_bytes(self, directory: Path) -> int:
        """As `Disk.free_bytes`."""
        return self._disk.free_bytes(directory)

    def _opened(self, fd: int, path: Path) -> int:
        self._kinds[fd] = self._kind(path)
        return fd

    def _kind(self, path: Path) -> str:
        """The kind of a path, as it appears in the names of points."""
        path = path.absolute()
        if path == self._data:
            return "data"
        if self._data.is_relative_to(path):
            return "parent"
        if path.parent != self._data:
            return "backup"
        if path.stem == "FORMAT":
            return "format"
        return path.name.partition("-")[0].replace("journal", "segment")

    @contextmanager
    def _around(self, change: str, kind: str) -> Iterator[None]:
        self._failpoint(f"before_{change}_{kind}")
        yield
        if change.startswith(_AFTER):
            self._failpoint(f"after_{change}_{kind}")
