"""Field types of records: parts of commands, records and state that all of them share.

A field is a msgpack array: as with records, its fields may be appended to, with defaults, and their
order never changes. `QueueProperties` is a map: its field names never change.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from pyroaring import BitMap, BitMap64

from ackq.outcomes import Disposition, Outcome


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A change of state: the base of `records`."""


class Field(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a record."""


class Expiry(NamedTuple):
    """When messages expire (Q3), by the broker's clock at ingest.

    `rows` are rows of the block, None means every row; a row is in one expiry of a command at most.
    """

    expires_us: int
    rows: BitMap | None = None


class QueueProperties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As `ackq.v1.QueueProperties`; 0 and "" mean none.

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


class RoutedRows(Field, frozen=True):
    """The rows of a block that go to one queue.

    `first_position` is given when the rows become visible in the record itself, and is 0 for staged
    rows. `rows` lists the block's rows unless they are consecutive from `start`. The expiries are
    those that the messages came with; the queue's own TTL is added when they are placed. The
    `transient` rows go with a restart, though the bytes of their block stay.
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
    """The numbers of mandatory publishes to one exchange that no queue wanted (P7)."""

    exchange: str
    numbers: BitMap64


class Drop(Field, frozen=True):
    """The lowest ready positions of a queue are dropped, as it overflows (Q3).

    But for the first ones, `after` of them, which consumers had room for.
    """

    queue_id: int
    messages: int
    after: int = 0


class Move(Field, frozen=True):
    """Positions of one queue become new ones at the tail of another; the blocks stay (C13, Q6).

    `cause` is a value of `dead_letters.Cause`; `reason` is that of the settlement, else the cause;
    with the session that settled them and its batch, if any.
    """

    queue_id: int
    positions: BitMap64
    target_id: int
    cause: str
    reason: str = ""
    session: str = ""
    batch_id: int = -1


class Delay(Field, frozen=True):
    """Positions of one queue are requeued, and ready from an instant on (C14)."""

    queue_id: int
    positions: BitMap64
    until_us: int


class RejectedThere(Field, frozen=True):
    """Positions of one queue that leave it, to be rejected at the broker they came from (L28).

    `cause` is a value of `dead_letters.Cause`.
    """

    queue_id: int
    positions: BitMap64
    cause: str


class DueMessages(Field, frozen=True):
    """Due positions of one queue: expired (Q3), and ready after their delay (C14)."""

    queue_id: int
    expired: BitMap64
    matured: BitMap64


class Holder(Field, frozen=True):
    """Holder of a session, and since when (S3)."""

    token: bytes
    host: str
    pid: int
    application: str
    since_us: int


class QueuePositions(Field, frozen=True):
    """Positions of one queue; in a lease, their tags follow those of the entry before."""

    queue_id: int
    positions: BitMap64


class Hole(Field, frozen=True):
    """Tags of a lease that have no message any more, and why: one of `queues.Gone` (S5)."""

    reason: str
    tags: BitMap64


class TagOutcome(Field, frozen=True):
    """Tags of a lease that get the same disposition at its accept (S6).

    `outcome` is a value of `ackq.outcomes.Outcome`; `delay_ms` 0 takes the delay of C14.
    """

    outcome: str
    tags: BitMap64
    reason: str = ""
    delay_ms: int = 0

    @property
    def disposition(self) -> Disposition:
        """The disposition of the tags."""
        return Disposition(Outcome(self.outcome), self.reason, self.delay_ms)

    @classmethod
    def of(cls, disposition: Disposition, tags: BitMap64) -> TagOutcome:
        """Tags with their disposition."""
        return cls(disposition.outcome.value, tags, disposition.reason, disposition.delay_ms)
