"""Every change the journal makes to the disk, in one class that a test can replace.

Invariant: only the sync methods sync (a file after write, a directory after create, rename and
unlink), so that the order of syncs in the callers is the order on the disk.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from ackq import limits
from ackq_broker.journal.files.writeback import start_writeback

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_IOV_MAX: Final = os.sysconf("SC_IOV_MAX")
# Pieces of 4 MiB and more took several times the CPU where the page cache got new memory for them.
_PIECE_BYTES: Final = limits.MIB
# The process, or the machine, has no descriptor left. Nothing was opened, and nothing is lost.
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_DESCRIPTOR_POLL_S: Final = 0.05


class Disk:
    """The real disk. Methods raise `OSError`; none retries: after a failed sync nothing is certain.

    Methods that open a file do wait for a free descriptor.

    Args:
        sync: False makes the sync calls do nothing, for tests and for data that may be lost.
    """

    def __init__(self, *, sync: bool = True) -> None:
        self._sync = sync

    def create(self, path: Path) -> int:
        """Creates an empty file, open for reading and writing; replaces a file of that name."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return with_descriptor(lambda: os.open(path, flags, 0o640))

    def reopen(self, path: Path) -> int:
        """Opens an existing file for reading and writing, with its contents."""
        return with_descriptor(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def allocate(self, fd: int, size: int) -> None:
        """Makes the file `size` bytes long and allocates their disk space; they read as zeros."""
        os.posix_fallocate(fd, 0, size)

    def write(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Writes all buffers, one after the other, from byte `offset`."""
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        first = 0
        while first < len(views):
            written = os.pwritev(fd, views[first : first + _IOV_MAX], offset)
            if not written:
                raise OSError(errno.EIO, "the disk wrote no bytes and reported no error")
            offset += written
            while first < len(views) and written >= views[first].nbytes:
                written -= views[first].nbytes
                first += 1
            if written:  # a short write: the rest is written next
                views[first] = views[first][written:]

    def write_group(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Writes as `write` what a sync follows.

        By pieces of 1 MiB: the kernel is asked to bring each to the disk while it takes the next,
        so that the sync waits for little.
        """
        begun = offset
        for piece in _pieces(buffers):
            if offset > begun and self._sync:
                start_writeback(fd, begun, offset)
                begun = offset
            self.write(fd, piece, offset)
            offset += sum(map(len, piece))

    def truncate(self, fd: int, size: int) -> None:
        """Cuts the file to `size` bytes."""
        os.ftruncate(fd, size)

    def sync_data(self, fd: int) -> None:
        """Syncs the written bytes of a file: returns when they are on the disk."""
        if self._sync:
            os.fdatasync(fd)

    def sync_file(self, fd: int) -> None:
        """Syncs a file as `sync_data` does, with its size and times."""
        if self._sync:
            os.fsync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Syncs a directory: returns when the names in it are on the disk."""
        if not self._sync:
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        fd = with_descriptor(lambda: os.open(directory, flags))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Gives a file its final name; replaces a file that had it."""
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file a second name."""
        target.hardlink_to(source)

    def make_directory(self, path: Path) -> None:
        """Makes a directory that only its owner can access."""
        path.mkdir(mode=0o700)

    def unlink(self, path: Path) -> None:
        """Removes a file's name; readers that have the file open can still read it."""
        path.unlink()

    def free_bytes(self, directory: Path) -> int:
        """The bytes that an ordinary process can still write on a directory's file system."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize


def _pieces(buffers: Sequence[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """The bytes of all buffers, in pieces of `_PIECE_BYTES`; the last one is shorter."""
    piece: list[memoryview] = []
    room = _PIECE_BYTES
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        while len(view):
            piece.append(view[:room])
            view = view[room:]
            room -= len(piece[-1])
            if not room:
                yield piece
                piece, room = [], _PIECE_BYTES
    if piece:
        yield piece


def with_descriptor(open_file: Callable[[], T]) -> T:
    """Returns the result of `open_file`; calls it again while no file descriptor is free."""
    waited = False
    while True:
        try:
            opened = open_file()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            if not waited:
                _log.error("the journal waits for a file descriptor: %s", error)
            waited = True
            time.sleep(_DESCRIPTOR_POLL_S)
        else:
            if waited:
                _log.warning("the journal has a file descriptor again")
            return opened
