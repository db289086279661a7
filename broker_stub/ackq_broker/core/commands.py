"""What the core can be asked (commands) and what it answers (replies).

It is the whole interface between service and core, and holds no behaviour.

Commands that change state go through `Core.decide`, which returns a `Decision`; queries are plain
methods that read. Times are microseconds since the Unix epoch by the broker's own clock, which
never runs backwards (Q8).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from pyroaring import BitMap, BitMap64

    from ackq.errors import AckqError
    from ackq_broker.core.records import Record


class Decision(NamedTuple):
    """What a command leads to.

    Attributes:
        records: To be applied in order, then appended to the journal as one unit (same group).
        reply: The answer; leaves when the journal has synced up to the last record.
        after: When not None, the answer may leave as soon as the journal has synced this sequence
            instead
            (transient publishes: the topology they depend on, P5). With no records and None, the
            answer waits for everything decided so far (I1).
    """

    records: tuple[Record, ...] = ()
    reply: Any = None
    after: int | None = None


class Route(NamedTuple):
    """One distinct routing key of a block.

    `rows` are the block's rows that have it, None means every row.
    """

    routing_key: str
    rows: BitMap | None = None


# --- topology (Q1, Q2, Q4) ---


@dataclass(frozen=True, slots=True)
class QueueProperties:
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


@dataclass(frozen=True, slots=True)
class DeclareQueue:
    """Reply: `DeclaredQueue`.

    Errors: PropertiesDifferError, QueueNotFoundError (passive), LimitError, UnsupportedError.
    """

    queue: str
    properties: QueueProperties = field(default_factory=QueueProperties)
    passive: bool = False


class DeclaredQueue(NamedTuple):
    """Reply to `DeclareQueue`."""

    queue_id: int
    created: bool


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Reply: `DeletedQueue`. Errors: QueueNotFoundError, InUseError."""

    queue: str
    force: bool = False
    if_empty: bool = False


class DeletedQueue(NamedTuple):
    """Reply to `DeleteQueue`."""

    ready: int
    unacked: int


@dataclass(frozen=True, slots=True)
class PurgeQueue:
    """Reply: int, the ready messages removed. Errors: QueueNotFoundError."""

    queue: str


@dataclass(frozen=True, slots=True)
class DeclareExchange:
    """Reply: bool, created. `kind` is "direct", "fanout" or "topic".

    Errors: PropertiesDifferError, LimitError.
    """

    exchange: str
    kind: str
    durable: bool = True


