"""What a link needs of another broker: deliver, settle, publish, and the limits of all three.

The one interface of an adapter: a new one implements `Source` and `PublishTarget`, and no more; see
`amqp091`. Invariant: everything is columnar, and nothing outlives the connection it came on: a tag
belongs to its subscription, so no acknowledgement can leave on another channel (L12).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa

from ackq.errors import AckqError, InvalidArgumentError

MAX_PREFETCH: Final = 65_535


class CutError(Exception):
    """A subscription or producer that is no more: connection, channel or consumer ended (L17).

    Args:
        reason: What ended it, in words without credentials.
        refusal: The error it is when it happens at the start, where nothing is to be waited for: a
            queue that does not exist, a permission that is missing, a certificate.
        by_message: The other broker closed because of what was sent, and would do so again.
    """

    def __init__(
        self, reason: str, refusal: AckqError | None = None, *, by_message: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refusal = refusal
        self.by_message = by_message


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a source or target, which the guarantee of its link is computed from.

    Attributes:
        window_messages: Most messages that are delivered and not settled, or sent and unconfirmed.
        window_bytes: At this many payload bytes it takes no more.

    Raises:
        InvalidArgumentError: The window is none that a link has.
    """

    window_messages: int
    window_bytes: int

    def __post_init__(self) -> None:
        if not 1 <= self.window_messages <= MAX_PREFETCH:
            raise InvalidArgumentError(
                f"The prefetch is {self.window_messages}; give one from 1 to {MAX_PREFETCH}. (0"
                " does not mean unlimited: a quorum queue of RabbitMQ takes it for 2000.)"
            )


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What the other broker does to deliveries that are held (L14); None: not known.

    Attributes:
        kind: What it calls the queue: `classic`, `quorum`, `anycast` ...; empty when not known.
        consumer_timeout_s: A delivery that is held for longer ends its consumer; 0: none does.
        delivery_limit: A message is dropped or dead-lettered at so many deliveries; 0: never.
        requeue_counts: Whether `close(requeue=True)` does.
        dead_letters: Whether what is dropped for any reason goes to another queue.
        rejected_again: Whether what is rejected is delivered again (L28).
        remedy: The command that would set a limit right, for an error.
        single_active: One consumer gets everything; the others wait until it is gone (L17).
        warnings: What an operator there is to do something about, a sentence or two each.
        notes: What an operator is to know.
    """

    kind: str = ""
    consumer_timeout_s: float | None = None
    delivery_limit: int | None = None
    requeue_counts: bool = True
    dead_letters: bool | None = None
    rejected_again: bool = False
    remedy: str = ""
    single_active: bool = False
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def overridden(self, told: QueueLimits) -> QueueLimits:
        """These limits, but those that the user has set (L14)."""
        names = ("consumer_timeout_s", "delivery_limit", "dead_letters")
        found = {name: getattr(told, name) for name in names}
        return replace(self, **{name: each for name, each in found.items() if each is not None})


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Deliveries in their order, as columns.

    Attributes:
        rows: Bodies and properties: columns of `ackq.wire.columns.PUBLISHABLE`, without anything
            that another delivery of the same message would change (L3).
        first_tag: The delivery tag of the first row, from 1; the others follow without a gap.
        redelivered: Per row, what the other broker says.
        payload_bytes: Sum of the bodies.
        delivery_counts: Per row, how often it was delivered before, where that is told (L16).
    """

    rows: pa.RecordBatch
    first_tag: int
    redelivered: Sequence[bool]
    payload_bytes: int
    delivery_counts: Sequence[int] = ()

    @property
    def last_tag(self) -> int:
        """The delivery tag of the last row."""
        rows: int = self.rows.num_rows
        return self.first_tag + rows - 1


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a queue there has, as its consumer asked through the channel that it consumes on.

    Attributes:
        ready: Messages that no consumer has.
        consumers: How many it has, the one that asks included.
        last_tag: The tag of the last delivery that came before the answer; 0: none.
    """

    ready: int
    consumers: int
    last_tag: int


class SourceSubscription(Protocol):
    """One consumer on one connection."""

    async def deliver(self) -> Deliveries:
        """Everything that came, at least one row; waits for it. Raises CutError."""
        ...

    def settle(self, first_tag: int, last_tag: int) -> None:
        """Acknowledges the deliveries of a range of tags, soon and in the order of the calls.

        Each tag once; nothing when the connection is gone.
        """
        ...

    @property
    def proven(self) -> int:
        """How many deliveries, in the order they were settled in, are proven to be settled (L10).

        By an answer of the other broker, or by what it delivered since: it never falls.
        """
        ...

    def reject(self, first_tag: int, last_tag: int) -> None:
        """Rejects deliveries there, where its dead-letter policy applies (L28).

        As `settle`, in one order with it.
        """
        ...

    def set_aside(self, tag: int) -> None:
        """Leaves a delivery unacknowledged until the subscription ends, outside of its window."""
        ...

    async def remaining(self) -> Remaining | None:
        """What the queue has left (L18).

        None: the broker does not tell, or may not have noticed yet that an earlier connection of
        the link is gone. What it answers is behind all that the queue had sent before the call
        before it.
        """
        ...

    async def close(self, *, requeue: bool = False) -> None:
        """Sends the acknowledgements that were asked for, and ends; never raises.

        Args:
            requeue: Give back what is held in a way that costs it no life, if there is one (L15).
        """
        ...


class Source(Protocol):
    """A queue of another broker to consume from."""

    @property
    def limits(self) -> Limits:
        """Its window."""
        ...

    @property
    def identity(self) -> str:
        """The protocol, host, port and queue, without credentials: the same at each start (L1)."""
        ...

    async def learn(self) -> QueueLimits:
        """What the other broker does to deliveries that are held (L14). Raises CutError."""
        ...

    async def subscribe(self) -> SourceSubscription:
        """Connects and starts to consume. Raises CutError."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """What became of rows that were published.

    Attributes:
        confirmed: The rows that the other broker has, by their number in the batch.
        refused: Why it has not taken others, and may take them later: returned, or nacked.
        unfit: Why it never takes others: what the protocol, or this broker, cannot carry.
        cut: Set when the connection ended; rows that are in none of the above are in doubt.
    """

    confirmed: Sequence[int]
    refused: Mapping[int, str] = field(default_factory=dict)
    unfit: Mapping[int, str] = field(default_factory=dict)
    cut: CutError | None = None

    @property
    def answered(self) -> int:
        """How many rows are not in doubt."""
        return len(self.confirmed) + len(self.refused) + len(self.unfit)


class Producer(Protocol):
    """One publishing connection."""

    async def publish(self, rows: pa.RecordBatch) -> PublishedRows:
        """Publishes rows in order and waits for their answers; several calls may be under way."""
        ...

    @property
    def blocked(self) -> str:
        """Why the other broker takes nothing now, in its words; empty: it does."""
        ...

    async def close(self) -> None:
        """Ends; never raises."""
        ...


class PublishTarget(Protocol):
    """A queue or exchange of another broker to publish to."""

    @property
    def limits(self) -> Limits:
        """Its window."""
        ...

    @property
    def identity(self) -> str:
        """The URL, and the queue or exchange, for operators: without credentials."""
        ...

    async def connect(self) -> Producer:
        """Connects. Raises CutError."""
        ...


def message_ids(rows: pa.RecordBatch) -> list[str]:
    """The id of each row.

    The edge gives each message one (L23); for one of a version that does not, it is a random one at
    each try.
    """
    ids = (
        rows.column("message_id").to_pylist()
        if "message_id" in rows.schema.names
        else [None] * rows.num_rows
    )
    return [each or f"ackq:{uuid.uuid4().hex}" for each in ids]
