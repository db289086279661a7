"""Which publishes of a stream have no answer yet, and how few confirms answer them (P2, P3, P9).

Invariant: a cumulative confirm never covers a number that this stream has not received: numbers
below the client's lowest unanswered one count as received.
"""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap64

from ackq.v1 import publishing_pb2 as pb


class Unanswered:
    """The numbers of one publish stream between their arrival and their answer."""

    def __init__(self) -> None:
        self._numbers = BitMap64()
        # Everything up to here arrived on this stream or was answered on an earlier one.
        self._received_up_to = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def received(self, first: int, last: int, lowest_unanswered: int) -> None:
        """The numbers first..last arrived with a frame that carried `lowest_unanswered` (P10)."""
        self._numbers.add_range(first, last + 1)
        self._received_up_to = max(self._received_up_to, lowest_unanswered - 1)
        if first <= self._received_up_to + 1:
            self._received_up_to = max(self._received_up_to, last)

    def refused(self, numbers: BitMap64) -> None:
        """The numbers are answered by nacks."""
        self._numbers -= numbers

    def confirms(self, numbers: BitMap64) -> list[pb.PublishConfirm]:
        """The confirms of these numbers; those that have their answer already are left out (P3)."""
        due = numbers & self._numbers
        if not due:
            return []
        self._numbers -= due
        covered = self._received_up_to
        if self._numbers:
            covered = min(covered, self._numbers.min() - 1)
        confirms = []
        below = due.rank(covered)
        if below:
            confirms.append(pb.PublishConfirm(last_number=due[below - 1], multiple=True))
            due.remove_range(0, covered + 1)
        confirms += [
            pb.PublishConfirm(first_number=first, last_number=last) for first, last in ranges(due)
        ]
        return confirms


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
