"""Records of the journal: each is the whole effect of one command.

A record is a version byte and a msgpack array `[tag, field, ...]`. Fields are appended, with
defaults: a record that lacks them is read as it was meant, one that has more than a version knows
was written by a newer one and is refused, as those may change what it means. Tags and the order of
fields never change. Version 1 was written by software that skips fields that it does not know, and
is read as version 2. A decoded bitmap is never mutated: state may refer to it.
A part of a record (`Field`) is a msgpack array under the same rules; `QueueProperties` is a map,
whose field names never change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from pyroaring import BitMap, BitMap64

from ackq.errors import UnsupportedError
from ackq.outcomes import Disposition, Outcome
from ackq_broker.core.columns.bitmaps import decode_hook, encode_hook

VERSION: Final = 2
_READABLE: Final = (1, 2)


# --- the parts of records ---


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


# --- topology ---


class QueueDeclared(Record, frozen=True, tag="queue_declared"):
    """A new queue."""

    queue_id: int
    queue: str
    properties: QueueProperties


class QueueDeleted(Record, frozen=True, tag="queue_deleted"):
    """A queue is deleted, with its ready messages and its bindings."""

    queue_id: int


class QueuePurged(Record, frozen=True, tag="queue_purged"):
    """The ready messages of a queue are removed."""

    queue_id: int


class ExchangeDeclared(Record, frozen=True, tag="exchange_declared"):
    """A new exchange."""

    exchange: str
    kind: str
    durable: bool


class ExchangeDeleted(Record, frozen=True, tag="exchange_deleted"):
    """An exchange is deleted, with its bindings."""

    exchange: str


class QueueBound(Record, frozen=True, tag="queue_bound"):
    """A new binding."""

    exchange: str
    queue_id: int
    binding_key: str


class QueueUnbound(Record, frozen=True, tag="queue_unbound"):
    """A binding is removed."""

    exchange: str
    queue_id: int
    binding_key: str


# --- publishing ---


class PublisherOpened(Record, frozen=True, tag="publisher_opened"):
    """A publisher has a stream, in the mode that it keeps (P1).

    One that is nobody's belongs to the `user` from here on; empty where there are no users (A10).
    The `attempt` names the opening; empty where its client did not.
    """

    publisher_id: bytes
    label: str
    transactional: bool = False
    user: str = ""
    attempt: bytes = b""


class PublisherClosed(Record, frozen=True, tag="publisher_closed"):
    """A publisher's last stream ended; what it had not committed is dropped.

    It is forgotten at once when `finished`, and in 7 days otherwise.
    """

    publisher_id: bytes
    at_us: int
    finished: bool = False


class Published(Record, frozen=True, tag="published"):
    """Rows of one block became visible.

    `accepted` and `transient` are the numbers placed (P10); a restart takes the transient ones.
    `durable` says whether the block's bytes survive one. The drops come after the parts. `sizes` is
    a packed column (`columns.packed_sizes`), empty when all rows are alike (Q3).
    """

    publisher_id: bytes
    accepted: BitMap64
    transient: BitMap64
    lowest_unanswered: int
    block_id: int
    durable: bool
    at_us: int
    parts: tuple[RoutedRows, ...]
    drops: tuple[Drop, ...] = ()
    sizes: bytes = b""


class TransactionStaged(Record, frozen=True, tag="transaction_staged"):
    """A transaction has the rows of one more block.

    `block_id` is 0 when no queue wanted any of them; `durable` and `sizes` as in `Published`. What
    was `returned` is told again when the commit is repeated.
    """

    publisher_id: bytes
    transaction_id: bytes
    block_id: int
    durable: bool
    rows: int
    parts: tuple[RoutedRows, ...]
    returned: Unroutable | None = None
    sizes: bytes = b""


class TransactionCommitted(Record, frozen=True, tag="transaction_committed"):
    """A publisher's transaction became visible; the drops come after all of its parts."""

    publisher_id: bytes
    transaction_id: bytes
    messages: int
    at_us: int
    drops: tuple[Drop, ...] = ()


class TransactionRolledBack(Record, frozen=True, tag="transaction_rolled_back"):
    """What a publisher had not committed is dropped."""

    publisher_id: bytes


# --- writer batches ---


class StageOpened(Record, frozen=True, tag="stage_opened"):
    """A stage begins; `superseded` ones, of older runs of the writer, are dropped.

    A `single` writer commits no more than this batch. A writer that is nobody's belongs to the
    `user` from here on; empty where there are no users (A10), here and below.
    """

    stage_id: bytes
    writer: str
    batch_id: int
    run_id: str
    label: str
    mandatory: bool
    at_us: int
    superseded: tuple[bytes, ...] = ()
    single: bool = False
    user: str = ""


