"""Cache of the blocks that deliveries read last: row-wise consumers read a block from disk once.

Invariant: at most `_MAX_BYTES` are kept. A block id is never given twice, and compaction takes only
dead rows from a block, so that what is kept here has every row that a reader may ask for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ackq import limits

_MAX_BYTES: Final = 32 * limits.MIB
# A larger block is mostly delivered whole, or in a few frames.
_MAX_BLOCK_BYTES: Final = 4 * limits.MIB


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
        """A block's bytes.

        Raises:
            BlockNotFoundError: It was freed, and is not in the cache.
            DamagedError: The bytes on the disk are not those that were written.
        """
        with self._lock:
            data = self._blocks.get(block_id)
            if data is not None:
                self._blocks.move_to_end(block_id)
                return data
        data = self._read_block(block_id)
        if len(data) <= _MAX_BLOCK_BYTES:
            self._keep(block_id, data)
        return data

    def _keep(self, block_id: int, data: bytes) -> None:
        with self._lock:
            if block_id in self._blocks:
                return
            self._blocks[block_id] = data
            self._bytes += len(data)
            while self._bytes > _MAX_BYTES:
                _, oldest = self._blocks.popitem(last=False)
                self._bytes -= len(oldest)
