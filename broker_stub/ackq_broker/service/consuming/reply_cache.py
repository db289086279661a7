"""Reply cache of a channel: makes requests repeated after a reconnect idempotent (C11, C15).

Invariant: a request already executed under a number is answered from this cache and not executed
twice, until the client is known to have its answer: a transport ack of a later frame of the same
stream proves it. A frame of a later stream proves nothing about answers that an earlier stream
lost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from ackq import limits
from ackq.v1 import consuming_pb2 as pb

# Far above the number of requests that a client has without an answer.
_ANSWERS: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class _ReplyCache(Generic[V]):
    """The answers to one kind of request, by the request's number."""

    def __init__(self) -> None:
        # Answered on the present stream: the answer's ordinal among all answers, and the answer.
        self._given: OrderedDict[int, tuple[int, V]] = OrderedDict()
        # Answered on earlier streams: kept until requested again or evicted by newer answers.
        self._lost: OrderedDict[int, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._given) + len(self._lost)

    def add(self, number: int, answer: int, reply: V) -> None:
        """Caches an answer that is sent for the first time or again."""
        self._lost.pop(number, None)
        _keep(self._given, number, (answer, reply), _ANSWERS)

    def find(self, number: int) -> V | None:
        """The cached answer to a request; None if there is none."""
        given = self._given.get(number)
        return given[1] if given is not None else self._lost.get(number)

    def acknowledged(self, answers: int) -> None:
        """Evicts the present stream's answers up to an ordinal that the client has received."""
        while self._given and next(iter(self._given.values()))[0] <= answers:
            self._given.popitem(last=False)

    def disconnect(self) -> None:
        """Keeps the answers of the ended stream, which may not have arrived."""
        for number, (_, reply) in self._given.items():
            _keep(self._lost, number, reply, _ANSWERS)
        self._given.clear()


class ReplyCache:
    """The answers of a channel, by kind and number of their requests.

    Attributes:
        answers: The number of answers ever given.
        cancelled: The notice of each consumer that the broker cancelled, by name.
    """

    def __init__(self) -> None:
        self.answers = 0
        self.cancelled: OrderedDict[str, pb.ConsumeHeader] = OrderedDict()
        self._settled = _ReplyCache[int]()
        self._pulled = _ReplyCache[bool]()

    def add_settled(self, number: int, messages: int) -> None:
        """Caches the answer to a settlement."""
        self.answers += 1
        self._settled.add(number, self.answers, messages)

    def find_settled(self, number: int) -> int:
        """The number of messages of an answered settlement; 0 if it is not known."""
        return self._settled.find(number) or 0

    def add_pulled(self, number: int, *, found_fewer: bool) -> None:
        """Caches the answer to a pull; a pull without a number has no answer."""
        if number:
            self.answers += 1
            self._pulled.add(number, self.answers, found_fewer)

    def find_pulled(self, number: int) -> bool | None:
        """Whether an ended pull found fewer messages than asked; None if it is not known."""
        return self._pulled.find(number)

    def add_cancelled(self, consumer: str, header: pb.ConsumeHeader) -> None:
        """Caches the cancel notice of a consumer that the broker cancelled."""
        _keep(self.cancelled, consumer, header, limits.MAX_CONSUMERS_PER_CHANNEL)

    def acknowledged(self, answers: int) -> None:
        """Evicts the present stream's answers that are among the first `answers` answers."""
        self._settled.acknowledged(answers)
        self._pulled.acknowledged(answers)

    def disconnect(self) -> None:
        """Keeps the answers of the ended stream: the client may repeat their requests."""
        self._settled.disconnect()
        self._pulled.disconnect()


def _keep(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
