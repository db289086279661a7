"""What a channel remembers for a client that was cut and asks again (C11, C15).

Invariant: what was done once under a number is answered from here and not done twice, until the
client is known to have its answer: a transport ack of a later frame of the same stream says so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from ackq import limits
from ackq.v1 import consuming_pb2 as pb

# Far over what a client leaves without an answer.
_ANSWERS: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class ChannelMemory:
    """Answers by number.

    Attributes:
        answers: How many were remembered ever.
        cancelled: What was said of each consumer that the broker ended.
    """

    def __init__(self) -> None:
        self.answers = 0
        self.cancelled: OrderedDict[str, pb.ConsumeHeader] = OrderedDict()
        # By number: which answer it was, and what it said.
        self._settled: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._pulled: OrderedDict[int, tuple[int, bool]] = OrderedDict()

    def settle(self, number: int, messages: int) -> None:
        """A settlement was answered."""
        self.answers += 1
        _keep(self._settled, number, (self.answers, messages), _ANSWERS)

    def settled(self, number: int) -> int:
        """The messages of a settlement that was answered; 0 when it is not known."""
        return self._settled.get(number, (0, 0))[1]

    def pull(self, number: int, *, found_fewer: bool) -> None:
        """A pull ended; one without a number has no answer to remember."""
        if number:
            self.answers += 1
            _keep(self._pulled, number, (self.answers, found_fewer), _ANSWERS)

    def pulled(self, number: int) -> bool | None:
        """Whether a pull that ended found fewer than asked; None when it is not known."""
        known = self._pulled.get(number)
        return known[1] if known is not None else None

    def cancel(self, consumer: str, header: pb.ConsumeHeader) -> None:
        """A consumer was ended from the broker's side."""
        _keep(self.cancelled, consumer, header, limits.MAX_CONSUMERS_PER_CHANNEL)

    def arrived(self, answers: int) -> None:
        """The client has the first so many of all answers."""
        for known in (self._settled, self._pulled):
            while known and next(iter(known.values()))[0] <= answers:
                known.popitem(last=False)


def _keep(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
