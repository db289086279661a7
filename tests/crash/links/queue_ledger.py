"""The ledger of one RabbitMQ queue: messages published, and accepted from the local broker."""

import random
from collections import Counter
from typing import NamedTuple

SESSION, SPARK = "session", "spark"


class Combination(NamedTuple):
    """A queue, its link, and the kind of its consumer at the local broker."""

    kind: str  # classic, quorum
    content: str  # ids, unique, identical
    ack: str  # settled, stored
    consumer: str = SESSION

    @property
    def name(self):
        """The name of the queues on both sides, and of the link."""
        return "-".join(self[:3] if self.consumer == SESSION else self)


class Verdict(NamedTuple):
    """The verdict of a ledger.

    Attributes:
        published: Confirmed messages; `unknown`: messages sent without an answer.
        allowed: Doubles that the rules allow: none with ids.
    """

    published: int
    unknown: int
    accepted: int
    lost: int
    doubled: int
    allowed: int
    strange: int

    @property
    def wrong(self):
        """Whether messages are lost, strange, or doubled more than is allowed."""
        return bool(self.lost or self.strange or self.doubled > self.allowed)


def body_of(number):
    """The body of a message: mostly its number alone, up to 1 MiB."""
    (size,) = random.Random(number).choices((0, 100, 10_000, 1 << 20), (70, 20, 9, 1))
    return b"body %d " % number + b"x" * size


class QueueLedger:
    """The ledger of one combination; its publisher and its consumer have a thread each."""

    def __init__(self, combination):
        self.combination = combination
        self.confirmed = []
        self.unknown = []
        self._next = 0

    def next(self):
        """The number of the next message, its id (None: it has none), and its body."""
        number, self._next = self._next, self._next + 1
        body = b"same" if self.combination.content == "identical" else body_of(number)
        return number, str(number) if self.combination.content == "ids" else None, body

    @property
    def sent(self):
        """The highest possible number of messages."""
        return self._next

    def verdict(self, rows, ambiguous):
        """The verdict on these rows, (message_id, body) of everything accepted.

        Args:
            rows: The rows.
            ambiguous: Messages that were stored though they may have been acknowledged (L7).
        """
        identical = self.combination.content == "identical"
        allowed = 0 if self.combination.content == "ids" else ambiguous
        if identical:
            count, strange = len(rows), sum(body != b"same" for _, body in rows)
            lost = max(0, len(self.confirmed) - count)
            doubled = max(0, count - len(self.confirmed) - len(self.unknown))
        else:
            times = Counter(int(body.split()[1]) for _, body in rows)
            known = {*self.confirmed, *self.unknown}
            lost = len(set(self.confirmed) - set(times))
            doubled = sum(times.values()) - len(times)
            strange = len(set(times) - known)
            strange += sum(body != body_of(int(body.split()[1])) for _, body in rows)
            if self.combination.content == "ids":
                strange += sum(body != body_of(int(name)) for name, body in rows)
        return Verdict(
            len(self.confirmed), len(self.unknown), len(rows), lost, doubled, allowed, strange
        )
