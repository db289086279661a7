"""Positions by the instant something happens to them: they expire, or their delay is over.

Invariant: nothing happens early, and at most 1/512 of the wait or 16 ms late, whichever is longer:
instants are rounded up to that, so a queue has some thousand of them however many messages. A
position that was removed stays in its bucket until then; callers know which positions are still
present.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Final

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core.columns.bitmaps import Int64s

# The exponents of the finest bucket (16.4 ms in microseconds), and of buckets in a doubling.
_FINEST: Final = 14
_BUCKETS: Final = 9


def rounded(instants_us: Int64s, now_us: int) -> Int64s:
    """Instants rounded up to the ends of their buckets.

    Records hold unrounded instants, so this rule is part of their meaning: it must not change.
    """
    _, exponents = np.frexp(np.maximum(instants_us - now_us, 1).astype(np.float64))
    widths = np.left_shift(1, np.maximum(exponents - 1 - _BUCKETS, _FINEST), dtype=np.int64)
    ends: Int64s = -(-instants_us // widths) * widths
    return ends


class Deadlines:
    """Positions bucketed by deadline; a live position is in at most one bucket."""

    __slots__ = ("_buckets", "_instants")

    def __init__(self) -> None:
        self._buckets: dict[int, BitMap64] = {}
        self._instants: list[int] = []

    def add(self, instant_us: int, positions: BitMap64) -> None:
        """Adds positions to the bucket that ends at this instant."""
        bucket = self._buckets.get(instant_us)
        if bucket is None:
            insort(self._instants, instant_us)
            self._buckets[instant_us] = positions.copy()
        else:
            bucket |= positions

    def forget(self, positions: BitMap64) -> None:
        """Removes positions from their buckets, and the buckets that are empty then."""
        for bucket in self._buckets.values():
            bucket.difference_update(positions)
        self._buckets = {instant: each for instant, each in self._buckets.items() if each}
        self._instants = sorted(self._buckets)

    def last(self) -> int:
        """The last instant; 0 for none."""
        return self._instants[-1] if self._instants else 0

    def first(self, *present: BitMap64) -> int:
        """The first instant with a position in one of these bitmaps; 0 for none.

        Earlier buckets are dropped, as none of their positions is present.
        """
        gone = 0
        for instant in self._instants:
            if any(not self._buckets[instant].isdisjoint(positions) for positions in present):
                break
            del self._buckets[instant]
            gone += 1
        del self._instants[:gone]
        return self._instants[0] if self._instants else 0

    def due(self, now_us: int) -> BitMap64:
        """The positions whose instant has come."""
        instants = self._instants[: bisect_right(self._instants, now_us)]
        return BitMap64.union(*map(self._buckets.__getitem__, instants)) if instants else BitMap64()

    def after(self, instant_us: int) -> BitMap64:
        """The positions whose instant is this one or a later one."""
        instants = self._instants[bisect_left(self._instants, instant_us) :]
        return BitMap64.union(BitMap64(), *map(self._buckets.__getitem__, instants))

    def buckets(self) -> tuple[tuple[int, BitMap64], ...]:
        """The instants with their positions, the first instant first."""
        return tuple((instant, self._buckets[instant]) for instant in self._instants)

    def pop(self, now_us: int) -> BitMap64:
        """Returns the positions that are due, and drops their buckets."""
        found = self.due(now_us)
        count = bisect_right(self._instants, now_us)
        for instant in self._instants[:count]:
            del self._buckets[instant]
        del self._instants[:count]
        return found

    def dump(self, present: BitMap64) -> tuple[tuple[int, BitMap64], ...]:
        """The buckets with their present positions only."""
        found = ((instant, self._buckets[instant] & present) for instant in self._instants)
        return tuple((instant, positions) for instant, positions in found if positions)

    @classmethod
    def load(cls, dumped: Iterable[tuple[int, BitMap64]]) -> Deadlines:
        """Restores the deadlines from the output of `dump`."""
        self = cls()
        for instant, positions in dumped:
            self.add(instant, positions)
        return self
