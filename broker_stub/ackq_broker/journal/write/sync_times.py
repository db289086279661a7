"""How long syncs took: a histogram, which costs one lookup and two additions a sync."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Upper bounds in seconds. A sync takes 0.05 ms without a disk, 1 ms on a fast one, 10 ms on others.
BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)


class SyncTimes:
    """Syncs by how long they took; written by one thread, read by any.

    Attributes:
        counts: Syncs that took no longer than the bound of the same index, and longer than the one
            before; the last are those beyond all bounds.
        total_s: What they took together.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """One more sync."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds
