"""What a channel remembers for a client that was cut and asks again (C11, C15).

Invariant: what was done once under a number is answered from here and not done twice, until the
client is known to have its answer: a transport ack of a later frame of the same stream says so. A
frame of a later stream says nothing of answers that were lost with an earlier one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from ackq import limits
from ackq.v1 import consuming_pb2 as pb

# Far over what a client leaves without an answer.
_ANSWERS: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class _Answers(Generic[V]):
    """What was answered under the numbers of one kind of request."""

    def __init__(self) -> None:
        # Given on the present stream: which of all answers it was, and what it said.
        self._given: OrderedDict[int, tuple[int, V]] = OrderedDict()
        # Given on streams that were cut: until it is asked for again, or newer ones are too many.
        self._lost: OrderedDict[int, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._given) + len(self._lost)

    def give(self, number: int, answer: int, said: V) -> None:
        """An answer goes out, for the first time or again."""
        self._lost.pop(number, None)
        _keep(self._given, number, (answer, said), _ANSWERS)

    def find(self, number: int) -> V | None:
        """What was answered; None when it is not known."""
        given = self._given.get(number)
        return given[1] if given is not None else self._lost.get(number)

    def arrived(self, answers: int) -> None:
        """The client has those of the present stream up to one."""
        while self._given and next(iter(self._given.values()))[0] <= answers:
            self._given.popitem(last=False)

    def cut(self) -> None:
        """The stream ended, and they may not have arrived."""
        for number, (_, said) in self._given.items():
            _keep(self._lost, number, said, _ANSWERS)
        self._given.clear()


class ChannelMemory:
    """Answers by number.

    Attributes:
        answers: How many were given ever.
        cancelled: What was said of each consumer that the broker ended.
    """

    def __init__(self) -> None:
        self.answers = 0
        self.cancelled: OrderedDict[str, pb.ConsumeHeader] = OrderedDict()
        self._settled = _Answers[int]()
        self._pulled = _Answers[bool]()

    def settle(self, number: int, messages: int) -> None:
        """A settlement was answered."""
        self.answers += 1
        self._settled.give(number, self.answers, messages)

    def settled(self, number: int) -> int:
        """The messages of a settlement that was answered; 0 when it is not known."""
        return self._settled.find(number) or 0

    def pull(self, number: int, *, found_fewer: bool) -> None:
        """A pull ended; one without a number has no answer to remember."""
        if number:
            self.answers += 1
            self._pulled.give(number, self.answers, found_fewer)

    def pulled(self, number: int) -> bool | None:
        """Whether a pull that ended found fewer than asked; None when it is not known."""
        return self._pulled.find(number)

    def cancel(self, consumer: str, header: pb.ConsumeHeader) -> None:
        """A consumer was ended from the broker's side."""
        _keep(self.cancelled, consumer, header, limits.MAX_CONSUMERS_PER_CHANNEL)

    def arrived(self, answers: int) -> None:
        """The client has the first so many of all answers, where the present stream gave them."""
        self._settled.arrived(answers)
        self._pulled.arrived(answers)

    def cut(self) -> None:
        """The stream ended: answers that are not known to have arrived may be asked for again."""
        self._settled.cut()
        self._pulled.cut()


def _keep(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
