"""The history of one message in one queue: what clients did with it and observed, and when.

An operation takes effect at one instant between its call and its return. An operation without an
answer never returns, and may have had no effect; a refused one is no operation. An observation (a
delivery, a place at the end) is an operation that must have taken effect by then.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 60


class Hold(NamedTuple):
    """The holder of an unacked message: a channel under a tag, or a lease (`tag` is its end)."""

    owner: object
    tag: int


class Rewind(NamedTuple):
    """A rewind of a session (S14).

    Attributes:
        owner: The incarnation whose batches it names; `after_tag`: the tag before the first.
        called: An instant before it; batches read later may be included.
        retains: Whether the session certainly retains its batches; None: not known.
        alone: It is an opening, and nothing else may have ended the incarnation.
    """

    owner: str
    after_tag: int
    called: int
    retains: bool | None
    alone: bool = False


@dataclass(eq=False, slots=True)
class Operation:
    """An operation of a client, or its observation, on one message.

    Attributes:
        kind: A method of `judge.Judge`.
        call: Instant of the request.
        ret: Instant of the answer; `NEVER` without one.
        must: Whether it certainly took effect; otherwise it may have.
        what: The details that its kind needs.
    """

    kind: str
    call: int
    ret: int = NEVER
    must: bool = False
    what: object = None

    def done(self, instant):
        """Marks the operation as answered and done."""
        self.ret, self.must = instant, True

    def __str__(self):
        until = "?" if self.ret == NEVER else self.ret
        return f"{self.kind}{'' if self.must else '?'}[{self.call}..{until}]{_text(self.what)}"


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The properties of a queue that decide what becomes of its messages.

    Attributes:
        name: Of the queue.
        durable: It survives a restart.
        dead: Its dead-letter queue; "" for none.
        limit: FAILED deliveries allowed; 0: no limit.
        delay_ms: First redelivery delay.
        max_length: Bound on its length; 0: none.
        loose: Consumers without acks take from it (C10).
        retains: It retains what channels accept (S13), for longer than a world lasts.
        gives_way: What it retains may end sooner.
    """

    name: str
    durable: bool = True
    dead: str = ""
    limit: int = 0
    delay_ms: int = 0
    max_length: int = 0
    loose: bool = False
    retains: bool = False
    gives_way: bool = False


@dataclass(eq=False, slots=True)
class Message:
    """A message that was published to a queue.

    Attributes:
        name: Unique among all that were published.
        body: As published.
        queue: The queue.
        order: (publisher, number): in a queue, messages of one publisher stand in this order; None
            when no order is promised.
        persistent: Its mode.
        ttl_ms: Its time to live; 0: none.
        put: Its publish; None when it was refused for good, and is in no queue.
        operations: All its other operations.
        group: Messages that are placed all or none.
        foreign: It came from a remote broker, and may be a dead letter there instead (L28).
    """

    name: str
    body: bytes
    queue: QueueRules
    order: tuple | None = None
    persistent: bool = True
    ttl_ms: int = 0
    put: Operation | None = None
    operations: list[Operation] = field(default_factory=list)
    group: object = None
    foreign: bool = False

    @property
    def survives(self):
        """Whether the message survives a restart (Q7)."""
        return self.persistent and self.queue.durable

    def __str__(self):
        put = [self.put] if self.put is not None else []
        told = sorted([*put, *self.operations], key=lambda each: (each.ret, each.call))
        mode = "" if self.survives else " (transient)"
        return f"{self.name} of {self.queue.name}{mode}: {' '.join(map(str, told))}"


def _text(what):
    if what is None:
        return ""
    if isinstance(what, Hold):
        return f"({what.owner} tag {what.tag})"
    if isinstance(what, tuple):
        return f"({', '.join(str(each) for each in what)})"
    return f"({what})"
