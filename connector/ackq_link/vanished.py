"""Held messages that the other broker has no more, as far as a link sees (L18).

Nobody tells a consumer that a message it held was removed meanwhile: it does not come again, and
neither does one that is late. Invariant: a message counts only once the other broker has nothing
more that it might deliver again: nobody but the link consumes there, and what was delivered since
came either behind all that was given back, or from a queue that was empty.
"""

from __future__ import annotations

from ackq_link.adapter import Deliveries, Remaining
from ackq_link.edge.deliveries import StoredDeliveries


class VanishedCount:
    """How many messages vanished, over the subscriptions of a process.

    Attributes:
        total: So many; it grows only.
    """

    def __init__(self) -> None:
        self.total = 0
        # Of those that are missing, at most so many were counted before.
        self._counted = 0

    def missing(self, messages: int) -> int:
        """So many held messages did not come again, and will not; returns how many are new."""
        new = max(0, messages - self._counted)
        self._counted = messages
        self.total += new
        return new


class Redelivery:
    """What a subscription is delivered again, and whether all of it has come.

    A look is asked through the consumer's own channel. What the queue had sent to it before one
    look has come by the next: so of two looks, at both of which nobody else consumes, the first is
    an instant there, and the second a number here: what has a higher one was sent behind it.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._empty = False
        self._behind: int | None = None
        self._complete: int | None = None
        self._stored = 0

    @property
    def looking(self) -> bool:
        """Whether another look would tell more."""
        return self._behind is None and self._complete is None

    @property
    def complete(self) -> bool:
        """Whether everything that was to come again has come, and is stored."""
        return self._complete is not None and self._stored >= self._complete

    def looked(self, found: Remaining | None) -> None:
        """What is left there; None: it is not told."""
        if found is None or found.consumers != 1:
            # Another consumer may hold what was given back, and give it back in turn.
            self._looks, self._empty = 0, False
            return
        self._looks += 1
        if self._looks == 1:
            self._empty = found.ready == 0
        elif self._empty:
            self._complete = found.last_tag
        else:
            self._behind = found.last_tag

    def stored(self, deliveries: Deliveries, answer: StoredDeliveries) -> None:
        """A batch is stored, or matched; batches are in their order.

        A message that is new to both brokers comes behind all that was given back.
        """
        self._stored = deliveries.last_tag
        if self._behind is None or self._complete is not None:
            return
        for run in answer.runs:
            for number in range(run.first_number, run.first_number + run.rows):
                again = deliveries.redelivered[number - deliveries.first_tag]
                if number > self._behind and not (run.matched or again):
                    self._complete = number
                    return
