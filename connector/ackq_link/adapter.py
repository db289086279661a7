"""The interface of an adapter for a remote broker: deliver, settle, publish, and their limits.

A new adapter implements `Source` and `PublishTarget`, and nothing else; see `amqp091`. Invariant:
all data is columnar, and nothing outlives the connection it came on: a tag belongs to its
subscription, so no acknowledgement can leave on another channel (L12).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from ackq.errors import AckqError, InvalidArgumentError

MAX_PREFETCH: Final = 65_535
# Prefixes of the headers that the local broker adds to dead letters (C13), and to messages that are
# read again (S14).
BROKER_HEADERS: Final = ("ackq-dead-", "ackq-rewound")


class CutError(Exception):
    """A subscription or producer ended: its connection, channel or consumer ended (L17).

    Args:
        reason: The cause, in words without credentials.
        refusal: The error to raise when it happens at the start, because a retry cannot mend it: a
            queue that does not exist, a permission that is missing, a certificate.
        by_message: The remote broker closed because of a message, and would do so again.
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
    """Bounds of a source or target, from which the guarantee of its link is computed.

    Attributes:
        window_messages: Most messages that are delivered and not settled, or sent and unconfirmed.
        window_bytes: At this many payload bytes it takes no further messages.

    Raises:
        InvalidArgumentError: The window is out of range.
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
    """Limits of a remote queue on deliveries that are held (L14); None: not known.

    Attributes:
        kind: The broker's name for the type of the queue: `classic`, `quorum`, `anycast` ...; empty
            when not known.
        consumer_timeout_s: A delivery that is held for longer ends its consumer; 0: none does.
        delivery_limit: The number of deliveries after which a message is dropped or dead-lettered;
            0: no limit.
        requeue_counts: Whether `close(requeue=True)` counts as a delivery.
        dead_letters: Whether messages dropped for any reason go to another queue.
        rejected_again: Whether rejected messages are delivered again (L28).
        remedy: The command or setting that would make the queue keep dead letters, for an error.
        single_active: One consumer gets everything; the others wait until it has ended (L17).
        warnings: Problems that an operator of the remote broker should act on, a sentence or two
            each.
        notes: Facts that an operator should know.
        partial: Whether the broker did not report all that it can, as during a change of leader.
        assumed: Whether `delivery_limit` is the default of the broker's version.
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
    partial: bool = False
    assumed: bool = False

    def overridden(self, told: QueueLimits) -> QueueLimits:
        """These limits, overridden by the limits that the user has set (L14)."""
        names = ("consumer_timeout_s", "delivery_limit", "dead_letters")
        found = {name: getattr(told, name) for name in names}
        return replace(self, **{name: each for name, each in found.items() if each is not None})

    def beside(self, part: QueueLimits) -> QueueLimits:
        """These limits after a look that told only a part (L14, L28)."""
        base, other = (part, self) if self.partial and part.kind else (self, part)
        names = ("consumer_timeout_s", "dead_letters")
        told = {name: getattr(other, name) for name in names if getattr(base, name) is None}
        # A default is that of the version at the last look; a limit of the queue goes before it.
        newer = other is part or not other.assumed
        if base.delivery_limit is None or (
            base.assumed and newer and other.delivery_limit is not None
        ):
            told |= {"delivery_limit": other.delivery_limit, "assumed": other.assumed}
        found = replace(base, warnings=part.warnings, **told)
        return replace(found, dead_letters=False) if part.dead_letters is False else found