class BlockStaged(Record, frozen=True, tag="block_staged"):
    """A stage has one more block; `block_id` is 0 when no queue wanted any of its rows.

    `sizes` as in `Published`.
    """

    stage_id: bytes
    block_id: int
    rows: int
    payload_bytes: int
    at_us: int
    parts: tuple[RoutedRows, ...]
    sizes: bytes = b""


class StageSealed(Record, frozen=True, tag="stage_sealed"):
    """A stage is complete."""

    stage_id: bytes
    at_us: int


class StagesDropped(Record, frozen=True, tag="stages_dropped"):
    """Stages are dropped."""

    stage_ids: tuple[bytes, ...]


class BatchCommitted(Record, frozen=True, tag="batch_committed"):
    """The named stages became visible in this order; others are `dropped`.

    The drops come after all parts. A `single` writer commits no more. The target is the writer's
    name for where the rows go; empty where it gave none.
    """

    writer: str
    batch_id: int
    run_id: str
    execution_id: str
    rows: int
    at_us: int
    stage_ids: tuple[bytes, ...]
    dropped: tuple[bytes, ...] = ()
    drops: tuple[Drop, ...] = ()
    single: bool = False
    target: str = ""
    user: str = ""


class BatchRepeated(Record, frozen=True, tag="batch_repeated"):
    """A run found the batch that its writer committed last written (K3).

    In this execution, where one is known (K12).
    """

    writer: str
    run_id: str
    execution_id: str


class WriterForgotten(Record, frozen=True, tag="writer_forgotten"):
    """An operator had a writer forgotten: nothing is written under its name any more (K3)."""

    writer: str
    at_us: int


class WriterAssigned(Record, frozen=True, tag="writer_assigned"):
    """An operator gave a writer to a user (A10)."""

    writer: str
    user: str


# --- sessions ---


class SessionOpened(Record, frozen=True, tag="session_opened"):
    """A new incarnation; the lease of the one it replaces, if any, was requeued.

    It succeeds an incarnation that was forgotten when a checkpoint stands at tag 0 of that one. It
    belongs to the `user`; empty where there are no users (A10).
    """

    session: str
    incarnation: str
    replaces: str
    holder: Holder
    queue_ids: tuple[int, ...]
    at_us: int
    leased: tuple[QueuePositions, ...] = ()
    queue_pattern: str = ""
    timeout_ms: int = 0
    succeeds: str = ""
    user: str = ""


class SessionAdvanced(Record, frozen=True, tag="session_advanced"):
    """Attach, accept and lease in one: a new lease is made of `leased` after the accept.

    A detached lease takes what is `resumed` first, and its other tags are `holes` (S5). With an
    accept the committed outcomes take effect (S6): of what they name, `moves` become dead letters,
    `discarded` is dropped, `rejected_there` leaves too, and the rest is requeued. The drops come
    last.
    """

    session: str
    epoch: int
    holder: Holder
    queue_ids: tuple[int, ...]
    at_us: int
    accepted: bool = False
    leased: tuple[QueuePositions, ...] = ()
    discarded: tuple[QueuePositions, ...] = ()
    moves: tuple[Move, ...] = ()
    delays: tuple[Delay, ...] = ()
    drops: tuple[Drop, ...] = ()
    resumed: tuple[QueuePositions, ...] = ()
    holes: tuple[Hole, ...] = ()
    queue_pattern: str = ""
    timeout_ms: int = 0
    rejected_there: tuple[RejectedThere, ...] = ()


class SessionDetached(Record, frozen=True, tag="session_detached"):
    """Session timeout: the lease was requeued, and the epoch of its holder is over (S5)."""

    session: str
    at_us: int


class FetchNoted(Record, frozen=True, tag="fetch_noted"):
    """A run of a query reads a batch from the outstanding lease, or the `kept` one (S6).

    Without a query id it only proves the incarnation (S9). The `user` is who fetched; empty where
    there are no users.
    """

    session: str
    query_id: str
    run_id: str
    batch_id: int
    epoch: int
    kept: bool = False
    user: str = ""


class BatchPlanned(Record, frozen=True, tag="batch_planned"):
    """A query planned a batch in which the session has no rows (S11).

    `named`: a task named the batch; otherwise the holder counted it, as the last of `counted`.
    """

    session: str
    query_id: str
    batch_id: int
    counted: int
    named: bool = False
    user: str = ""