@dataclass(frozen=True, slots=True)
class DeleteExchange:
    """Reply: int, bindings removed.

    Errors: ExchangeNotFoundError, InvalidArgumentError (the default exchange).
    """

    exchange: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Reply: bool, created. Errors: ExchangeNotFoundError, QueueNotFoundError, LimitError."""

    exchange: str
    queue: str
    binding_key: str


@dataclass(frozen=True, slots=True)
class Unbind:
    """Reply: bool, removed. Errors: ExchangeNotFoundError, QueueNotFoundError."""

    exchange: str
    queue: str
    binding_key: str


# --- publishing (P) ---


@dataclass(frozen=True, slots=True)
class OpenPublisher:
    """Reply: None. Makes the de-duplication state, or refuses a `resume` of a forgotten id.

    (PublisherForgottenError).
    """

    publisher_id: bytes
    resume: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class ClosePublisherStream:
    """Reply: None. The publisher's last stream ended: its state is dropped 7 days from now.

    (P10).
    """

    publisher_id: bytes


@dataclass(frozen=True, slots=True)
class Publish:
    """Publishes the rows of one block. Reply: `Published`.

    Errors: ExchangeNotFoundError, PublisherForgottenError.

    Attributes:
        numbers: The publish number of each row, ascending in row order; cardinality equals `rows`.
        lowest_unanswered: Accepted numbers below it are forgotten.
        routes: The block's distinct routing keys; they cover every row exactly once.
        persistent: Delivery mode of all rows (the service splits a mixed frame into two commands).
    """

    publisher_id: bytes
    numbers: BitMap64
    lowest_unanswered: int
    exchange: str
    mandatory: bool
    routes: tuple[Route, ...]
    rows: int
    payload_bytes: int
    persistent: bool


class Nack(NamedTuple):
    """Numbers refused together, and why."""

    numbers: BitMap64
    reason: AckqError


class Published(NamedTuple):
    """Reply to `Publish`; confirmed and nacked together are `numbers` (P3).

    `block_id` is the id under which the service hands the block to the journal (None: no row was
    placed, drop it); `durable` says whether to the journal or to the transient store. `returned` is
    the part of `confirmed` that no queue wanted and that was mandatory: its return goes first (P7).
    """

    confirmed: BitMap64
    returned: BitMap64
    nacks: tuple[Nack, ...] = ()
    block_id: int | None = None
    durable: bool = True


# --- writer batches (K3, K12) ---


@dataclass(frozen=True, slots=True)
class OpenStage:
    """Reply: None. Errors: BatchOrderError (batch already passed), FencedError.

    (stage id used), LimitError.
    """

    stage_id: bytes
    writer: str
    batch_id: int
    run_id: str
    label: str = ""
    mandatory: bool = True


@dataclass(frozen=True, slots=True)
class StageBlock:
    """Adds a block. Reply: `StagedBlock`.

    Errors: UnroutableError, QueueFullError, ExchangeNotFoundError, FencedError
    (the stage was dropped meanwhile). On an error nothing of the block is kept.
    """

    stage_id: bytes
    exchange: str
    routes: tuple[Route, ...]
    rows: int
    payload_bytes: int


class StagedBlock(NamedTuple):
    """Reply to `StageBlock`; `block_id` is None when no queue wanted any row (not mandatory)."""

    rows: int
    block_id: int | None


@dataclass(frozen=True, slots=True)
class SealStage:
    """Reply: None. Errors: StageMismatchError (counts differ from what arrived), FencedError."""

    stage_id: bytes
    rows: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class DropStage:
    """Reply: None. The upload ended without a seal. Unknown or sealed stages are left alone."""

    stage_id: bytes


class StageRef(NamedTuple):
    """A stage as its writer counted it."""

    stage_id: bytes
    rows: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Reply: `CommittedBatch`. Errors: StageMismatchError, BatchOrderError."""

    writer: str
    batch_id: int
    run_id: str
    execution_id: str
    stages: tuple[StageRef, ...]


class CommittedBatch(NamedTuple):
    """Reply to `CommitBatch`."""

    rows: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class AbortBatch:
    """Reply: int, stages dropped."""

    writer: str
    batch_id: int
    stage_ids: tuple[bytes, ...]


# --- sessions (S) ---


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """Who calls (S3)."""

    token: bytes
    host: str = ""
    pid: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True)
class Advance:
    """S4, S9. Reply: `Advanced`.

    Errors: AlreadyHeldError, FencedError, SessionNotFoundError, CheckpointMismatchError,
    LeaseHeldError, QueueNotFoundError.

    Attributes:
        incumbent_live: Whether the session's present holder counts as live; only the service can
            know (S3).
        horizon: 0 for none; else only what became ready at or before this sequence is leased anew
            (K5).
    """

    session: str
    incarnation: str
    holder: HolderInfo
    queues: tuple[str, ...]
    start_tag: int
    max_messages: int = 0
    max_bytes: int = 0
    min_messages: int = 0
    max_delay_ms: int = 0
    horizon: int = 0
    open_and_lease: bool = False
    takeover: bool = False
    session_timeout_ms: int = 0
    incumbent_live: bool = False
    new_incarnation: str = ""  # randomness comes from outside: 32 hex digits for an opening


class Chunk(NamedTuple):
    """A piece of a lease; it ends at `last_tag` and begins after the chunk before."""

    last_tag: int
    payload_bytes: int


class Backlog(NamedTuple):
    """What waits in a session's queues.

    `oldest_us` is the publish time of the oldest message, 0 for none.
    """

    ready: int
    unacked: int
    oldest_us: int
    redelivered: int


