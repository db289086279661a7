"""Delivery times of a channel's unacked messages, to about a second (Q9).

Invariant: the number of marks is bounded, however long the channel lives: at the bound every second
mark is dropped, so a message may look older than it is, by the time between two marks.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_APART_US: Final = 1_000_000
MOST_MARKS: Final = 1_024


class DeliveryTimes:
    """Delivery times of tags, as marks: a tag, and the time of its delivery and of later tags."""

    __slots__ = ("_apart_us", "_tags", "_times")

    def __init__(self) -> None:
        self._tags: list[int] = []
        self._times: list[int] = []
        self._apart_us = _APART_US

    def note(self, first_tag: int, now_us: int) -> None:
        """Notes a delivery, whose first tag is above all earlier ones."""
        if self._times and now_us - self._times[-1] < self._apart_us:
            return
        self._tags.append(first_tag)
        self._times.append(now_us)
        if len(self._tags) == MOST_MARKS:
            del self._tags[1::2], self._times[1::2]
            self._apart_us *= 2

    def since_us(self, tag: int) -> int:
        """The earliest time at which a tag can have been delivered; 0 if no mark precedes it."""
        at = bisect_right(self._tags, tag)
        return self._times[at - 1] if at else 0
