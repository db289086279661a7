"""How often something happened to each position of a queue; never, for most.

Invariant: plane k has the positions whose count has bit k set. So counting once more, forgetting
and looking up cost a few bitmap operations for any counts.
"""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s


class Counts:
    """A counter for each position."""

    __slots__ = ("_planes",)

    def __init__(self) -> None:
        self._planes: list[BitMap64] = []

    def add(self, positions: BitMap64) -> None:
        """It happened to these positions once more."""
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
        """It happened once less to these positions, to each of which it happened at all."""
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
        """Removes positions."""
        for plane in self._planes:
            plane.difference_update(positions)
        self._trim()

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
        """Whether it happened to any position."""
        return bool(self._planes)

    def positions(self) -> BitMap64:
        """Those to which it happened at all."""
        return BitMap64.union(BitMap64(), *self._planes)

    def some(self, positions: BitMap64) -> BitMap64:
        """Those of some positions to which it happened at all."""
        found = BitMap64()
        for plane in self._planes:
            found |= plane & positions
        return found

    def dump(self) -> tuple[tuple[int, BitMap64], ...]:
        """Counts with a copy of their positions; a position's counts add up."""
        return tuple((1 << bit, plane.copy()) for bit, plane in enumerate(self._planes) if plane)

    @classmethod
    def load(cls, dumped: tuple[tuple[int, BitMap64], ...]) -> Counts:
        """The opposite of `dump`; an entry may also be the whole count of its positions."""
        self = cls()
        for count, positions in dumped:
            for bit in range(count.bit_length()):
                if bit == len(self._planes):
                    self._planes.append(BitMap64())
                if count >> bit & 1:
                    self._planes[bit] |= positions
        return self

    def _trim(self) -> None:
        while self._planes and not self._planes[-1]:
            self._planes.pop()
