"""Unanswered publishes of a stream, and their confirms in few messages (P2-P3, P9-P11).

Invariant: a cumulative confirm never covers a number that this stream has not received; numbers
below the client's lowest unanswered one count as received.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from pyroaring import BitMap64

from ackq import limits
from ackq.v1 import publishing_pb2 as pb

# Confirms of more ranges than this wait for the numbers between them. A frame of alternating
# persistent and transient rows has 5,000 ranges; after the pending sync they are one range.
_MOST_RANGES: Final = 64
_WINDOW_PART: Final = 3
_DELAY_S: Final = limits.CONFIRM_DELAY_MS / 1000


class PendingConfirms:
    """The numbers of one publisher's stream between their arrival and their answer.

    Args:
        window_messages: The publisher's window; 0: unknown.
    """

    def __init__(self, window_messages: int = 0) -> None:
        window = window_messages or limits.PUBLISH_WINDOW_MESSAGES
        self._most_delayed = max(1, window // _WINDOW_PART)
        self._numbers = BitMap64()
        self._urgent = BitMap64()
        # Handled numbers with a delayed confirm (P11), and since when the oldest waits.
        self._delayed = BitMap64()
        self._delayed_since_s = 0.0
        # All numbers up to this one arrived on this stream or were answered on an earlier one.
        self._received_up_to = 0
        self._highest = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def received(
        self, first: int, last: int, lowest_unanswered: int, *, urgent: bool = False
    ) -> BitMap64:
        """Adds numbers first..last of a frame; returns the repeated ones (P10).

        A repeated number arrived before and has no answer yet. Confirms of `urgent` numbers are not
        delayed.
        """
        again = self.in_progress(first, last)
        self._numbers.add_range(first, last + 1)
        if urgent:
            self._urgent.add_range(first, last + 1)
        self._highest = max(self._highest, last)
        self._received_up_to = max(self._received_up_to, lowest_unanswered - 1)
        if first <= self._received_up_to + 1:
            self._received_up_to = max(self._received_up_to, last)
        return again

    def in_progress(self, first: int, last: int) -> BitMap64:
        """The numbers of first..last that arrived and have no answer."""
        if first > self._highest:
            return BitMap64()
        return self._numbers & BitMap64(range(first, min(last, self._highest) + 1))

    def nacked(self, numbers: BitMap64) -> BitMap64:
        """Marks numbers as answered by a nack; returns those that had no answer yet."""
        due = numbers & self._numbers
        self._answered(due)
        return due

    def confirms(self, handled: BitMap64, now_s: float) -> list[pb.PublishConfirm]:
        """The confirms that are due once numbers are handled; a number gets at most one (P3).

        Numbers in order are confirmed at once, by one cumulative confirm. Others are confirmed at
        once as well, unless they form many ranges: then they wait for the numbers in progress
        between them, up to the bounds of P11, a third of the window or a second.

        Args:
            handled: May be empty, and may contain numbers that were answered before.
            now_s: Monotonic seconds.
        """
        due = (handled & self._numbers) | self._delayed
        if not due:
            return []
        covered = self._received_up_to
        in_progress = self._numbers - due
        if in_progress:
            covered = min(covered, in_progress.min() - 1)
        confirms = []
        below = due.rank(covered)
        if below:
            confirms.append(pb.PublishConfirm(last_number=due[below - 1], multiple=True))
            after = due.copy()
            after.remove_range(0, covered + 1)
            self._answered(due - after)
            due = after
        if self._may_wait(due, in_progress, now_s):
            urgent = due & self._urgent
            self._delay(due - urgent, now_s)
            due = urgent
        self._answered(due)
        confirms += [
            pb.PublishConfirm(first_number=first, last_number=last) for first, last in ranges(due)
        ]
        return confirms

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until `confirms` must be called again at the latest; None: no deadline."""
        return max(0.0, self._delayed_since_s + _DELAY_S - now_s) if self._delayed else None

    def _may_wait(self, due: BitMap64, in_progress: BitMap64, now_s: float) -> bool:
        """Whether numbers out of order may be confirmed later (P11)."""
        if not in_progress or len(due) <= _MOST_RANGES or len(due) >= self._most_delayed:
            return False
        if self._delayed:
            return now_s < self._delayed_since_s + _DELAY_S
        return len(ranges(due)) > _MOST_RANGES

    def _delay(self, numbers: BitMap64, now_s: float) -> None:
        if not self._delayed:
            self._delayed_since_s = now_s
        self._delayed = numbers

    def _answered(self, numbers: BitMap64) -> None:
        self._numbers -= numbers
        if self._delayed:
            self._delayed -= numbers
        if self._urgent:
            self._urgent -= numbers


def ranges(numbers: BitMap64) -> list[tuple[int, int]]:
    """The runs of consecutive numbers, both ends inclusive."""
    if not numbers:
        return []
    first, last = numbers.min(), numbers.max()
    if last - first + 1 == len(numbers):
        return [(first, last)]
    values = np.array(numbers.to_array())
    ends = np.flatnonzero(np.diff(values) > 1)
    firsts = values[np.concatenate(([0], ends + 1))]
    lasts = values[np.concatenate((ends, [len(values) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