class OutcomesStaged(Record, frozen=True, tag="outcomes_staged"):
    """A task staged outcomes for tags of the outstanding lease (S6).

    Or, without an effect, of the `kept` one (K2).
    """

    session: str
    stage_id: bytes
    label: str
    outcomes: tuple[TagOutcome, ...]
    kept: bool = False


class OutcomesCommitted(Record, frozen=True, tag="outcomes_committed"):
    """Stages of outcomes take effect at the accept of the lease, in this order (S6)."""

    session: str
    stage_ids: tuple[bytes, ...]
    batch_id: int


class OutcomesDropped(Record, frozen=True, tag="outcomes_dropped"):
    """Stages of outcomes are dropped."""

    stage_ids: tuple[bytes, ...]


class SessionSettled(Record, frozen=True, tag="session_settled"):
    """An operator settled tags of a lease; they are holes, and the epoch is over (S8).

    What is neither moved nor discarded nor `rejected_there` is requeued. The drops come last.
    """

    session: str
    tags: BitMap64
    at_us: int
    discarded: tuple[QueuePositions, ...] = ()
    moves: tuple[Move, ...] = ()
    drops: tuple[Drop, ...] = ()
    rejected_there: tuple[RejectedThere, ...] = ()


class SessionReleased(Record, frozen=True, tag="session_released"):
    """An operator ended an incarnation; its lease was requeued."""

    session: str
    at_us: int


# --- channels ---


class Delivered(Record, frozen=True, tag="delivered"):
    """Ready messages of a queue have the next tags of a channel, lowest position first.

    With `no_ack` they are accepted at once.
    """

    channel_id: bytes
    queue_id: int
    positions: BitMap64
    at_us: int
    no_ack: bool = False


class Settled(Record, frozen=True, tag="settled"):
    """Tags of a channel are settled.

    `outcome` is a value of `ackq.outcomes.Outcome`. But for ACCEPTED, what is neither moved nor
    discarded nor `rejected_there` is requeued. The drops, of dead-letter queues that overflow, come
    last.
    """

    channel_id: bytes
    outcome: str
    tags: BitMap64
    at_us: int
    discarded: tuple[QueuePositions, ...] = ()
    moves: tuple[Move, ...] = ()
    delays: tuple[Delay, ...] = ()
    drops: tuple[Drop, ...] = ()
    rejected_there: tuple[RejectedThere, ...] = ()


class ChannelClosed(Record, frozen=True, tag="channel_closed"):
    """A channel ended; its unacked messages were requeued."""

    channel_id: bytes
    at_us: int


# --- dead letters and time ---


class Redriven(Record, frozen=True, tag="redriven"):
    """Dead letters moved back to the queues they came from (Q6); the drops come last."""

    moves: tuple[Move, ...]
    at_us: int
    drops: tuple[Drop, ...] = ()


class Ticked(Record, frozen=True, tag="ticked"):
    """What was due up to an instant has happened.

    Of what expired, `moves` became dead letters, and `discarded` is dropped because it went in a
    circle (C13). The drops come last.
    """

    at_us: int
    queues: tuple[DueMessages, ...]
    moves: tuple[Move, ...] = ()
    discarded: tuple[QueuePositions, ...] = ()
    drops: tuple[Drop, ...] = ()


# --- lifecycle ---


class Started(Record, frozen=True, tag="started"):
    """A process begins: what is transient, or in a lost block, is dropped (Q7).

    The history may be another one than before (Q8).
    """

    history_id: str
    at_us: int
    cause: str = ""
    lost_blocks: BitMap64 = msgspec.field(default_factory=BitMap64)


class HistoryAccepted(Record, frozen=True, tag="history_accepted"):
    """What began in older histories is no longer refused (Q8)."""

    at_us: int


class Expired(Record, frozen=True, tag="expired"):
    """What was past its retention is dropped; `replays`: sessions whose kept lease is."""

    publishers: tuple[bytes, ...]
    stages: tuple[bytes, ...]
    sessions: tuple[str, ...]
    at_us: int
    replays: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


# --- links (L) ---


class LinkOpened(Record, frozen=True, tag="link_opened"):
    """A link is new, or has another holder, or other options.

    Another holder begins an epoch, and ends the subscription of the one before (L1). `ack` is a
    value of `commands.LinkAck`. A link that is nobody's belongs to the `user` from here on; empty
    where there are no users (A10).
    """

    link: str
    incarnation: str
    epoch: int
    holder: Holder
    source: str
    queue_id: int
    ack: str
    at_us: int
    drop_ambiguous: bool = False
    reject_there: bool = False
    user: str = ""


class LinkSubscribed(Record, frozen=True, tag="link_subscribed"):
    """A link begins its next subscription: the deliveries of the one before come again (L17)."""

    link: str
    at_us: int


