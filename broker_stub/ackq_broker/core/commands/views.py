"""Replies of queries: pieces of a fetch or browse, and the views of operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ackq_broker.core.commands.sessions import HolderInfo
from ackq_broker.core.commands.writer_batches import BatchKey
from ackq_broker.core.fields import QueueProperties


class Run(NamedTuple):
    """Consecutive rows of a piece.

    Tags (or positions) from `first_tag`, all delivered `delivery_count` times.
    """

    first_tag: int
    rows: int
    delivery_count: int
    leased: bool = True


class Origin(NamedTuple):
    """Origin of dead letters, for the headers that their consumer gets (C13).

    Attributes:
        queue: The queue they came from; `positions` are their positions in it, one for each row.
        delivery_counts: How often each was delivered there.
        cause: "expired", "rejected" or "delivery_limit".
        reason: The reason of the rejection or of the last failure, else the cause.
        dead_lettered_us: When they were dead-lettered.
        first_queue: The queue that they were dead-lettered from first.
        times: How often they were dead-lettered from `queue` for this cause.
        session: The session that settled them and its batch; "" and -1 when it was none.
    """

    queue: str
    positions: np.ndarray[Any, np.dtype[np.int64]]
    delivery_counts: np.ndarray[Any, np.dtype[np.int64]]
    cause: str
    reason: str
    dead_lettered_us: int
    first_queue: str
    times: int
    session: str = ""
    batch_id: int = -1


class MessageIdentity(NamedTuple):
    """Globally unique identity of messages: history, queue id, position (L23).

    A queue id is never reused in a history, and a position never in a queue.
    """

    history_id: str
    queue_id: int
    positions: np.ndarray[Any, np.dtype[np.int64]]


class Piece(NamedTuple):
    """Rows of one block that belong to a delivery, fetch or browse, in tag (position) order.

    `rows` is a `(first, count)` pair when consecutive, else an array of row indices (uint32).
    `origin` applies to every row; None when they are no dead letters. `identity` has the position
    of each row; None when it was not requested. `rewound` is the batch that all rows were accepted
    with before a rewind (S14), plus 2; 1: a channel accepted them; 0: there was no rewind.
    """

    block_id: int
    queue: str
    rows: tuple[int, int] | np.ndarray[Any, np.dtype[np.uint32]]
    runs: tuple[Run, ...]
    origin: Origin | None = None
    identity: MessageIdentity | None = None
    rewound: int = 0


@dataclass(frozen=True, slots=True)
class FetchLabel:
    """The query that reads a session, for operators; `label` is the label of its latest fetch."""

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
    """A queue as an operator sees it.

    Counts since it was declared: `published` and `accepted` messages; `expired` messages; messages
    `dead_lettered` for any cause; and `dropped` messages: rejected, expired or failed too often
    without a dead-letter queue, over a bound, or in a cycle of expiries. Counts since the process
    began: messages `delivered`, `redelivered`, and `dead_letters` by cause. `dead_letters_held` is
    the number of its messages that came from another queue as dead letters. Of what channels
    accepted, it retains `retained` messages (S13), since `retained_since_us`.
    """

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
    delayed: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    consumers: int = 0
    delivered: int = 0
    redelivered: int = 0
    dead_letters: tuple[tuple[str, int], ...] = ()
    dead_letters_held: int = 0
    retained: int = 0
    retained_payload_bytes: int = 0
    retained_since_us: int = 0


class QueueUse(NamedTuple):
    """References to a queue, each kind listed up to a bound; the counts are complete.

    Attributes:
        bindings: (exchange, binding key) pairs that name it.
        batches: (batch, rows) that writers have staged for it, oldest first.
        sources: The queues whose dead letters come to this one.
    """

    bindings: tuple[tuple[str, str], ...]
    batches: tuple[tuple[BatchKey, int], ...]
    sources: tuple[str, ...]
    binding_count: int
    batch_count: int
    source_count: int


class DeadLetterGroup(NamedTuple):
    """Dead letters of a queue that came from the same queue, for the same cause and reason."""

    queue: str
    cause: str
    reason: str
    messages: int


class HoldingInfo(NamedTuple):
    """Messages of a queue that one session or one channel holds (Q9).

    `blocks` are the ids of the blocks in which the messages lie. `since_us` is when a session
    leased them, 0 for a channel; `oldest_us`: when the oldest was published. `first_tag` is the
    lowest tag of these messages.
    """

    session: str
    channel_id: bytes
    messages: int
    payload_bytes: int
    blocks: np.ndarray[Any, np.dtype[np.int64]]
    first_position: int
    last_position: int
    since_us: int
    oldest_us: int
    first_tag: int


class Waiting(NamedTuple):
    """Messages of a queue that wait for something other than a consumer (Q9).

    Attributes:
        next_ready_us: When the first delayed message is ready (C14); 0 for none.
        next_expiry_us: When the first message expires (Q3); 0 for none.
        staged_bytes: Payload of staged rows (K3).
        most_failures: The most failed deliveries of a message (C13).
        oldest_position: The lowest position; 0 for an empty queue.
    """

    next_ready_us: int
    next_expiry_us: int
    staged_bytes: int
    most_failures: int
    oldest_position: int


class ExchangeInfo(NamedTuple):
    """An exchange with its bindings as (queue, binding key) pairs."""

    exchange: str
    kind: str
    durable: bool
    bindings: tuple[tuple[str, str], ...]


class SessionInfo(NamedTuple):
    """A session as an operator sees it; `since_us` is when its holder first attached.

    `holder` is None when its epoch was ended by the timeout or an operator (S5, S8).
    `holes_by_reason` counts the holes of the lease (S5), and `settled` its tags with a committed
    outcome other than accept (S6). `fetched`: anything of the lease was fetched (S11); `refused`:
    it began in an older history (Q8). `named` says whether a query gave it its name, and `heard_us`
    is when it last attached or accepted. `retained_batches` can be read again (S13):
    `retained_from_batch` is the oldest of them, accepted at `retained_since_us`.
    """

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
    run_id: str = ""
    session_timeout_ms: int = 0
    detached: bool = False
    holes_by_reason: tuple[tuple[str, int], ...] = ()
    settled: int = 0
    queue_pattern: str = ""
    fetched: bool = False
    refused: bool = False
    named: bool = True
    heard_us: int = 0
    retain_ms: int = 0
    retain_bytes: int = 0
    retained_batches: int = 0
    retained_payload_bytes: int = 0
    retained_from_batch: int = -1
    retained_since_us: int = 0


class BatchTarget(NamedTuple):
    """Space that a batch reserves in a queue (K3); `queue` is "" when the queue was removed."""

    queue: str
    rows: int
    payload_bytes: int
    deleted: bool


class StageInfo(NamedTuple):
    """A stage as an operator sees it; `touched_us` is when it last changed."""

    stage_id: bytes
    label: str
    run_id: str
    rows: int
    payload_bytes: int
    sealed: bool
    touched_us: int


class BatchInfo(NamedTuple):
    """A staged batch as an operator sees it.

    `stages` are ordered by their last change, the earliest first; `committed`: its writer has
    already committed it, and its rows take no room; `edges`: for which it is prepared (K14).
    """

    batch: BatchKey
    stages: tuple[StageInfo, ...]
    targets: tuple[BatchTarget, ...]
    committed: bool
    single: bool
    user: str
    edges: str


class Unfinished(NamedTuple):
    """Work that a restart would interrupt: unacked channel messages, transactions, open stages."""

    unacked: int
    transactions: int
    stages: int


class WriterInfo(NamedTuple):
    """A writer as an operator sees it.

    `batch_id` is -1 when it has committed none; `user` is empty when nobody owns it (A10).
    """

    writer: str
    batch_id: int
    rows: int
    touched_us: int
    stages: int
    single: bool
    user: str
