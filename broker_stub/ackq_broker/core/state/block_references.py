"""Reference counts of blocks: a block is dead exactly after its last reference is released.

Most blocks have one reference (one queue), so those are a bitmap; only shared blocks have a
counter. Pins are volatile: they end with the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyroaring import BitMap64

from ackq_broker.core.state.block_sizes import BlockSizes


class BlockReferences:
    """References by block id: one for each run of it in a queue, one for a stage's hold.

    Attributes:
        sizes: Sizes of the messages in the live blocks.
    """

    __slots__ = ("_dead", "_pins", "_shared", "_single", "sizes")

    def __init__(self) -> None:
        self.sizes = BlockSizes()
        self._single = BitMap64()
        self._shared: dict[int, int] = {}
        self._dead = BitMap64()
        self._pins = Counter[int]()

    def add(self, block_id: int) -> None:
        """Adds a reference; the first one makes the block live."""
        if block_id in self._shared:
            self._shared[block_id] += 1
        elif block_id in self._single:
            self._single.discard(block_id)
            self._shared[block_id] = 2
        else:
            self._single.add(block_id)

    def release(self, block_ids: list[int]) -> None:
        """Releases one reference for each listed block, which must be live; blocks may repeat."""
        named = BitMap64(block_ids)
        if len(named) < len(block_ids):
            counts = Counter(block_ids)
            for times in range(1, max(counts.values())):
                self._release(BitMap64(i for i, count in counts.items() if count > times))
        self._release(named)

    def _release(self, block_ids: BitMap64) -> None:
        last = block_ids & self._single
        self._single -= last
        self._dead |= last
        self.sizes.forget(last)
        for block_id in (block_ids - last).to_array():
            count = self._shared.pop(block_id) - 1
            if count == 1:
                self._single.add(block_id)
            else:
                self._shared[block_id] = count

    def pin(self, block_ids: Iterable[int]) -> None:
        """Pins blocks that a reader still needs: they are not drained, even when dead."""
        self._pins.update(block_ids)

    def unpin(self, block_ids: Iterable[int]) -> None:
        """Undoes one `pin`."""
        for block_id in block_ids:
            self._pins[block_id] -= 1
            if not self._pins[block_id]:
                del self._pins[block_id]

    def pinned(self) -> BitMap64:
        """The blocks that a reader still needs."""
        return BitMap64(self._pins)

    def drain_dead(self) -> list[int]:
        """The blocks dead since the last call, ascending."""
        pinned = self._dead & BitMap64(self._pins) if self._pins else BitMap64()
        dead: list[int] = (self._dead - pinned).to_array().tolist()
        self._dead = pinned
        return dead

    def count(self, block_id: int) -> int:
        """Number of references of a block."""
        return self._shared.get(block_id, int(block_id in self._single))

    def live(self) -> BitMap64:
        """Every block that has a reference."""
        return self._single | BitMap64(self._shared)
