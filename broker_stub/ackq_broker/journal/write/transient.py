"""Transient blocks, in files that are never synced, so that memory does not bound a queue.

Invariant: a block is readable from `put` until it is freed; a thread writes it to its file. A block
that finds no room on the disk stays in memory, where it counts as unwritten: backpressure stops
publishers when the unwritten bytes are too many (P14).
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ackq import limits
from ackq.errors import BlockNotFoundError
from ackq_broker.journal.files.block_table import BlockIds, Location
from ackq_broker.journal.files.checksum import crc32
from ackq_broker.journal.files.directory import transient_name
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import Bulk, bulk_bytes
from ackq_broker.journal.read.blocks import Blocks

_FILE_BYTES: Final = 64 * limits.MIB
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_RETRY_S: Final = 1.0

_log: Final = logging.getLogger(__name__)


class TransientBlocks:
    """The transient blocks of this process.

    Args:
        directory: The data directory.
        disk: Makes every change; its sync methods are not used.
        on_failure: Called when writing a block failed for another reason than a full disk.
    """

    def __init__(
        self, directory: Path, disk: Disk, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._on_failure = on_failure
        self._blocks = Blocks(self._path)
        self._writer = ThreadPoolExecutor(1, "journal-transient")
        self._lock = threading.Lock()
        self._live: Counter[int] = Counter()
        self._number = 0
        self._fd = -1
        self._size = 0
        self._last_id = -1
        self._unwritten: dict[int, int] = {}
        self._closing = threading.Event()
        self._full = False
        self.unwritten_bytes = 0
        self.freed_bytes = 0

    def put(self, block_id: int, bulk: Bulk) -> None:
        """Adds a block, whose id is above all previous ids. Never waits for the disk."""
        assert block_id > self._last_id, "block ids ascend"
        self._last_id = block_id
        with self._lock:
            self._unwritten[block_id] = bulk_bytes(bulk)
            self.unwritten_bytes += bulk_bytes(bulk)
        self._blocks.add_pending(block_id, bulk)
        # Without its bytes: these are released as soon as the block is freed.
        self._writer.submit(self._write, block_id)

    def free(self, block_ids: BlockIds) -> npt.NDArray[np.bool_]:
        """Drops blocks and emptied files; returns a mask of the ids that were transient blocks."""
        freed = self._blocks.free(block_ids)
        self._forget_unwritten(block_ids.tolist())
        with self._lock:
            self.freed_bytes += freed.length
            self._live.subtract(freed.segments.tolist())
            self._drop_files()
        return freed.found

    def read(self, block_id: int) -> bytes:
        """The bytes of a block, as `Blocks.read`."""
        return self._blocks.read(block_id)

    def lengths(self, block_ids: BlockIds) -> npt.NDArray[np.int64]:
        """The lengths of blocks, as `Blocks.lengths`."""
        return self._blocks.lengths(block_ids)

    def rewrite(self, blocks: Sequence[tuple[int, bytes]]) -> None:
        """Replaces the bytes of blocks, by id; a block freed meanwhile stays free. Blocking.

        Raises:
            OSError: The disk has no room; the blocks are unchanged.
        """
        self._writer.submit(self._rewrite, blocks).result()

    def compact(self, below: float, going: Callable[[], bool]) -> None:
        """Copies blocks out of full files whose live share is below `below`; blocking.

        The emptied files are deleted. Ends when `going` returns False. Raises as `rewrite`.
        """
        table = self._blocks.copy_table()
        for number, live in table.live_bytes().items():
            if number == self._number or live >= below * _FILE_BYTES:
                continue
            for block_id in table.of_segment(number).tolist():
                if not going():
                    return
                with suppress(BlockNotFoundError):
                    self.rewrite([(block_id, self._blocks.read(block_id))])

    def close(self) -> None:
        """Stops the writer thread and removes all files."""
        self._closing.set()
        self._writer.shutdown(cancel_futures=True)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        for number in self._live:
            self._disk.unlink(self._path(number))
        self._live.clear()

    def _path(self, number: int) -> Path:
        return self._directory / transient_name(number)

    def _write(self, block_id: int) -> None:
        """Writes a block, or waits until there is room for it or it is freed."""
        while not self._closing.is_set() and not self._spilled(block_id):
            self._closing.wait(_RETRY_S)
        self._forget_unwritten([block_id])

    def _spilled(self, block_id: int) -> bool:
        """Whether a block is no longer needed in memory: it is in a file, or was freed."""
        bulk = self._blocks.pending(block_id)
        try:
            if bulk is not None:
                self._place(block_id, bulk)
                self._full = False
        except BaseException as error:  # noqa: BLE001 - nobody awaits the writer
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                if not self._full:
                    _log.error(
                        "transient messages stay in memory until the disk has space: %s", error
                    )
                self._full = True
                return False
            self._on_failure(error)
        return True

    def _forget_unwritten(self, block_ids: list[int]) -> None:
        """Subtracts written or freed blocks from the unwritten bytes."""
        with self._lock:
            for block_id in self._unwritten.keys() & block_ids if self._unwritten else ():
                self.unwritten_bytes -= self._unwritten.pop(block_id)

    def _place(self, block_id: int, bulk: Bulk) -> None:
        location = self._append(bulk)
        with self._lock:
            if self._blocks.place_pending(block_id, location):
                self._live[location.segment] += 1

    def _rewrite(self, blocks: Sequence[tuple[int, bytes]]) -> None:
        for block_id, data in blocks:
            location = self._append((data,))
            with self._lock:
                before = self._blocks.move(block_id, location)
                if before is not None:
                    self._live[before.segment] -= 1
                    self._live[location.segment] += 1
                self._drop_files()

    def _append(self, bulk: Bulk) -> Location:
        """Appends bytes to the current file, or to a new one."""
        if self._fd < 0 or self._size >= _FILE_BYTES:
            self._next_file()
        self._disk.write(self._fd, bulk, self._size)
        crc = 0
        for part in bulk:
            crc = crc32(part, crc)
        location = Location(self._number, self._size, bulk_bytes(bulk), crc)
        self._size += location.length
        return location

    def _next_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._fd = self._disk.create(self._path(self._number + 1))
        self._size = 0
        with self._lock:
            self._number += 1
            self._live[self._number] = 0
            self._drop_files()

    def _drop_files(self) -> None:
        empty = [n for n, blocks in self._live.items() if not blocks and n != self._number]
        for number in empty:
            self._disk.unlink(self._path(number))
            del self._live[number]
        if empty:
            self._blocks.keep_files(self._live)
