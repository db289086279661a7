"""Generated from proto/ackq/v1 by proto/info_classes.py: do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OverflowName = Literal["reject-publish", "drop-head"]
ExchangeKind = Literal["direct", "fanout", "topic"]
LinkAckName = Literal["settled", "stored"]
AlarmName = Literal["unspecified", "draining", "disk", "memory"]

__all__ = [
    "AcceptedHistory",
    "AlarmName",
    "Backup",
    "BatchInfo",
    "BatchTarget",
    "Binding",
    "BrowseChunk",
    "ConsumerInfo",
    "DeclaredExchange",
    "DeclaredQueue",
    "DeletedQueue",
    "Drain",
    "DroppedBatch",
    "ExchangeInfo",
    "ExchangeKind",
    "Holder",
    "Holding",
    "Holdings",
    "LeaseChunk",
    "LinkAckName",
    "LinkInfo",
    "LinkReport",
    "OutboundReport",
    "OverflowName",
    "QueueInfo",
    "QueueProperties",
    "Redriven",
    "ReleasedSession",
    "RemovedLink",
    "RetainedBatch",
    "RetainedBatches",
    "RewoundSession",
    "ServerInfo",
    "SessionInfo",
    "SettledSession",
    "StageInfo",
    "WriterInfo",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The broker: its version, history, memory and clock.

    Attributes:
        version: Version of the broker's software.
        history_id: Identity of the journal's history (Q8).
        sequence: Last journal sequence that was decided.
        synced: Last journal sequence that is on disk.
        sync_mode: How the journal syncs: `fdatasync`, or `none` for a broker started without
            durability.
        history_cause: Why the history began: `copied`, `declared` (by an operator) or `repaired`.
            Empty: the journal's first.
        held_back: Number of publishers, sessions, writers and links of older histories, refused
            until AcceptHistory.
        memory_limit_bytes: Memory limit of the broker in bytes (P14).
        memory_used_bytes: Memory that the broker uses, in bytes.
        blocked: Why publishers are blocked (P14). Empty: they are not.
        now_us: The broker's time, microseconds since the Unix epoch: expiries and ages are computed
            with it (Q8).
        uptime_ms: How long this broker process has served, milliseconds.
        clock_jump_ms: How far the machine's clock is ahead of the broker's time, milliseconds: a
            jump that is not accepted yet; nothing expires meanwhile (Q8). 0: none.
        alarm: Kind of the alarm that `blocked` describes. UNSPECIFIED: publishers are not blocked.
    """

    version: str = ""
    history_id: str = ""
    sequence: int = 0
    synced: int = 0
    sync_mode: str = ""
    history_cause: str = ""
    held_back: int = 0
    memory_limit_bytes: int = 0
    memory_used_bytes: int = 0
    blocked: str = ""
    now_us: int = 0
    uptime_ms: int = 0
    clock_jump_ms: int = 0
    alarm: AlarmName = "unspecified"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedHistory:
    """Numbers of publishers, sessions, writers and links that AcceptHistory readmitted (Q8).

    Attributes:
        history_id: Identity of the accepted history.
        publishers: Publishers that were refused until now.
        sessions: Sessions that were refused until now.
        writers: Writers that were refused until now.
        links: Links that were refused until now.
    """

    history_id: str = ""
    publishers: int = 0
    sessions: int = 0
    writers: int = 0
    links: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup that the broker made: a data directory on its machine (O5).

    Attributes:
        directory: Path of the backup's directory on the broker's machine.
        sequence: Journal sequence up to which the backup is complete.
        total_bytes: Size of all files of the backup.
        copied_bytes: Bytes written for the backup; the rest is shared with the broker's own files,
            which never change.
    """

    directory: str = ""
    sequence: int = 0
    total_bytes: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The unfinished work of a broker (O6).

    If every count is zero, a restart interrupts nobody.

    Attributes:
        draining: Whether the broker is being drained.
        unacked: Unsettled messages on channels: a restart redelivers them.
        transactions: Open transactions: a restart rolls them back.
        stages: Stages that are not sealed: a restart drops them, and their tasks run again.
        bytes: Bytes that were received and are not on disk, or not answered.
    """

    draining: bool = False
    unacked: int = 0
    transactions: int = 0
    stages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProperties:
    """Properties of a queue.

    They are part of its identity: a declare with others is refused (Q1).

    Attributes:
        durable: Whether the queue survives a restart.
        max_length: Bound on messages. 0: none. With reject-publish, ready + delayed + unacked +
            staged messages count, and a publish beyond the bound is nacked; with drop-head only
            ready messages count, because only these can be dropped (Q3).
        max_bytes: Bound on payload bytes, of the same messages as for `max_length`. 0: none.
        overflow: What the queue does at its bound.
        message_ttl_ms: Message TTL: time from publish to expiry, milliseconds. 0: messages never
            expire.
        expires_ms: Queue expiry: the queue is deleted after being unused for this time,
            milliseconds. 0: never.
        delivery_limit: Delivery limit: number of FAILED deliveries allowed. 0: no limit.
        dead_letter_queue: Name of the dead-letter queue. Empty: none.
        redelivery_delay_ms: First redelivery delay, milliseconds. 0: none.
        redelivery_delay_max_ms: Largest redelivery delay, milliseconds; the delay doubles up to it.
        drop_on_limit: Without a dead-letter queue: drop messages at the delivery limit.
        retain_ms: How long messages that channels accepted stay, to be read again (S13),
            milliseconds. 0: they do not.
    """

    durable: bool = False
    max_length: int = 0
    max_bytes: int = 0
    overflow: OverflowName = "reject-publish"
    message_ttl_ms: int = 0
    expires_ms: int = 0
    delivery_limit: int = 0
    dead_letter_queue: str = ""
    redelivery_delay_ms: int = 0
    redelivery_delay_max_ms: int = 0
    drop_on_limit: bool = False
    retain_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: its properties, what it holds now, and its counts since it was declared.

    Attributes:
        queue: Name of the queue.
        queue_id: Id of the queue.
        properties: Properties of the queue.
        ready: Messages a consumer could get now.
        unacked: Messages leased to sessions or unacked on channels.
        staged: Messages staged by writers and not committed.
        payload_bytes: Payload bytes of ready, delayed and unacked messages.
        oldest_age_ms: Age of the oldest message, milliseconds. 0: the queue is empty.
        sessions: Names of the sessions that read the queue.
        published: Messages ever put into the queue.
        accepted: Messages ever accepted.
        delayed: Messages requeued with a delay that is not over (C14); neither ready nor unacked.
        expired: Messages that ever expired (Q3).
        dead_lettered: Messages ever moved from this queue to a dead-letter queue (C13).
        dropped: Messages ever discarded: rejected, expired or failed too often without a
            dead-letter queue, over a bound, in a cycle, or lost with a damaged block that was
            repaired.
        consumers: Number of consumers on channels (C8).
        retained: Accepted messages that the queue retains (S13); no other figure has them but
            `accepted`.
        retained_payload_bytes: Their payload bytes.
        retained_age_ms: For how long the oldest of them has been accepted, milliseconds. 0: there
            is none.
    """

    queue: str = ""
    queue_id: int = 0
    properties: QueueProperties = field(default_factory=QueueProperties)
    ready: int = 0
    unacked: int = 0
    staged: int = 0
    payload_bytes: int = 0
    oldest_age_ms: int = 0
    sessions: tuple[str, ...] = ()
    published: int = 0
    accepted: int = 0
    delayed: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    consumers: int = 0
    retained: int = 0
    retained_payload_bytes: int = 0
    retained_age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """The answer to a declare of a queue.

    Attributes:
        queue_id: Id of the queue, never reused.
        created: Whether the call created the queue; false when it existed before.
        warnings: Sentences for the caller about queue properties that have no effect (Q1).
    """

    queue_id: int = 0
    created: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedQueue:
    """Numbers of messages that a deleted queue held.

    Attributes:
        ready: Ready and delayed messages removed.
        unacked: Unacked messages left to their holders.
    """

    ready: int = 0
    unacked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """Numbers of dead letters that a redrive moved, and left (Q6).

    Attributes:
        messages: Messages moved.
        left: Ready messages in the range, of that cause and reason, that stay: beyond max_messages
            or the bound of a record, or their target queue does not exist or is full, or they never
            were dead-lettered.
        last_position: The last position of the range; the queue's last one if the request named
            none. A caller that continues passes it, so that messages that are dead-lettered again
            meanwhile are not moved again.
    """

    messages: int = 0
    left: int = 0
    last_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The messages of a queue that one session or one channel holds (Q9).

    Attributes:
        session: Name of the session that holds them; empty: a channel does.
        channel: Label of the channel that holds them: host and process id, unless its client chose
            another. Empty: a session does.
        messages: Number of messages held.
        payload_bytes: Payload bytes of the held messages.
        stored_bytes: Bytes of the journal that the held messages pin: the size of every block that
            has one of them.
        first_position: Lowest position of the held messages.
        last_position: Highest position of the held messages.
        age_ms: Time since the oldest held message was leased or delivered, milliseconds.
        oldest_age_ms: Time since the oldest held message was published, milliseconds.
        connected: Whether the client is connected: the client of the channel, or the live holder of
            the session (S3).
        quiet_ms: Time since the channel last settled anything, or else since it began,
            milliseconds. 0 for a session.
        delivery_tag: Delivery tag of the message that was asked for; 0 when none was.
    """

    session: str = ""
    channel: str = ""
    messages: int = 0
    payload_bytes: int = 0
    stored_bytes: int = 0
    first_position: int = 0
    last_position: int = 0
    age_ms: int = 0
    oldest_age_ms: int = 0
    connected: bool = False
    quiet_ms: int = 0
    delivery_tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer on a channel (C8).

    Attributes:
        consumer: Name of the consumer, unique on its channel.
        channel: Label of the consumer's channel.
        prefetch: Maximum number of messages that the consumer may have unacked. 0: no bound.
        unacked: Messages that the consumer has unacked.
        no_ack: Whether the consumer takes messages without acks (C10).
        has_room: Whether the consumer can be delivered more now.
        connected: Whether the consumer's client is connected.
    """

    consumer: str = ""
    channel: str = ""
    prefetch: int = 0
    unacked: int = 0
    no_ack: bool = False
    has_room: bool = False
    connected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The holders of a queue's messages, and other reasons why messages are not delivered (Q9).

    Each unacked message of the queue is in exactly one holding.

    Attributes:
        holdings: Holdings, the oldest first; at most 1,000.
        holding_count: Number of all holdings.
        consumers: Consumers of the queue on channels; at most 1,000.
        next_ready_ms: Time until the first delayed message is ready, milliseconds. 0: none is
            delayed, or it is ready in an instant.
        next_expiry_ms: Time until the first message expires, milliseconds. 0: none will, or one
            does in an instant.
        staged_bytes: Payload bytes of the rows staged for the queue.
        most_failures: The highest number of failed deliveries of a message in the queue (C13).
        oldest_position: The lowest position of a message in the queue. 0: the queue is empty.
    """

    holdings: tuple[Holding, ...] = ()
    holding_count: int = 0
    consumers: tuple[ConsumerInfo, ...] = ()
    next_ready_ms: int = 0
    next_expiry_ms: int = 0
    staged_bytes: int = 0
    most_failures: int = 0
    oldest_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A binding of a queue to an exchange.

    Attributes:
        queue: Name of the bound queue.
        binding_key: Binding key.
    """

    queue: str = ""
    binding_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeInfo:
    """An exchange and its bindings.

    Attributes:
        exchange: Name of the exchange.
        type: Type of the exchange: how it routes (Q2).
        durable: Whether the exchange survives a restart.
        bindings: Bindings of the exchange.
    """

    exchange: str = ""
    type: ExchangeKind = "topic"
    durable: bool = False
    bindings: tuple[Binding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredExchange:
    """The answer to a declare of an exchange.

    Attributes:
        created: Whether the call created the exchange; false when it existed before.
    """

    created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseChunk:
    """A piece of a queue that lies together on disk, for a parallel browse.

    Attributes:
        first_position: First position of the chunk.
        last_position: Last position of the chunk.
        messages: Number of messages in the chunk.
        payload_bytes: Payload bytes of the chunk's messages, approximately.
    """

    first_position: int = 0
    last_position: int = 0
    messages: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a session or runs a link (S3, L1).

    Attributes:
        host: Host name of the process.
        pid: Process id.
        since_us: When this process attached first, microseconds since the Unix epoch. Set by the
            broker.
        application: Name of the application, for operators.
    """

    host: str = ""
    pid: int = 0
    since_us: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session: its lease, its holder, and the Spark query that reads it.

    Attributes:
        session: Name of the session.
        incarnation: Incarnation of the session.
        queues: Names of the session's queues.
        epoch: Epoch of the session.
        floor_tag: Floor of the session: every tag up to it is accepted.
        end_tag: End of the outstanding lease, which is (floor_tag, end_tag].
        leased: Messages in the lease, holes not counted.
        holes: Holes in the lease.
        holder: The holder that attached last, without its token; with an empty host: nobody.
        live: Whether that holder counts as live (S3).
        proven: Whether a checkpoint is known to name this incarnation (S9).
        lease_age_ms: Age of the lease, milliseconds.
        query_id: Id of the Spark query that fetched last.
        batch_id: Id of the micro-batch that fetched last.
        attaches: Number of times holders have attached to the outstanding lease (S8).
        run_id: The run of the query that fetched last.
        session_timeout_ms: Session timeout, milliseconds: the lease is requeued when its owner is
            away for this time. 0: never (S5).
        detached: The owner was away for too long and the lease was requeued: a re-attach leases
            again the messages still ready (S5).
        holes_by_reason: Holes of the lease by reason: taken, settled, expired, purged, vanished
            (S5).
        settled: Tags of the lease that have a committed outcome other than accept (S6).
        queue_pattern: The pattern that finds the session's queues; empty: they are named (S10).
        fetched: Whether anything of the outstanding lease was fetched (S11).
        away_ms: How long the holder has not counted as live, milliseconds. 0 while it does.
        held_back: The session began in an older history and is refused until that is accepted (Q8).
        retain_ms: How long accepted batches can be read again, milliseconds (S13). 0: no bound by
            time.
        retain_bytes: How many payload bytes of accepted batches can be read again. 0: no bound by
            size.
        retained_batches: Accepted batches that can be read again, the one accepted last included.
        retained_payload_bytes: Payload bytes of the accepted messages of these batches.
        retained_from_batch: The oldest of these batches, by the query's number. -1: there is none,
            or its number is not known.
        retained_age_ms: How long ago the oldest of these batches was accepted, milliseconds.
    """

    session: str = ""
    incarnation: str = ""
    queues: tuple[str, ...] = ()
    epoch: int = 0
    floor_tag: int = 0
    end_tag: int = 0
    leased: int = 0
    holes: int = 0
    holder: Holder = field(default_factory=Holder)
    live: bool = False
    proven: bool = False
    lease_age_ms: int = 0
    query_id: str = ""
    batch_id: int = 0
    attaches: int = 0
    run_id: str = ""
    session_timeout_ms: int = 0
    detached: bool = False
    holes_by_reason: Mapping[str, int] = field(default_factory=dict)
    settled: int = 0
    queue_pattern: str = ""
    fetched: bool = False
    away_ms: int = 0
    held_back: bool = False
    retain_ms: int = 0
    retain_bytes: int = 0
    retained_batches: int = 0
    retained_payload_bytes: int = 0
    retained_from_batch: int = 0
    retained_age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedSession:
    """Numbers of messages that the release of a session requeued and dropped (S5).

    Attributes:
        released: Messages requeued.
        dropped: Messages dropped, because their queue was deleted (Q4).
    """

    released: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChunk:
    """A piece of a lease that lies together on disk.

    Attributes:
        last_tag: Last tag of the chunk; it begins after the previous chunk.
        payload_bytes: Payload bytes of the chunk, approximate where it is part of a block.
    """

    last_tag: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBatch:
    """An accepted batch that can be read again: the tags (after_tag, last_tag].

    Attributes:
        batch_id: The query's number of the batch. -1: not known.
        after_tag: Exclusive start of the tags.
        last_tag: Inclusive end of the tags.
        accepted_us: When it was accepted, microseconds since the Unix epoch.
        messages: Its messages, holes not counted.
        holes: Tags whose messages were purged since, deleted with their queue, or lost; and those
            that the batch never had.
        chunks: Where the tags can be cut into tasks.
    """

    batch_id: int = 0
    after_tag: int = 0
    last_tag: int = 0
    accepted_us: int = 0
    messages: int = 0
    holes: int = 0
    chunks: tuple[LeaseChunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBatches:
    """The retained batches that were asked for, oldest first; their tags follow each other.

    Attributes:
        incarnation: Incarnation of the session, to which the tags belong.
        batches: The batches.
    """

    incarnation: str = ""
    batches: tuple[RetainedBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledSession:
    """Numbers of messages that an operator's settlement of a lease settled (S8).

    Attributes:
        settled: Messages settled.
        dead_lettered: Settled messages that were moved to a dead-letter queue.
        epoch: The session's epoch from now on.
        dropped: Settled messages that were dropped: rejected without a dead-letter queue, or
            released to a deleted queue (Q4).
    """

    settled: int = 0
    dead_lettered: int = 0
    epoch: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewoundSession:
    """Batches and messages that are read again.

    Attributes:
        first_batch: The query's number of the first batch. -1: there is none, or its number is not
            known.
        batches: Number of batches.
        messages: Messages that are ready again; those that a rewind made ready before are not
            counted.
    """

    first_batch: int = 0
    batches: int = 0
    messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """Facts that only the process of a link knows (L26).

    Counts are since the process started.

    Attributes:
        window_messages: Maximum number of messages that the link holds unsettled; 0: not known.
        reconnects: Number of reconnects to the remote broker.
        renewals: Number of times that the link requeued held deliveries at the remote broker and
            received them again, before the remote broker would (L15).
        lives_left: Number of further deliveries before the remote delivery limit, for the message
            with the fewest left (L16); absent: no limit is known.
        limited_by: What the link waits for, as one word, such as `window`; empty: nothing.
        set_aside: Number of deliveries that this broker cannot take, counted each time (L29).
        set_aside_reason: Why the last delivery that was set aside could not be taken.
    """

    window_messages: int = 0
    reconnects: int = 0
    renewals: int = 0
    lives_left: int | None = None
    limited_by: str = ""
    set_aside: int = 0
    set_aside_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """A link from a remote broker (L26).

    Counts are since it was opened first.

    Attributes:
        link: Name of the link.
        incarnation: Incarnation of the link.
        epoch: Epoch of the link.
        holder: The process that runs the link, without its token; with an empty host: nobody.
        live: Whether the holder counts as live.
        source: The remote broker's queue.
        queue: Name of this broker's queue.
        ack: The event that an acknowledgement at the remote broker waits for (L9).
        paused: Whether an operator paused the link.
        opened_us: When the link was opened first, microseconds since the Unix epoch.
        held: Messages held: in this broker's queue, unacknowledged at the remote broker.
        settled: Messages settled at this broker that may be acknowledged at the remote broker and
            are not yet permitted.
        unproven: Acknowledgements permitted and not proven; the ones of earlier subscriptions are
            in doubt.
        in_doubt: Unproven acknowledgements of earlier subscriptions.
        tombstones: Origin keys kept of messages that have left the queue.
        held_oldest_age_ms: Age of the oldest held message, milliseconds.
        taken: Deliveries taken.
        stored: Deliveries stored as new messages.
        matched_held: Deliveries matched with a held message.
        matched_settled: Deliveries matched with a message that was settled before.
        ambiguous: Deliveries stored though a message of the same content may have been
            acknowledged.
        id_reused: Deliveries stored though their id was known, because their content differs.
        permitted: Acknowledgements permitted.
        proven: Acknowledgements proven.
        refusal: Why the link's deliveries are refused now; empty: they are not.
        report: Last report of the link's process; absent: no process runs it.
        reject_there: Whether messages rejected at this broker are rejected at the remote broker
            (L28).
        rejected: Permits that are rejections at the remote broker.
    """

    link: str = ""
    incarnation: str = ""
    epoch: int = 0
    holder: Holder = field(default_factory=Holder)
    live: bool = False
    source: str = ""
    queue: str = ""
    ack: LinkAckName = "settled"
    paused: bool = False
    opened_us: int = 0
    held: int = 0
    settled: int = 0
    unproven: int = 0
    in_doubt: int = 0
    tombstones: int = 0
    held_oldest_age_ms: int = 0
    taken: int = 0
    stored: int = 0
    matched_held: int = 0
    matched_settled: int = 0
    ambiguous: int = 0
    id_reused: int = 0
    permitted: int = 0
    proven: int = 0
    refusal: str = ""
    report: LinkReport = field(default_factory=LinkReport)
    reject_there: bool = False
    rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundReport:
    """An outbound link, as reported by its process (L26).

    Counts are since the process started.

    Attributes:
        link: Name of the link, which it does not reserve.
        queue: Name of this broker's queue.
        target: Target at the remote broker that the link publishes to, as text without credentials.
        holder: The process that runs the link; lists have no token.
        published: Messages that the remote broker confirmed.
        refused: Messages that the remote broker returned or nacked, counted at each try.
        unfit: Messages that the remote broker can never take, counted at each try.
        cuts: Number of connections to the remote broker that ended.
        stale: Confirmed messages whose accept came too late at this broker: they are published
            again.
        doubts: Messages without an answer at a cut: they are published again, under the same ids.
        reason: Why the last message was refused or unfit, the last connection ended, or the remote
            broker takes nothing now, in its words; at most 1,000 bytes.
        limited_by: What the link waits for, as one word: `connection`, `alarm` (the remote broker
            takes nothing), or `refusals` (refused messages are tried again); empty: nothing.
    """

    link: str = ""
    queue: str = ""
    target: str = ""
    holder: Holder = field(default_factory=Holder)
    published: int = 0
    refused: int = 0
    unfit: int = 0
    cuts: int = 0
    stale: int = 0
    doubts: int = 0
    reason: str = ""
    limited_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedLink:
    """Numbers of messages that a removed link held or had not proven (L25).

    Attributes:
        held: Messages that were held.
        unproven: Acknowledgements that were not proven.
    """

    held: int = 0
    unproven: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """Room that a staged batch reserves in a queue (K3).

    Attributes:
        queue: Name of the queue; empty when the queue no longer exists.
        rows: Number of rows for the queue.
        payload_bytes: Payload bytes of these rows.
        deleted: Whether the queue was deleted: a commit of the batch will be refused.
    """

    queue: str = ""
    rows: int = 0
    payload_bytes: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInfo:
    """A stage of a batch: the rows of one task (K3).

    Attributes:
        stage_id: Id of the stage.
        label: Partition and attempt of the task.
        run_id: The run of the query or job that wrote the stage.
        rows: Number of rows so far.
        payload_bytes: Payload bytes so far.
        sealed: Whether the stage is complete.
        age_ms: Time since the stage was last opened, filled or sealed, milliseconds.
    """

    stage_id: bytes = b""
    label: str = ""
    run_id: str = ""
    rows: int = 0
    payload_bytes: int = 0
    sealed: bool = False
    age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """A batch that is staged and not committed (K3).

    Attributes:
        writer: Name of the writer that stages the batch.
        batch_id: Id that the writer gave the batch: of a micro-batch of its query.
        run_id: The run that wrote to the batch last.
        stages: Number of stages of the batch.
        open_stages: Number of stages that a task is still writing; a commit that names one of them
            is refused.
        rows: Rows of all stages.
        payload_bytes: Payload bytes of all stages.
        age_ms: Time since one of the batch's stages was last opened, filled or sealed,
            milliseconds.
        committed: Whether the writer has committed this batch before: these rows are not written
            again, and take no room.
        targets: The queues in which the batch reserves room; the ones with most rows, at most 20.
        target_count: Number of all queues in which the batch reserves room.
        details: The stages, when a batch was asked for by name; at most 1,000.
        single: Whether the writer commits only one batch: a batch write, not a query.
        user: The user that owns the writer; empty: nobody (A10).
        edges: The edges for which the batch is prepared (K14); empty: it is not.
    """

    writer: str = ""
    batch_id: int = 0
    run_id: str = ""
    stages: int = 0
    open_stages: int = 0
    rows: int = 0
    payload_bytes: int = 0
    age_ms: int = 0
    committed: bool = False
    targets: tuple[BatchTarget, ...] = ()
    target_count: int = 0
    details: tuple[StageInfo, ...] = ()
    single: bool = False
    user: str = ""
    edges: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedBatch:
    """The stages and rows of a dropped batch (K3).

    Attributes:
        stages: Number of stages dropped.
        rows: Number of rows dropped.
        payload_bytes: Payload bytes of the dropped rows.
    """

    stages: int = 0
    rows: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterInfo:
    """A writer that the broker remembers (K3).

    Attributes:
        writer: Name of the writer.
        committed: Whether the writer has committed a batch.
        batch_id: The batch that the writer committed last; 0 for none.
        rows: Number of rows of the batch committed last.
        age_ms: Time since the writer last wrote to a stage or committed, milliseconds.
        stages: Number of stages that are not committed.
        single: Whether the writer commits only one batch: a batch write, not a query.
        user: The user that owns the writer; empty: nobody (A10).
    """

    writer: str = ""
    committed: bool = False
    batch_id: int = 0
    rows: int = 0
    age_ms: int = 0
    stages: int = 0
    single: bool = False
    user: str = ""
