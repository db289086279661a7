"""Since when the unacked messages of a channel have been with its client, to about a second (Q9).

Invariant: a bounded number of marks, however long the channel lives: at the bound every second one
goes, so that a message may look older than it is, by the time between two marks.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_APART_US: Final = 1_000_000
MOST_MARKS: Final = 1_024


class DeliveryTimes:
    """When tags were delivered: marks of a tag and the time at which it, and what follows, went."""

    __slots__ = ("_apart_us", "_tags", "_times")

    def __init__(self) -> None:
        self._tags: list[int] = []
        self._times: list[int] = []
        self._apart_us = _APART_US

    def note(self, first_tag: int, now_us: int) -> None:
        """Notes a delivery whose first tag follows all before."""
        if self._times and now_us - self._times[-1] < self._apart_us:
            return
        self._tags.append(first_tag)
        self._times.append(now_us)
        if len(self._tags) == MOST_MARKS:
            del self._tags[1::2], self._times[1::2]
            self._apart_us *= 2

    def since_us(self, tag: int) -> int:
        """When a tag was delivered, at most that early; 0 when nothing was noted before it."""
        at = bisect_right(self._tags, tag)
        return self._times[at - 1] if at else 0
