"""Journal records: each record is the whole effect of one command.

A record is a version byte and a msgpack array `[tag, field, ...]`. Fields are appended, with
defaults: a record that lacks a field is read with the meaning it had when it was written. A record
with more fields than this version knows was written by a newer version and is refused, because an
unknown field may change the meaning of the record. Tags and the order of fields never change.
Version 1 was written by software that skips unknown fields, and is read as version 2. A decoded
bitmap is never mutated, because state may refer to it.
A part of a record (`Field`) is a msgpack array under the same rules; `QueueProperties` is a map,
whose field names never change.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyroaring import BitMap, BitMap64

from ackq.errors import UnsupportedError
from ackq_broker.core.columns.bitmaps import decode_hook, encode_hook
from ackq_broker.core.fields import (
    Delay,
    Drop,
    DueMessages,
    Holder,
    Hole,
    Move,
    QueuePositions,
    QueueProperties,
    RejectedThere,
    Rewound,
    RoutedRows,
    TagOutcome,
    Unroutable,
)
from ackq_broker.core.stages import EdgeStages

VERSION: Final = 2
_READABLE: Final = (1, 2)


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of the journal's records; each one is a change of state."""


# --- topology ---


class QueueDeclared(Record, frozen=True, tag="queue_declared"):
    """A queue was created."""

    queue_id: int
    queue: str
    properties: QueueProperties


class QueueDeleted(Record, frozen=True, tag="queue_deleted"):
    """A queue was deleted, with its ready messages and its bindings."""

    queue_id: int


class QueuePurged(Record, frozen=True, tag="queue_purged"):
    """The ready messages of a queue were removed, and the retained ones."""

    queue_id: int
    at_us: int = 0


class QueueRewound(Record, frozen=True, tag="queue_rewound"):
    """Retained messages that channels accepted are ready again (S14)."""

    queue_id: int
    positions: BitMap64
    at_us: int


class ExchangeDeclared(Record, frozen=True, tag="exchange_declared"):
    """An exchange was created."""

    exchange: str
    kind: str
    durable: bool


class ExchangeDeleted(Record, frozen=True, tag="exchange_deleted"):
    """An exchange was deleted, with its bindings."""

    exchange: str


class QueueBound(Record, frozen=True, tag="queue_bound"):
    """A binding was created."""

    exchange: str
    queue_id: int
    binding_key: str


class QueueUnbound(Record, frozen=True, tag="queue_unbound"):
    """A binding was removed."""

    exchange: str
    queue_id: int
    binding_key: str


# --- publishing ---


class PublisherOpened(Record, frozen=True, tag="publisher_opened"):
    """A publisher opened a stream, in the mode that it keeps (P1).

    An unowned publisher belongs to `user` from this record on; `user` is empty where there are no
    users (A10). `attempt` names the opening; it is empty if the client sent none.
    """

    publisher_id: bytes
    label: str
    transactional: bool = False
    user: str = ""
    attempt: bytes = b""


class PublisherClosed(Record, frozen=True, tag="publisher_closed"):
    """A publisher's last stream ended; its uncommitted transaction is dropped.

    The publisher is forgotten at once when `finished`, otherwise after 7 days.
    """

    publisher_id: bytes
    at_us: int
    finished: bool = False


class Published(Record, frozen=True, tag="published"):
    """Rows of one block became visible.

    `accepted` and `transient` are the numbers placed (P10); a restart forgets the transient ones.
    `durable` says whether the block's bytes survive a restart. The drops are applied after the
    parts. `sizes` is a packed column (`state.block_sizes`), empty when all rows have the same size
    (Q3).
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


class PublishedTogether(Record, frozen=True, tag="published_together"):
    """Rows of one block became visible, each from another publisher (P4).

    Row i is publish `numbers[i]` of publisher `publisher_ids[i]`, and accepted (P10);
    `lowest_unanswered[i]` is that publisher's. The other fields are as in `Published`.
    """

    publisher_ids: tuple[bytes, ...]
    numbers: tuple[int, ...]
    lowest_unanswered: tuple[int, ...]
    block_id: int
    at_us: int
    parts: tuple[RoutedRows, ...]
    drops: tuple[Drop, ...] = ()
    sizes: bytes = b""


class TransactionStaged(Record, frozen=True, tag="transaction_staged"):
    """A block was added to a transaction.

    `block_id` is 0 when none of its rows matched a queue; `durable` and `sizes` as in `Published`.
    The `returned` numbers are reported again when the commit is repeated.
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
    """A publisher's transaction became visible; the drops are applied after all of its parts."""

    publisher_id: bytes
    transaction_id: bytes
    messages: int
    at_us: int
    drops: tuple[Drop, ...] = ()


class TransactionRolledBack(Record, frozen=True, tag="transaction_rolled_back"):
    """A publisher's uncommitted transaction was dropped."""

    publisher_id: bytes


# --- writer batches ---


