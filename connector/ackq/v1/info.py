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
        version: Software version.
        history_id: Identity of the journal's history (Q8).
        sequence: Journal sequence decided last.
        synced: Journal sequence on disk.
        sync_mode: How the journal syncs: `fdatasync`, or `none` for a broker started without
            durability.
        history_cause: Why the history began: `copied`, `declared` (by an operator) or `repaired`.
            Empty: the journal's first.
        held_back: Publishers, sessions, writers and links of older histories, refused until
            AcceptHistory.
        memory_limit_bytes: Memory that the broker may use (P14).
        memory_used_bytes: Memory that it uses.
        blocked: Why publishers are blocked (P14). Empty: they are not.
        now_us: The broker's time, microseconds since the Unix epoch: what expiries and ages are
            counted by (Q8).
        uptime_ms: How long this process has served, milliseconds.
        clock_jump_ms: How far the machine's clock is ahead of the broker's time, milliseconds: a
            jump that is not believed yet, while nothing expires (Q8). 0: none.
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
    """What AcceptHistory readmitted (Q8).

    Attributes:
        history_id: The history accepted.
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
        directory: Where it is, on the broker's machine.
        sequence: Journal sequence up to which it has everything.
        total_bytes: Size of all its files.
        copied_bytes: What was written for it; the rest is shared with the broker's own files, which
            never change.
    """

    directory: str = ""
    sequence: int = 0
    total_bytes: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What is still under way in a broker (O6).

    With zeros alone a restart interrupts nobody.

    Attributes:
        draining: Whether the broker is being drained.
        unacked: Messages on channels that are not settled: a restart delivers them again.
        transactions: Transactions that are open: a restart rolls them back.
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
        durable: Survives a restart.
        max_length: Bound on messages. 0: none. With reject-publish, ready + delayed + unacked +
            staged ones count, and a publish beyond is nacked; with drop-head the ready ones alone,
            as only they can be dropped (Q3).
        max_bytes: Bound on payload bytes, of the same messages. 0: none.
        overflow: What to do at the bound.
        message_ttl_ms: Messages expire so long after publish, milliseconds. 0: never.
        expires_ms: The queue goes when unused so long, milliseconds. 0: never.
        delivery_limit: FAILED deliveries allowed. 0: no limit.
        dead_letter_queue: The dead-letter queue's name. Empty: none.
        redelivery_delay_ms: First redelivery delay, milliseconds. 0: none.
        redelivery_delay_max_ms: Largest redelivery delay, milliseconds; the delay doubles up to it.
        drop_on_limit: Without a dead-letter queue: drop at the delivery limit.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: its properties, what it holds now, and its counts since it was declared.

    Attributes:
        queue: Its name.
        queue_id: Its id.
        properties: Its properties.
        ready: Messages a consumer could get now.
        unacked: Messages leased to sessions or unacked on channels.
        staged: Messages staged by writers and not committed.
        payload_bytes: Payload bytes of ready and unacked messages.
        oldest_age_ms: Age of the oldest message, milliseconds. 0: it is empty.
        sessions: Names of the sessions that read it.
        published: Messages ever put in.
        accepted: Messages ever accepted.
        delayed: Messages put back with a delay that is not over (C14); neither ready nor unacked.
        expired: Messages that ever expired (Q3).
        dead_lettered: Messages ever moved from here to a dead-letter queue (C13).
        dropped: Messages ever discarded: rejected or expired without a dead-letter queue, over a
            bound, in a cycle, or lost with a damaged block that was repaired.
        consumers: Consumers on channels (C8).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """The answer to a declare of a queue.

    Attributes:
        queue_id: Its id, never reused.
        created: False when it was there before.
        warnings: Sentences for who declared it: properties that do not do what they seem to do
            (Q1).
    """

    queue_id: int = 0
    created: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedQueue:
    """What a deleted queue held.

    Attributes:
        ready: Ready messages removed.
        unacked: Unacked messages left to their owners.
    """

    ready: int = 0
    unacked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive moved, and what it left (Q6).

    Attributes:
        messages: Messages moved.
        left: Ready messages in the range, of that cause and reason, that stay: beyond max_messages
            or the bound of a record, or their queue is gone or full, or they never were
            dead-lettered.
        last_position: The last position of the range; the queue's last one if the request named
            none. A caller that goes on names it, so that what dies again meanwhile is not moved
            again.
    """

    messages: int = 0
    left: int = 0
    last_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one session or one channel holds of a queue (Q9).

    Attributes:
        session: The session's name; empty: a channel's.
        channel: The channel's label: host and process id, unless its client chose another. Empty: a
            session's.
        messages: How many messages it holds.
        payload_bytes: Their payload bytes.
        stored_bytes: Bytes of the journal that stay because of them: those of every block that has
            one of them.
        first_position: Their lowest position.
        last_position: Their highest position.
        age_ms: Since the oldest of them was leased or delivered, milliseconds.
        oldest_age_ms: Since the oldest of them was published, milliseconds.
        connected: Its client is connected: that of a channel, or the live holder of a session (S3).
        quiet_ms: Since the channel settled anything, or else since it began, milliseconds. 0 for a
            session.
        delivery_tag: The delivery tag of the message asked for; 0 when none was.
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
        consumer: Its name, unique on its channel.
        channel: The channel's label.
        prefetch: The most messages that it may have unacked. 0: no bound.
        unacked: Messages that it has unacked.
        no_ack: It takes messages without acks (C10).
        has_room: It can be delivered more now.
        connected: Its client is connected.
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
    """Who holds messages of a queue, and what else keeps them from being delivered (Q9).

    The holdings together have each unacked message once.

    Attributes:
        holdings: Those that hold the longest first; at most 1,000.
        holding_count: How many there are.
        consumers: Its consumers on channels; at most 1,000.
        next_ready_ms: Until the first delayed message is ready, milliseconds. 0: none is delayed,
            or it is ready in an instant.
        next_expiry_ms: Until the first message expires, milliseconds. 0: none will, or one does in
            an instant.
        staged_bytes: Payload bytes of what is staged for it.
        most_failures: The most failed deliveries that a message in it has had (C13).
        oldest_position: The lowest position of a message in it. 0: it is empty.
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
        queue: The queue's name.
        binding_key: The binding key.
    """

    queue: str = ""
    binding_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeInfo:
    """An exchange and its bindings.

    Attributes:
        exchange: Its name.
        type: How it routes (Q2).
        durable: Survives a restart.
        bindings: Its bindings.
    """

    exchange: str = ""
    type: ExchangeKind = "topic"
    durable: bool = False
    bindings: tuple[Binding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredExchange:
    """The answer to a declare of an exchange.

    Attributes:
        created: False when it was there before.
    """

    created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseChunk:
    """A piece of a queue that lies together on disk, for a parallel browse.

    Attributes:
        first_position: First position.
        last_position: Last position.
        messages: Messages in it.
        payload_bytes: Their payload bytes, approximately.
    """

    first_position: int = 0
    last_position: int = 0
    messages: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a session or runs a link (S3, L1).

    Attributes:
        host: Host name.
        pid: Process id.
        since_us: When this process attached first, microseconds since the Unix epoch. Set by the
            broker.
        application: Application, for operators.
    """

    host: str = ""
    pid: int = 0
    since_us: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session: its lease, its holder, and the Spark query that reads it.

    Attributes:
        session: Its name.
        incarnation: Its incarnation.
        queues: Its queues' names.
        epoch: Its epoch.
        floor_tag: Everything up to here is accepted.
        end_tag: The outstanding lease is (floor_tag, end_tag].
        leased: Messages in the lease, holes not counted.
        holes: Holes in the lease.
        holder: Who attached last, without its token; with an empty host: nobody.
        live: Whether that holder counts as live (S3).
        proven: Whether a checkpoint is known to name this incarnation (S9).
        lease_age_ms: Age of the lease, milliseconds.
        query_id: The Spark query that fetched last.
        batch_id: The micro-batch that fetched last.
        attaches: Attaches of the outstanding lease (S8).
        run_id: The run of that query.
        session_timeout_ms: The lease goes back when the owner is away so long, milliseconds. 0:
            never (S5).
        detached: The owner was away for too long and the lease went back: a re-attach leases again
            what is still ready (S5).
        holes_by_reason: Holes of the lease by reason: taken, settled, expired, purged, vanished
            (S5).
        settled: Tags of the lease that have a committed outcome other than accept (S6).
        queue_pattern: The pattern that finds its queues; empty: they are named (S10).
        fetched: Anything of the outstanding lease was fetched (S11).
        away_ms: How long the holder has not counted as live, milliseconds. 0 while it does.
        held_back: It began in an older history and is refused until that is accepted (Q8).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedSession:
    """What the release of a session put back (S5).

    Attributes:
        released: Messages put back.
        dropped: Messages that are gone, because their queue was deleted (Q4).
    """

    released: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledSession:
    """What an operator's settlement of a lease did (S8).

    Attributes:
        settled: Messages settled.
        dead_lettered: Of these, moved to a dead-letter queue.
        epoch: The session's epoch from now on.
        dropped: Of those settled, gone: without a dead-letter queue, or to be put back when their
            queue was deleted (Q4).
    """

    settled: int = 0
    dead_lettered: int = 0
    epoch: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """What only the process of a link knows (L26).

    Counts are since the process started.

    Attributes:
        window_messages: Most messages that it takes unsettled; 0: not known.
        reconnects: How often it connected to the remote broker again.
        renewals: How often it gave held deliveries back and took them again, before the remote
            broker would (L15).
        lives_left: Deliveries that the message with the fewest has left before the remote broker
            drops it (L16); absent: there is no limit.
        limited_by: What it waits for, in a word, such as `window`; empty: nothing.
        set_aside: Deliveries that this broker cannot take, each time one came (L29).
        set_aside_reason: Why the last of these could not be taken.
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
        link: Its name.
        incarnation: Its incarnation.
        epoch: Its epoch.
        holder: Who runs it, without its token; with an empty host: nobody.
        live: Whether the holder is heard.
        source: The remote broker's queue.
        queue: The queue of this broker.
        ack: What an acknowledgement at the remote broker waits for (L9).
        paused: Whether an operator paused it.
        opened_us: When it was opened first, microseconds since the Unix epoch.
        held: Messages held: in the queue here, unacknowledged at the remote broker.
        settled: Messages settled here that may be acknowledged at the remote broker and are not yet
            permitted.
        unproven: Acknowledgements permitted and not proven; those of earlier subscriptions are in
            doubt.
        in_doubt: Unproven acknowledgements of earlier subscriptions.
        tombstones: Origin keys kept of messages that are gone.
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
        refusal: Why its deliveries are refused now; empty: they are not.
        report: What its process told last; absent: nobody runs it.
        reject_there: Whether what is rejected here is rejected at the remote broker (L28).
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
    """An outbound link, as its process tells of it (L26).

    Counts are since it started.

    Attributes:
        link: Its name, on which it has no claim.
        queue: This broker's queue.
        target: Where it publishes at the other broker, in words without credentials.
        holder: Who runs it; lists have no token.
        published: Messages that the other broker confirmed.
        refused: Messages that it returned or nacked, each time.
        unfit: Messages that it can never take, each time.
        cuts: Connections to it that ended.
        stale: Confirmed messages whose accept came too late here: they are published again.
        doubts: Messages without an answer at a cut: they are published again, under the same ids.
        reason: Why the last message was refused or unfit, the last connection ended, or the other
            broker takes nothing now, in its words; at most 1,000 bytes.
        limited_by: What it waits for, in a word: `connection`, `alarm` (the other broker takes
            nothing), or `refusals` (what was refused is tried again); empty: nothing.
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
    """What a removed link held (L25).

    Attributes:
        held: Messages that were held.
        unproven: Acknowledgements that were not proven.
    """

    held: int = 0
    unproven: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """Room that a staged batch holds in a queue (K3).

    Attributes:
        queue: The queue's name; empty when it is gone.
        rows: Rows for it.
        payload_bytes: Their payload bytes.
        deleted: The queue was deleted: a commit of the batch will be refused.
    """

    queue: str = ""
    rows: int = 0
    payload_bytes: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInfo:
    """A stage of a batch: the rows of one task (K3).

    Attributes:
        stage_id: Its id.
        label: Partition and attempt of the task.
        run_id: The run of the query or job that wrote it.
        rows: Rows so far.
        payload_bytes: Their payload bytes.
        sealed: It is complete.
        age_ms: Since it was opened, filled or sealed, milliseconds.
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
        writer: The writer that stages it.
        batch_id: The id that the writer gave it: of a micro-batch of its query.
        run_id: The run that wrote to it last.
        stages: How many stages it has.
        open_stages: Stages that a task is still writing; a batch with one cannot be committed.
        rows: Rows of all stages.
        payload_bytes: Payload bytes of all stages.
        age_ms: Since one of its stages was opened, filled or sealed, milliseconds.
        committed: The writer has committed this batch before: these rows are not written again, and
            take no room.
        targets: The queues that it holds room in; those with most rows, at most 20.
        target_count: How many queues those are in all.
        details: The stages, when a batch was asked for by name; at most 1,000.
        single: The writer commits one batch alone: a batch write, not a query.
        user: The user that the writer belongs to; empty: nobody (A10).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedBatch:
    """What was staged of a dropped batch (K3).

    Attributes:
        stages: Stages dropped.
        rows: Their rows.
        payload_bytes: Their payload bytes.
    """

    stages: int = 0
    rows: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterInfo:
    """A writer that the broker remembers (K3).

    Attributes:
        writer: Its name.
        committed: It has committed a batch.
        batch_id: The batch that it committed last; 0 for none.
        rows: Rows of that batch.
        age_ms: Since it wrote to a stage or committed, milliseconds.
        stages: Stages that are not committed.
        single: It commits one batch alone: a batch write, not a query.
        user: The user that it belongs to; empty: nobody (A10).
    """

    writer: str = ""
    committed: bool = False
    batch_id: int = 0
    rows: int = 0
    age_ms: int = 0
    stages: int = 0
    single: bool = False
    user: str = ""
