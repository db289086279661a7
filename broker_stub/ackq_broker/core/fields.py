"""Fields of records that several kinds share, and of the state: positions, routes, outcomes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from pyroaring import BitMap, BitMap64

from ackq.outcomes import Disposition, Outcome


class Field(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of the parts of a record."""


class Expiry(NamedTuple):
    """Expiry instant of some rows of a block (Q3), by the broker's clock at ingest.

    `rows` are rows of the block, None means every row; a row is in at most one expiry of a command.
    """

    expires_us: int
    rows: BitMap | None = None


class QueueProperties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Properties of a queue, as in `ackq.v1.QueueProperties`; 0 and "" mean none.

    `overflow` is "reject-publish" or "drop-head".
    """

    durable: bool = True
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "reject-publish"
    message_ttl_ms: int = 0
    expires_ms: int = 0
    delivery_limit: int = 0
    dead_letter_queue: str = ""
    redelivery_delay_ms: int = 0
    redelivery_delay_max_ms: int = 0
    drop_on_limit: bool = False
    retain_ms: int = 0


class RoutedRows(Field, frozen=True):
    """Rows of a block that are routed to one queue.

    `first_position` is set when the rows become visible in the record itself, and is 0 for staged
    rows. `rows` lists the block's rows unless they are consecutive from `start`. The expiries are
    the ones that the messages came with; the queue's own TTL is added when the rows are placed. A
    restart removes the `transient` rows, though the bytes of their block stay.
    """

    queue_id: int
    first_position: int
    count: int
    payload_bytes: int
    start: int
    rows: BitMap | None = None
    expiries: tuple[Expiry, ...] = ()
    transient: BitMap | None = None


class Unroutable(Field, frozen=True):
    """Publish numbers of mandatory messages to one exchange that matched no queue (P7)."""

    exchange: str
    numbers: BitMap64


class Drop(Field, frozen=True):
    """Messages dropped from the head of an overflowing queue: its lowest ready positions (Q3).

    The first `after` ready messages are spared, because consumers had room for them.
    """

    queue_id: int
    messages: int
    after: int = 0


class Move(Field, frozen=True):
    """Positions of one queue that move to the tail of another as new positions (C13, Q6).

    The blocks are not copied. `cause` is a value of `dead_letters.Cause`; `reason` is the reason of
    the settlement, or else the cause. `session` and `batch_id` name the session that settled the
    messages and its batch, if any.
    """

    queue_id: int
    positions: BitMap64
    target_id: int
    cause: str
    reason: str = ""
    session: str = ""
    batch_id: int = -1


class Delay(Field, frozen=True):
    """Positions of one queue that are requeued with a delay, and ready from `until_us` on (C14)."""

    queue_id: int
    positions: BitMap64
    until_us: int


class RejectedThere(Field, frozen=True):
    """Positions that leave their queue and are to be rejected at the remote broker (L28).

    `cause` is a value of `dead_letters.Cause`.
    """

    queue_id: int
    positions: BitMap64
    cause: str


class DueMessages(Field, frozen=True):
    """Due positions of one queue: `expired` by TTL (Q3), `matured` when their delay ended (C14)."""

    queue_id: int
    expired: BitMap64
    matured: BitMap64


class Holder(Field, frozen=True):
    """Holder of a session or a link, and since when it holds it (S3)."""

    token: bytes
    host: str
    pid: int
    application: str
    since_us: int


class QueuePositions(Field, frozen=True):
    """Positions of one queue; in a lease, their tags follow the tags of the previous entry."""

    queue_id: int
    positions: BitMap64


class Hole(Field, frozen=True):
    """Tags of a lease that no longer have a message, and why: a value of `queue.Gone` (S5)."""

    reason: str
    tags: BitMap64


class Rewound(Field, frozen=True):
    """Positions of a queue that a batch had accepted (S14); -1 where the batch is not known."""

    queue_id: int
    positions: BitMap64
    batch_id: int


class TagOutcome(Field, frozen=True):
    """Tags of a lease that get the same disposition when the lease is accepted (S6).

    `outcome` is a value of `ackq.outcomes.Outcome`; with `delay_ms` 0 the delay of C14 applies.
    Rejected messages without a dead-letter queue are dropped only with `discard`.
    """

    outcome: str
    tags: BitMap64
    reason: str = ""
    delay_ms: int = 0
    discard: bool = False

    @property
    def disposition(self) -> Disposition:
        """The disposition of the tags."""
        return Disposition(Outcome(self.outcome), self.reason, self.delay_ms)

    @classmethod
    def of(cls, disposition: Disposition, tags: BitMap64, *, discard: bool = False) -> TagOutcome:
        """Builds the entry of some tags from their disposition."""
        outcome, reason, delay_ms = disposition
        return cls(outcome.value, tags, reason, delay_ms, discard)