class Positions(NamedTuple):
    """The origin keys of rows by their positions at the remote broker (L30).

    Attributes:
        keys: 16 bytes a row.
        checks: 8 bytes a row.
    """

    keys: bytes
    checks: bytes

    def part(self, begin: int, end: int) -> Positions:
        """The keys of some rows."""
        return Positions(self.keys[16 * begin : 16 * end], self.checks[8 * begin : 8 * end])


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Deliveries in their order, as columns.

    Attributes:
        rows: Bodies and properties: columns of `ackq.wire.columns.PUBLISHABLE`.
        first_tag: The delivery tag of the first row, from 1; the others follow without a gap.
        redelivered: Per row, whether the remote broker marked it redelivered.
        payload_bytes: Sum of the sizes of the bodies.
        delivery_counts: Per row, the earlier deliveries, where the broker reports them (L16).
        positions: The rows' origin keys, where the broker numbers its messages for good (L30).
        lasting: The rows without what another delivery of the same message would change (L3); None:
            they have nothing of the kind.
        unmarked: Whether messages that the link gave back come without a mark, before all others.
        unsettled: Whether redeliveries of what an older connection had may still follow (L10).
    """

    rows: pa.RecordBatch
    first_tag: int
    redelivered: Sequence[bool]
    payload_bytes: int
    delivery_counts: Sequence[int] = ()
    positions: Positions | None = None
    lasting: pa.RecordBatch | None = None
    unmarked: bool = False
    unsettled: bool = False

    @property
    def last_tag(self) -> int:
        """The delivery tag of the last row."""
        rows: int = self.rows.num_rows
        return self.first_tag + rows - 1


@dataclass(frozen=True, slots=True)
class Remaining:
    """The state of a remote queue, queried by its consumer through the channel it consumes on.

    Attributes:
        ready: The number of messages that no consumer has.
        consumers: The number of consumers, including the one that asks.
        last_tag: The tag of the last delivery that came before the answer; 0: none.
    """

    ready: int
    consumers: int
    last_tag: int


class SourceSubscription(Protocol):
    """One consumer of a remote queue, on one connection.

    Attributes:
        last_tag: The tag of the last delivery that has come; 0: none.
    """

    last_tag: int

    async def deliver(self) -> Deliveries:
        """The deliveries that have come, at least one row; waits for the first. Raises CutError."""
        ...

    def settle(self, first_tag: int, last_tag: int) -> None:
        """Acknowledges the deliveries of a range of tags, soon and in the order of the calls.

        Each tag once; does nothing when the connection has ended.
        """
        ...

    @property
    def proven(self) -> int:
        """The number of deliveries, in the order of settlement, proven to be settled (L10).

        Proven by an answer of the remote broker, or by its later deliveries: it never falls.
        """
        ...

    def reject(self, first_tag: int, last_tag: int) -> None:
        """Rejects deliveries at the remote broker, whose dead-letter policy applies (L28).

        As `settle`, and in one order with its calls.
        """
        ...

    def set_aside(self, tag: int) -> None:
        """Leaves a delivery unacknowledged until the subscription ends, outside its window."""
        ...

    @property
    def window_messages(self) -> int:
        """Most messages that may be delivered and not settled now, at most the source's window.

        0: messages set aside keep all others from being delivered.
        """
        ...

    async def remaining(self) -> Remaining | None:
        """The remaining messages and the consumers of the queue (L18).

        None: the broker does not report them, or may not have noticed yet that an earlier
        connection of the link has ended. The answer comes after all deliveries that the queue had
        sent before the previous call.
        """
        ...

    async def close(self, *, requeue: bool = False) -> None:
        """Sends the pending acknowledgements, and ends; never raises.

        Args:
            requeue: Give back held deliveries in a way that does not count as a delivery, if the
                broker has one (L15).
        """
        ...


class Source(Protocol):
    """A queue of a remote broker to consume from."""

    @property
    def limits(self) -> Limits:
        """The bounds of the source's window."""
        ...

    @property
    def identity(self) -> str:
        """The protocol, host, port and queue, without credentials: the same at each start (L1)."""
        ...

    async def learn(self) -> QueueLimits:
        """Learns the limits of the remote queue on held deliveries (L14). Raises CutError."""
        ...

    async def subscribe(self) -> SourceSubscription:
        """Connects and starts to consume. Raises CutError."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """The outcomes of published rows.

    Attributes:
        confirmed: The rows that the remote broker confirmed, by their index in the batch.
        refused: Rows that it returned or nacked, and may take later, with the reasons.
        unfit: Rows that the protocol or this broker can never carry, with the reasons.
        cut: Set when the connection ended; rows that are in none of the above are in doubt.
    """

    confirmed: Sequence[int]
    refused: Mapping[int, str] = field(default_factory=dict)
    unfit: Mapping[int, str] = field(default_factory=dict)
    cut: CutError | None = None

    @property
    def answered(self) -> int:
        """The number of rows that have an answer, and so are not in doubt."""
        return len(self.confirmed) + len(self.refused) + len(self.unfit)


class Producer(Protocol):
    """One publishing connection to a remote broker."""

    async def publish(self, rows: pa.RecordBatch) -> PublishedRows:
        """Publishes rows in order and waits for their answers; several calls may be in flight."""
        ...

    @property
    def blocked(self) -> str:
        """Why the remote broker takes no messages now, in its words; empty: it takes them."""
        ...

    async def close(self) -> None:
        """Ends the connection; never raises."""
        ...


class PublishTarget(Protocol):
    """A queue or exchange of a remote broker to publish to."""

    @property
    def limits(self) -> Limits:
        """The bounds of the target's window."""
        ...

    @property
    def identity(self) -> str:
        """The URL, and the queue or exchange, for operators: without credentials."""
        ...

    async def connect(self) -> Producer:
        """Opens a publishing connection. Raises CutError."""
        ...


def message_ids(rows: pa.RecordBatch) -> list[str]:
    """The message id of each row.

    The edge gives each message one (L23); where an edge of an older version does not, the id is a
    random one at each try.
    """
    ids = (
        rows.column("message_id").to_pylist()
        if "message_id" in rows.schema.names
        else [None] * rows.num_rows
    )
    return [each or f"ackq:{uuid.uuid4().hex}" for each in ids]