class StageOpened(Record, frozen=True, tag="stage_opened"):
    """A stage was opened; the `superseded` stages, from older runs of the writer, are dropped.

    A `single` writer commits only this batch. An unowned writer belongs to `user` from this record
    on; `user` is empty where there are no users (A10), in this record and the following ones.
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
    """A block was added to a stage; `block_id` is 0 when none of its rows matched a queue.

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
    """A stage was sealed: it is complete."""

    stage_id: bytes
    at_us: int


class StagesDropped(Record, frozen=True, tag="stages_dropped"):
    """Stages were dropped, and with `prepared_by` what its writer had prepared (K14)."""

    stage_ids: tuple[bytes, ...]
    prepared_by: str = ""


class BatchPrepared(Record, frozen=True, tag="batch_prepared"):
    """The named stages of a batch are kept until it is committed here, whatever runs (K14)."""

    writer: str
    batch_id: int
    run_id: str
    edges: str
    at_us: int
    stage_ids: tuple[bytes, ...]
    single: bool = False
    user: str = ""


class BatchCommitted(Record, frozen=True, tag="batch_committed"):
    """The named stages became visible in this order; the `dropped` stages were dropped.

    The drops are applied after all parts. A `single` writer commits no other batch. `target` is the
    writer's name for where the rows go; it is empty where the writer gave none. Of a batch written
    to several edges, the record at its home has the stages at the others, and counts their rows.
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
    edges: str = ""
    others: tuple[EdgeStages, ...] = ()


class BatchRepeated(Record, frozen=True, tag="batch_repeated"):
    """A run found the batch that its writer committed last already written (K3).

    `execution_id` is the SQL execution of that run, where it is known (K12).
    """

    writer: str
    run_id: str
    execution_id: str


class WriterForgotten(Record, frozen=True, tag="writer_forgotten"):
    """An operator forgot a writer: writes under its name are refused from this record on (K3)."""

    writer: str
    at_us: int


class WriterAssigned(Record, frozen=True, tag="writer_assigned"):
    """An operator assigned a writer to a user (A10)."""

    writer: str
    user: str


# --- sessions ---


class SessionOpened(Record, frozen=True, tag="session_opened"):
    """A new incarnation of a session; the lease of the replaced incarnation, if any, was requeued.

    `succeeds` names a forgotten incarnation that the new one continues, because a checkpoint stands
    at tag 0 of it. The session belongs to `user`; empty where there are no users (A10). Before all,
    messages that the replaced incarnation retained are `rewound` (S14).
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
    retain_ms: int = 0
    retain_bytes: int = 0
    rewound: tuple[Rewound, ...] = ()


class SessionAdvanced(Record, frozen=True, tag="session_advanced"):
    """Attach, accept and lease in one record: `leased` becomes a new lease after the accept.

    A detached lease first gets the `resumed` messages back, and its other tags become `holes` (S5).
    With an accept the committed outcomes take effect (S6): of the messages that they name, `moves`
    are dead-lettered, `discarded` are dropped, `rejected_there` also leave their queue, and the
    rest is requeued. The drops are applied last. Of the leases accepted before, the latest `keeps`
    stay readable (S13). Last, retained messages are `rewound`: ready again (S14).
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
    retain_ms: int = 0
    retain_bytes: int = 0
    keeps: int = 0
    rewound: tuple[Rewound, ...] = ()


class SessionDetached(Record, frozen=True, tag="session_detached"):
    """Session timeout: the lease was requeued, and the epoch of its holder is over (S5)."""

    session: str
    at_us: int


class FetchNoted(Record, frozen=True, tag="fetch_noted"):
    """A run of a query reads a batch from the outstanding lease, or the last accepted one (S6).

    Without a query id it only proves the incarnation (S9). `user` is the user that fetched; empty
    where there are no users.
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

    Or, if `kept`, for tags of the lease accepted last, where they have no effect (K2).
    """

    session: str
    stage_id: bytes
    label: str
    outcomes: tuple[TagOutcome, ...]
    kept: bool = False


class OutcomesCommitted(Record, frozen=True, tag="outcomes_committed"):
    """Stages of outcomes were committed: they take effect in this order at the accept (S6)."""

    session: str
    stage_ids: tuple[bytes, ...]
    batch_id: int


class OutcomesDropped(Record, frozen=True, tag="outcomes_dropped"):
    """Stages of outcomes were dropped."""

    stage_ids: tuple[bytes, ...]


class SessionSettled(Record, frozen=True, tag="session_settled"):
    """An operator settled tags of a lease; they become holes, and the epoch is over (S8).

    Messages that are neither moved nor discarded nor `rejected_there` are requeued. The drops are
    applied last.
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
    """Ready messages of a queue got the next tags of a channel, lowest position first.

    With `no_ack` they are accepted at once.
    """

    channel_id: bytes
    queue_id: int
    positions: BitMap64
    at_us: int
    no_ack: bool = False


