"""Cache of the blocks that deliveries read last, and of small new blocks.

Row-wise consumers read a block from disk once.

Invariant: at most `_MAX_BYTES` are kept. A block id is never given twice, and compaction takes only
dead rows from a block, so that a cached block has every row that a reader may ask for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ackq import limits
from ackq_broker.journal import Bulk

_MAX_BYTES: Final = 32 * limits.MIB
# A larger block is mostly delivered whole, or in a few frames.
_MAX_BLOCK_BYTES: Final = 4 * limits.MIB
# A larger new block is not kept: a copy of it costs more than the reader's thread that reads it.
_MAX_NEW_BYTES: Final = 16 * limits.KIB


class BlockCache:
    """Reads blocks through an LRU cache. Any thread may call it.

    Args:
        read_block: A block's bytes by its id.
    """

    def __init__(self, read_block: Callable[[int], bytes]) -> None:
        self._read_block = read_block
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0

    def __call__(self, block_id: int) -> bytes:
        """Returns the bytes of a block, read from the disk if they are not cached.

        Raises:
            BlockNotFoundError: It was freed, and is not in the cache.
            DamagedError: The bytes on the disk differ from the bytes that were written.
        """
        with self._lock:
            data = self._blocks.get(block_id)
            if data is not None:
                self._blocks.move_to_end(block_id)
                return data
        data = self._read_block(block_id)
        if len(data) <= _MAX_BLOCK_BYTES:
            self.keep(block_id, data)
        return data

    def keep_new(self, block_id: int, bulk: Bulk) -> None:
        """Keeps a block that has just arrived, if it is small: its consumer may be waiting."""
        if sum(map(len, bulk)) <= _MAX_NEW_BYTES:
            self.keep(block_id, b"".join(bulk))

    def __contains__(self, block_id: int) -> bool:
        """Whether a block can be read without the disk."""
        return block_id in self._blocks

    def keep(self, block_id: int, data: bytes) -> None:
        """Keeps a block's bytes until more recently used blocks displace them."""
        with self._lock:
            if block_id in self._blocks:
                return
            self._blocks[block_id] = data
            self._bytes += len(data)
            while self._bytes > _MAX_BYTES:
                _, oldest = self._blocks.popitem(last=False)
                self._bytes -= len(oldest)