class Advanced(NamedTuple):
    """Reply to `Advance`; `end_tag == start_tag` when nothing is leased."""

    session: str
    incarnation: str
    epoch: int
    end_tag: int
    chunks: tuple[Chunk, ...]
    backlog: Backlog
    other_sessions: tuple[str, ...]
    attaches: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attach:
    """Reply: `Attached`. Attaches for a replay of exactly (start_tag, end_tag].

    That is the outstanding lease, or the one accepted last while it is kept (K2).

    Errors as `Advance`.
    """

    session: str
    incarnation: str
    holder: HolderInfo
    start_tag: int
    end_tag: int
    incumbent_live: bool = False


class Attached(NamedTuple):
    """Reply to `Attach`."""

    epoch: int
    chunks: tuple[Chunk, ...]
    attaches: int


@dataclass(frozen=True, slots=True)
class ReleaseSession:
    """Reply: int, messages put back.

    Errors: SessionNotFoundError, AlreadyHeldError (live and not `fence`).
    """

    session: str
    fence: bool = False
    incumbent_live: bool = False


# --- housekeeping ---


@dataclass(frozen=True, slots=True)
class Start:
    """First command of a process: drops what did not survive the restart (Q7). Reply: `Started`."""

    history_id: str


class Started(NamedTuple):
    """Reply to `Start`: messages that were transient and are gone."""

    vanished: int


@dataclass(frozen=True, slots=True)
class Housekeep:
    """Drops what is past its retention.

    Publishers and stages after 7 days, unproven sessions after one. Reply: None.

    Attributes:
        live_sessions: Names of the sessions whose holder is live, which only the service can know;
            they stay.
    """

    live_sessions: frozenset[str] = frozenset()


Command = (
    DeclareQueue
    | DeleteQueue
    | PurgeQueue
    | DeclareExchange
    | DeleteExchange
    | Bind
    | Unbind
    | OpenPublisher
    | ClosePublisherStream
    | Publish
    | OpenStage
    | StageBlock
    | SealStage
    | DropStage
    | CommitBatch
    | AbortBatch
    | Advance
    | Attach
    | ReleaseSession
    | Start
    | Housekeep
)


# --- queries ---


class Run(NamedTuple):
    """Consecutive rows of a piece.

    Tags (or positions) from `first_tag`, all delivered `delivery_count` times.
    """

    first_tag: int
    rows: int
    delivery_count: int
    leased: bool = True


class Piece(NamedTuple):
    """Rows of one block that belong to a fetch or browse, in tag (position) order.

    `rows` is a `(first, count)` pair when consecutive, else an array of row indices (uint32).
    """

    block_id: int
    queue: str
    rows: tuple[int, int] | np.ndarray[Any, np.dtype[np.uint32]]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class FetchLabel:
    """Which query reads: kept for operators, not journalled."""

    query_id: str = ""
    batch_id: int = 0
    label: str = ""


class BrowseChunk(NamedTuple):
    """A piece of a queue for a parallel browse."""

    first_position: int
    last_position: int
    messages: int
    payload_bytes: int


class QueueInfo(NamedTuple):
    """A queue as an operator sees it."""

    queue: str
    queue_id: int
    properties: QueueProperties
    ready: int
    unacked: int
    staged: int
    payload_bytes: int
    oldest_us: int
    sessions: tuple[str, ...]
    published: int
    accepted: int


class ExchangeInfo(NamedTuple):
    """An exchange with its bindings as (queue, binding key) pairs."""

    exchange: str
    kind: str
    durable: bool
    bindings: tuple[tuple[str, str], ...]


class SessionInfo(NamedTuple):
    """A session as an operator sees it; `since_us` is when its holder attached first."""

    session: str
    incarnation: str
    queues: tuple[str, ...]
    epoch: int
    floor_tag: int
    end_tag: int
    leased: int
    holes: int
    holder: HolderInfo | None
    since_us: int
    proven: bool
    leased_at_us: int
    fetch: FetchLabel
    attaches: int