class Settled(Record, frozen=True, tag="settled"):
    """Tags of a channel were settled.

    `outcome` is a value of `ackq.outcomes.Outcome`. Unless it is ACCEPTED, messages that are
    neither moved nor discarded nor `rejected_there` are requeued. The drops, from dead-letter
    queues that overflow, are applied last.
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
    """Dead letters moved back to their original queues (Q6); the drops are applied last."""

    moves: tuple[Move, ...]
    at_us: int
    drops: tuple[Drop, ...] = ()


class Ticked(Record, frozen=True, tag="ticked"):
    """Everything due up to an instant has happened: expiries and ends of delays.

    Of the expired messages, `moves` were dead-lettered, and `discarded` were dropped because they
    expired in a cycle (C13). The drops are applied last.
    """

    at_us: int
    queues: tuple[DueMessages, ...]
    moves: tuple[Move, ...] = ()
    discarded: tuple[QueuePositions, ...] = ()
    drops: tuple[Drop, ...] = ()


# --- lifecycle ---


class Started(Record, frozen=True, tag="started"):
    """A broker process started: transient messages and messages in lost blocks are dropped (Q7).

    The history may differ from the previous one (Q8).
    """

    history_id: str
    at_us: int
    cause: str = ""
    lost_blocks: BitMap64 = msgspec.field(default_factory=BitMap64)


class HistoryAccepted(Record, frozen=True, tag="history_accepted"):
    """An operator accepted that the history changed: older objects are no longer refused (Q8)."""

    at_us: int


class Expired(Record, frozen=True, tag="expired"):
    """Objects past their retention were dropped.

    Of each session in `replays`, the oldest of its accepted leases that are kept: as many as the
    entry of `leases` says; all of them without entries, as an older version wrote it. Of each queue
    in `retained`, the messages that it retains until the instant beside its id.
    """

    publishers: tuple[bytes, ...]
    stages: tuple[bytes, ...]
    sessions: tuple[str, ...]
    at_us: int
    replays: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    leases: tuple[int, ...] = ()
    retained: tuple[tuple[int, int], ...] = ()


# --- links (L) ---


class LinkOpened(Record, frozen=True, tag="link_opened"):
    """A link is new, or has another holder, or other options.

    Another holder begins an epoch, and ends the subscription of the previous holder (L1). `ack` is
    a value of `commands.LinkAck`. An unowned link belongs to `user` from this record on; `user` is
    empty where there are no users (A10).
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
    """A link begins its next subscription; the previous one's deliveries are redelivered (L17)."""

    link: str
    at_us: int


class LinkStored(Record, frozen=True, tag="link_stored"):
    """Deliveries of a link were stored or matched, in their order (L5).

    Attributes:
        first_number: Number of the first delivery; the record has `rows` consecutive deliveries.
        proven: Number of this subscription's proven acknowledgements, as the link reported it
            (L10).
        block_id: 0 when all rows were matched; then there are no parts.
        keys: Origin keys of the stored rows, 16 bytes each, little-endian; `checks`: their
            fingerprints, 8 bytes each.
        content: Positions of stored rows whose key is derived from their content (L7).
        matched: Rows that matched an entry, counted from the first delivery; `positions`: the
            positions of these entries, 8 bytes each, in row order. `matched_settled` counts the
            matched rows whose message was settled.
        permitted: Positions, stored or matched, that may be acknowledged at once (L9, L11); the
            ones whose entry is rejected are to be rejected.
        ambiguous: Positions in doubt next to which rows of the same content were stored: each is
            counted as one ambiguous delivery, and forgotten (L7).
        id_reused: Number of rows that were stored although their id was known (L4).
        redelivered: Stored positions that do not count as fresh (L10): the message had been
            delivered before, or came soon after its subscription began.
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

    Which of the two applies is in the record that took the message from its queue
    (`RejectedThere`).

    With `together`, all permits that are not proven become one batch, proven as a whole or not at
    all: they were reported to the link again, and the order in which it settles them is not known.
    """

    link: str
    positions: BitMap64
    proven: int
    at_us: int
    together: bool = False


class LinkPaused(Record, frozen=True, tag="link_paused"):
    """An operator paused or resumed a link (L25)."""

    link: str
    paused: bool


class LinkRemoved(Record, frozen=True, tag="link_removed"):
    """An operator removed a link, with everything known of its deliveries (L25)."""

    link: str


_AnyRecord = (
    QueueDeclared
    | QueueDeleted
    | QueuePurged
    | QueueRewound
    | ExchangeDeclared
    | ExchangeDeleted
    | QueueBound
    | QueueUnbound
    | PublisherOpened
    | PublisherClosed
    | Published
    | PublishedTogether
    | TransactionStaged
    | TransactionCommitted
    | TransactionRolledBack
    | StageOpened
    | BlockStaged
    | StageSealed
    | StagesDropped
    | BatchCommitted
    | BatchPrepared
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
    """Encodes a record as bytes."""
    return bytes((VERSION,)) + _ENCODER.encode(record)


def decode(data: bytes | memoryview) -> Record:
    """Decodes a record from bytes.

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