class LinkStored(Record, frozen=True, tag="link_stored"):
    """Deliveries of a link were stored or matched, in their order (L5).

    Attributes:
        first_number: Of the first delivery; `rows` of them follow each other.
        proven: Of this subscription's acknowledgements, as the link said (L10).
        block_id: 0 when all rows were matched; then there are no parts.
        keys: Of the rows that are stored, 16 bytes each, little-endian; `checks`: 8 bytes each.
        content: Their positions, as far as their keys are of their content (L7).
        matched: The rows, counted from the first delivery, that were there; `positions`: where, 8
            bytes each, in their order. `matched_settled` of them were settled.
        permitted: The positions, stored or matched, that may be acknowledged at once (L9, L11);
            those whose entry is rejected are to be rejected.
        ambiguous: Positions in doubt that rows of the same content were stored beside: each stands
            for one that is counted, and is forgotten (L7).
        id_reused: Rows that were stored though their id was known (L4).
        redelivered: Positions of what was stored and says nothing of what is fresh (L10): it had
            been delivered before, or came soon after its subscription began.
        sizes: As in `Published`.
    """

    link: str
    first_number: int
    rows: int
    lowest_unanswered: int
    proven: int
    at_us: int
    block_id: int
    parts: tuple[RoutedRows, ...]
    keys: bytes
    checks: bytes
    content: BitMap64
    matched: BitMap
    positions: bytes
    permitted: BitMap64
    ambiguous: BitMap64 = msgspec.field(default_factory=BitMap64)
    matched_settled: int = 0
    id_reused: int = 0
    redelivered: BitMap64 = msgspec.field(default_factory=BitMap64)
    sizes: bytes = b""


class LinkPermitted(Record, frozen=True, tag="link_permitted"):
    """Deliveries of the present subscription may be acknowledged, or rejected (L10).

    Which of both is in the record that took the message from its queue (`RejectedThere`).

    With `together` what was permitted before and is not proven is proven with them, or not at all:
    it was told again, and in what order a link settles it is not known.
    """

    link: str
    positions: BitMap64
    proven: int
    at_us: int
    together: bool = False


class LinkPaused(Record, frozen=True, tag="link_paused"):
    """An operator paused a link, or lets it go on (L25)."""

    link: str
    paused: bool


class LinkRemoved(Record, frozen=True, tag="link_removed"):
    """An operator ended a link: nothing is known of its deliveries any more (L25)."""

    link: str


_AnyRecord = (
    QueueDeclared
    | QueueDeleted
    | QueuePurged
    | ExchangeDeclared
    | ExchangeDeleted
    | QueueBound
    | QueueUnbound
    | PublisherOpened
    | PublisherClosed
    | Published
    | TransactionStaged
    | TransactionCommitted
    | TransactionRolledBack
    | StageOpened
    | BlockStaged
    | StageSealed
    | StagesDropped
    | BatchCommitted
    | BatchRepeated
    | WriterForgotten
    | WriterAssigned
    | SessionOpened
    | SessionAdvanced
    | SessionReleased
    | SessionDetached
    | FetchNoted
    | BatchPlanned
    | OutcomesStaged
    | OutcomesCommitted
    | OutcomesDropped
    | SessionSettled
    | Delivered
    | Settled
    | ChannelClosed
    | Redriven
    | Ticked
    | Started
    | HistoryAccepted
    | Expired
    | LinkOpened
    | LinkSubscribed
    | LinkStored
    | LinkPermitted
    | LinkPaused
    | LinkRemoved
)

_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=encode_hook)
_DECODER: Final[msgspec.msgpack.Decoder[_AnyRecord]] = msgspec.msgpack.Decoder(
    _AnyRecord, dec_hook=decode_hook
)


def encode(record: Record) -> bytes:
    """A record as bytes."""
    return bytes((VERSION,)) + _ENCODER.encode(record)


def decode(data: bytes | memoryview) -> Record:
    """A record from bytes.

    Raises:
        UnsupportedError: It was written by a newer version of this software.
    """
    if not data or data[0] not in _READABLE:
        found = data[0] if data else "none"
        raise UnsupportedError(
            f"The journal holds a record of version {found}; this broker reads up to {VERSION}. "
            "Start the version of ackq-broker that wrote it, or a newer one.",
            version=found,
        )
    try:
        return _DECODER.decode(data[1:])
    except msgspec.ValidationError as error:
        raise UnsupportedError(
            f"The journal holds a record that this broker does not know ({error}): it was written "
            "by a newer version. Start that version of ackq-broker, or a newer one."
        ) from error
