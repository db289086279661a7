"""A count for each position of a queue, of deliveries for example; 0 for most.

Invariant: plane k has the positions whose count has bit k set. So an increment, a removal and a
look-up cost a few bitmap operations, whatever the counts are.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s

# Counts are signed 64-bit integers; a larger one in an old journal counts as the largest.
_MOST: Final = (1 << 63) - 1


class Counts:
    """A counter for each position."""

    __slots__ = ("_planes",)

    def __init__(self) -> None:
        self._planes: list[BitMap64] = []

    def add(self, positions: BitMap64) -> None:
        """Increments the count of these positions."""
        carry = positions
        for plane in self._planes:
            over = plane & carry
            plane.symmetric_difference_update(carry)
            carry = over
            if not carry:
                return
        if carry:
            self._planes.append(carry.copy())

    def subtract(self, positions: BitMap64) -> None:
        """Decrements the count of these positions, which must be above zero."""
        borrow = positions
        for plane in self._planes:
            under = borrow - plane
            plane.symmetric_difference_update(borrow)
            borrow = under
            if not borrow:
                break
        assert not borrow
        self._trim()

    def forget(self, positions: BitMap64) -> None:
        """Resets the count of these positions to zero."""
        for plane in self._planes:
            plane.difference_update(positions)
        self._trim()

    def put(self, count: int, positions: BitMap64) -> None:
        """Sets the count of these positions, which must be zero, or have no bit of the new one."""
        count = min(count, _MOST)
        for bit in range(count.bit_length()):
            if bit == len(self._planes):
                self._planes.append(BitMap64())
            if count >> bit & 1:
                self._planes[bit] |= positions

    def at(self, positions: BitMap64) -> Int64s:
        """The count of each position, in order."""
        size = len(positions)
        counts = np.zeros(size, np.int64)
        for bit, plane in enumerate(self._planes):
            counted = plane & positions
            if len(counted) == size:
                counts += 1 << bit
            elif counted:
                ranks = np.searchsorted(bitmaps.array(positions), bitmaps.array(counted))
                counts[ranks] += 1 << bit
        return counts

    def __bool__(self) -> bool:
        """Whether any position has a count above zero."""
        return bool(self._planes)

    def positions(self) -> BitMap64:
        """The positions whose count is above zero."""
        return BitMap64.union(BitMap64(), *self._planes)

    def some(self, positions: BitMap64) -> BitMap64:
        """The given positions whose count is above zero."""
        found = BitMap64()
        for plane in self._planes:
            found |= plane & positions
        return found

    def dump(self) -> tuple[tuple[int, BitMap64], ...]:
        """Counts with a copy of their positions; a position's counts add up."""
        return tuple((1 << bit, plane.copy()) for bit, plane in enumerate(self._planes) if plane)

    @classmethod
    def load(cls, dumped: tuple[tuple[int, BitMap64], ...]) -> Counts:
        """Restores the counts from the output of `dump`; an entry may be a whole count."""
        self = cls()
        for count, positions in dumped:
            self.put(count, positions)
        return self

    def _trim(self) -> None:
        while self._planes and not self._planes[-1]:
            self._planes.pop()
