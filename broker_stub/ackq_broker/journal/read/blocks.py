"""Blocks by id: read from memory until they are in a file, afterwards from the file.

Thread-safe. Invariant: at every instant a live block is in memory, in the table, or both.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ackq.errors import BlockNotFoundError, DamagedError
from ackq_broker.journal.files.block_table import BlockIds, BlockTable, Freed, Location
from ackq_broker.journal.files.checksum import crc32
from ackq_broker.journal.files.disk import with_descriptor
from ackq_broker.journal.files.format import Bulk

# Segments are 256 MiB: 64 open ones are 16 GiB of backlog without reopening.
_MAX_OPEN_FILES: Final = 64
# The cache takes at most one in this many of the process's descriptors.
_OPEN_FILES_PART: Final = 16


class Blocks:
    """The live blocks of one series of files.

    Args:
        path_of: Returns the file of a segment number.
        table: The blocks that are already in files.
    """

    def __init__(self, path_of: Callable[[int], Path], table: BlockTable | None = None) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, Bulk] = {}
        self._table = table or BlockTable()
        self._files = _Files(path_of)

    @property
    def last_id(self) -> int:
        """The highest block id that was ever in a file, -1 for none."""
        return self._table.last_id

    def add_pending(self, block_id: int, bulk: Bulk) -> None:
        """Adds a block in memory, which stays until `place` sets its location."""
        with self._lock:
            self._pending[block_id] = bulk

    def pending(self, block_id: int) -> Bulk | None:
        """The block in memory; None if it went to a file or was freed."""
        with self._lock:
            return self._pending.get(block_id)

    def place(self, block_id: int, location: Location) -> None:
        """Sets the location of a new block that was written to a file."""
        with self._lock:
            self._table.add(block_id, location)
            self._pending.pop(block_id, None)

    def place_pending(self, block_id: int, location: Location) -> bool:
        """Places a block, as `place`, unless it was freed meanwhile; returns whether it did."""
        with self._lock:
            if self._pending.pop(block_id, None) is None:
                return False
            self._table.add(block_id, location)
            return True

    def move(self, block_id: int, location: Location) -> Location | None:
        """Changes the location of a block unless it was freed meanwhile, as `BlockTable.move`."""
        with self._lock:
            return self._table.move(block_id, location)

    def free(self, block_ids: BlockIds) -> Freed:
        """Drops blocks. `Freed.found` is also true for blocks that were in memory only."""
        with self._lock:
            freed = self._table.free(block_ids)
            for index in np.flatnonzero(~freed.found) if self._pending else ():
                if self._pending.pop(int(block_ids[index]), None) is not None:
                    freed.found[index] = True
            return freed

    def locate(self, block_id: int) -> Location | None:
        """The location of a block; None if it is not live or not in a file yet."""
        with self._lock:
            return self._table.find(block_id)

    def lengths(self, block_ids: BlockIds) -> npt.NDArray[np.int64]:
        """The length of each block in bytes, 0 for a block that is not in a file."""
        with self._lock:
            return self._table.lengths(block_ids)

    def live_bytes(self) -> int:
        """The total length of the blocks that are in files now."""
        with self._lock:
            return sum(self._table.live_bytes().values())

    def copy_table(self) -> BlockTable:
        """A copy of the table of the blocks that are in files now."""
        with self._lock:
            return self._table.copy()

    def keep_files(self, segments: Iterable[int]) -> None:
        """Closes the files of other segments, which were deleted; reads in progress complete."""
        self._files.keep(set(segments))

    def read(self, block_id: int) -> bytes:
        """The bytes of a block; may wait for the disk.

        Raises:
            BlockNotFoundError: The block was freed, or never added.
            DamagedError: The bytes on the disk differ from the bytes that were written.
        """
        while True:
            with self._lock:
                bulk = self._pending.get(block_id)
                location = self._table.find(block_id)
            if bulk is not None:
                return b"".join(bulk)
            if location is None:
                raise BlockNotFoundError(f"block {block_id} was freed", block=block_id)
            try:
                return self._files.read(block_id, location)
            except (FileNotFoundError, DamagedError) as error:
                # Compaction moved the block, or it was freed, between the lookup and the read; then
                # its segment may be deleted, or written over.
                with self._lock:
                    stays = self._table.find(block_id) == location
                if not stays:
                    continue
                if isinstance(error, DamagedError):
                    raise
                raise DamagedError(
                    f"block {block_id} is lost: {error.filename} is missing",
                    block=block_id,
                    segment=error.filename,
                ) from error


class _Handle:
    """An open file that closes with its last reader, by reference count."""

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.fd = with_descriptor(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class _Files:
    """LRU cache of open segment files."""

    def __init__(self, path_of: Callable[[int], Path]) -> None:
        self._path_of = path_of
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _Handle] = OrderedDict()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        few = most // _OPEN_FILES_PART if most != resource.RLIM_INFINITY else _MAX_OPEN_FILES
        self._max_open = max(1, min(few, _MAX_OPEN_FILES))

    def keep(self, segments: set[int]) -> None:
        with self._lock:
            for segment in self._open.keys() - segments:
                del self._open[segment]

    def read(self, block_id: int, location: Location) -> bytes:
        path = self._path_of(location.segment)
        try:
            handle = self._handle(location.segment)
            data = os.pread(handle.fd, location.length, location.offset)
            while len(data) < location.length:
                more = os.pread(handle.fd, location.length - len(data), location.offset + len(data))
                if not more:
                    break
                data += more
        except FileNotFoundError:
            raise
        except OSError as error:
            # To the reader an unreadable sector is the same as a corrupted one.
            raise DamagedError(
                f"the disk cannot read block {block_id}: {path} byte {location.offset}, "
                f"{location.length} bytes: {error.strerror}; its messages cannot be read",
                block=block_id,
                segment=path,
                byte=location.offset,
            ) from error
        # A block that repair marked as lost fails this check, too.
        if len(data) < location.length or crc32(data) != location.crc:
            raise DamagedError(
                f"block {block_id} is damaged on the disk: {path} byte {location.offset}, "
                f"{location.length} bytes; its messages cannot be read",
                block=block_id,
                segment=path,
                byte=location.offset,
            )
        return data

    def _handle(self, segment: int) -> _Handle:
        with self._lock:
            handle = self._open.get(segment)
            if handle is None:
                handle = self._open[segment] = _Handle(self._path_of(segment))
                if len(self._open) > self._max_open:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(segment)
            return handle
