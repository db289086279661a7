"""Counts what refers to each block of messages: a block dies exactly with its last reference.

Most blocks have one reference (one queue), so those are a bitmap; only shared blocks have a
counter.
"""

from __future__ import annotations

from pyroaring import BitMap64


class BlockReferences:
    """References by block id: one for each queue that has a run of it, one for a stage's hold."""

    __slots__ = ("_dead", "_shared", "_single")

    def __init__(self) -> None:
        self._single = BitMap64()
        self._shared: dict[int, int] = {}
        self._dead = BitMap64()

    def add(self, block_id: int) -> None:
        """One more reference; the first one makes the block live."""
        if block_id in self._shared:
            self._shared[block_id] += 1
        elif block_id in self._single:
            self._single.discard(block_id)
            self._shared[block_id] = 2
        else:
            self._single.add(block_id)

    def release(self, block_ids: BitMap64) -> None:
        """One reference less for each of these blocks; every one of them must be live."""
        last = block_ids & self._single
        self._single -= last
        self._dead |= last
        for block_id in block_ids - last:
            count = self._shared.pop(block_id) - 1
            if count == 1:
                self._single.add(block_id)
            else:
                self._shared[block_id] = count

    def drain_dead(self) -> list[int]:
        """The blocks that died since the last call, ascending."""
        dead = self._dead.to_array().tolist()
        self._dead = BitMap64()
        return dead

    def live(self) -> BitMap64:
        """Every block that something refers to."""
        return self._single | BitMap64(self._shared)
