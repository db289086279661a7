"""The state that records fold into: plain data, mutated only by `apply` functions.

Invariant: it is a function of the records applied, byte for byte (I2); nothing in it comes from a
clock or from randomness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from pyroaring import BitMap64

from ackq.outcomes import Outcome
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import BatchKey
from ackq_broker.core.fields import Holder, RoutedRows, TagOutcome
from ackq_broker.core.stages import EdgeStages
from ackq_broker.core.state.block_references import BlockReferences
from ackq_broker.core.state.channel import ChannelTags
from ackq_broker.core.state.exchange import Exchange
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.route_cache import RouteCache
from ackq_broker.core.state.signals import Signals


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A span of the journal (Q8): its id, when it was first served, and why it began."""

    history_id: str
    began_us: int
    cause: str = ""


class StagedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block of a stage or transaction: where its rows will go, and if it survives a restart."""

    block_id: int
    parts: tuple[RoutedRows, ...]
    durable: bool = True


class Transaction(msgspec.Struct, forbid_unknown_fields=True):
    """A publisher's uncommitted transaction (P13); `rows` includes rows that matched no queue.

    `returned` are the numbers that were returned, by exchange (P7).
    """

    transaction_id: bytes
    rows: int = 0
    blocks: list[StagedRows] = msgspec.field(default_factory=list)
    returned: dict[str, BitMap64] = msgspec.field(default_factory=dict)


class Publisher(msgspec.Struct, forbid_unknown_fields=True):
    """State kept for a publisher (P10).

    Attributes:
        lowest_unanswered: Every number below it was answered; none of them is in the bitmaps.
        accepted: Numbers placed that survive a restart; `transient`: numbers placed that do not.
        closed_us: When its last stream ended; 0 while it has one.
        transactional: Its mode (P1): in transaction mode the numbers above are not used, in confirm
            mode the transaction fields below.
        transaction: The open one, if any.
        committed_id: The transaction committed last, with `committed_messages` messages (P13);
            empty for none.
        committed_returned: The returned numbers of the transaction committed last, by exchange
            (P7).
        history: The number of the history in which it was first opened (Q8).
        user: The user that owns it; empty: nobody (A10).
        attempt: The attempt of its last opening.
    """

    publisher_id: bytes
    label: str
    lowest_unanswered: int = 1
    accepted: BitMap64 = msgspec.field(default_factory=BitMap64)
    transient: BitMap64 = msgspec.field(default_factory=BitMap64)
    closed_us: int = 0
    transactional: bool = False
    transaction: Transaction | None = None
    committed_id: bytes = b""
    committed_messages: int = 0
    history: int = 0
    committed_returned: dict[str, BitMap64] = msgspec.field(default_factory=dict)
    user: str = ""
    attempt: bytes = b""

    @property
    def highest(self) -> int:
        """The highest number that was placed and is not known to be answered; 0 for none."""
        return max((seen.max() for seen in (self.accepted, self.transient) if seen), default=0)

    @property
    def shown(self) -> int:
        """The lowest number of which the broker has no record."""
        return max(self.lowest_unanswered, self.highest + 1)

    @property
    def used(self) -> bool:
        """Whether the publisher has published anything, as far as the broker knows."""
        return self.shown > 1 or bool(self.committed_id)


class Stage(msgspec.Struct, forbid_unknown_fields=True):
    """One task's rows of a writer's batch (K3); `touched_us` is when it last changed.

    Attributes:
        prepared: Whether it stays until its batch is committed (K14).
    """

    stage_id: bytes
    writer: str
    batch_id: int
    run_id: str
    label: str
    mandatory: bool
    touched_us: int
    rows: int = 0
    payload_bytes: int = 0
    sealed: bool = False
    blocks: list[StagedRows] = msgspec.field(default_factory=list)
    prepared: bool = False

    @property
    def batch(self) -> BatchKey:
        """The batch that the stage is part of."""
        return BatchKey(self.writer, self.batch_id)


class Writer(msgspec.Struct, forbid_unknown_fields=True):
    """The batch a writer committed last, -1 for none, and its runs, latest last (K3, K12).

    Attributes:
        executions: For the batch committed last: by run, the SQL execution that wrote it or found
            it written. Another execution of that run is another write.
        history: The number of the history in which it was first seen (Q8).
        single: Whether it commits once and cannot be run again: a write without a `txnAppId`.
        touched_us: When it last opened, filled or sealed a stage, or committed.
        run_id: The run that committed the batch; `target`: where its rows went, by the writer's
            name for it; empty where that is not known.
        reached: By run, the batch that it last wrote or found written (K3).
        user: The user that owns it; empty: nobody (A10).
        edges: The edges of the batch, if it was written to several, and `others` at its home: the
            stages at the other ones (K14).
        preparing: The batch that was prepared last, and its edges.
    """

    writer: str
    batch_id: int = -1
    executions: dict[str, str] = msgspec.field(default_factory=dict)
    rows: int = 0
    runs: tuple[str, ...] = ()
    history: int = 0
    single: bool = False
    touched_us: int = 0
    run_id: str = ""
    target: str = ""
    reached: dict[str, int] = msgspec.field(default_factory=dict)
    user: str = ""
    edges: str = ""
    others: tuple[EdgeStages, ...] = ()
    preparing: tuple[int, str] = (-1, "")


class Segment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive tags of a lease: the i-th position (from 0) has tag `first_tag + i`.

    A lease has at most one segment for each queue.
    """

    first_tag: int
    queue_id: int
    positions: BitMap64

    @property
    def last_tag(self) -> int:
        """The tag of the last position."""
        return self.first_tag + len(self.positions) - 1

    def present(self, holes: BitMap64) -> BitMap64:
        """The positions whose tags are not holes."""
        gone = bitmaps.array(bitmaps.between(holes, self.first_tag, self.last_tag))
        if not len(gone):
            return self.positions
        return self.positions - bitmaps.of(bitmaps.array(self.positions)[gone - self.first_tag])

    def tags(self, positions: BitMap64) -> BitMap64:
        """The tags of the given positions; positions outside the segment have none."""
        found = bitmaps.array(self.positions & positions)
        ranks = np.searchsorted(bitmaps.array(self.positions), found)
        return bitmaps.of(ranks.astype(np.int64) + self.first_tag)

    def at(self, tags: BitMap64) -> BitMap64:
        """The positions of the given tags; tags outside the segment have none."""
        inside = bitmaps.array(bitmaps.between(tags, self.first_tag, self.last_tag))
        if len(inside) == len(self.positions):
            return self.positions
        return bitmaps.of(bitmaps.array(self.positions)[inside - self.first_tag])


class Reader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of a query that fetched from a lease in an epoch, for one of its batches (S6).

    `user` is the user that fetched; empty where that is not known.
    """

    query_id: str
    run_id: str
    batch_id: int
    epoch: int
    user: str = ""


class QueryBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The latest batch that a query planned, and the tags of the lease that it read (S11).

    Attributes:
        query_id: Empty while no task of the session has named its query.
        sequence: The record that noted the batch: a lease made later is not part of it.
        first_tag: The first tag that the batch read; 0 for a batch without rows of the session.
        last_tag: The last tag that the batch read; 0 likewise.
        user: The user that fetched; empty where there are no users.
    """

    query_id: str
    batch_id: int
    sequence: int
    session: str
    first_tag: int
    last_tag: int
    user: str = ""


class OutcomeStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task's outcomes: sealed, and without effect until a commit names the stage (S6).

    `outcomes` have no tag in common.
    """

    label: str
    tags: int
    outcomes: tuple[TagOutcome, ...] = msgspec.field(name="fates")


class Outcomes(msgspec.Struct, forbid_unknown_fields=True):
    """Committed outcomes of a lease, of the newest epoch that committed any (S6).

    Attributes:
        batch_id: The query's batch; -1 for none.
        negative: The outcomes other than accepted, without a tag in common; all other tags are
            accepted.
        stages: The committed stages, with their number of tags.
    """

    epoch: int
    batch_id: int
    negative: tuple[TagOutcome, ...] = msgspec.field(name="fates", default=())
    stages: dict[bytes, int] = msgspec.field(default_factory=dict)

    def tags(self, *outcomes: Outcome) -> BitMap64:
        """The tags with one of these outcomes; without any, all that are not accepted."""
        values = {outcome.value for outcome in outcomes}
        found = (entry.tags for entry in self.negative if not values or entry.outcome in values)
        return BitMap64.union(BitMap64(), *found)


class PastDeliveries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often messages had been delivered when a lease first had them, by tag (S1).

    Kept for requeued `tags`, because the queue's own count of them goes on; likewise `rewound`.
    """

    tags: BitMap64 = msgspec.field(default_factory=BitMap64)
    counts: tuple[tuple[int, BitMap64], ...] = ()
    rewound: tuple[tuple[int, BitMap64], ...] = ()


# What packed leases share.
_NO_TAGS: Final = BitMap64()
_NO_DELIVERIES: Final = PastDeliveries(_NO_TAGS)
_NO_REASONS: Final[dict[str, int]] = {}
_NO_STAGES: Final[dict[bytes, OutcomeStage]] = {}


class Lease(msgspec.Struct, forbid_unknown_fields=True):
    """Tags given to a session, and the messages that they stand for, which never change (S1).

    Attributes:
        holes: Tags without a message; they only grow. `reasons` counts them.
        attaches: How many holders it has had.
        accepted_us: When it was accepted; 0 while it is outstanding.
        readers: The readers that fetched from it, latest last (S6).
        stages: Uncommitted stages of outcomes, by id; all of the present epoch. For an accepted
            lease: the stages of a replay, without an effect.
        outcomes: The committed outcomes.
        delivered: Delivery counts of messages that were requeued, which the queue no longer has.
        sequence: Sequence of the record that made it; 0 for one that an older version made.
        fetched: Whether any reader, known or not, has fetched from it (S11).
        batch_id: Once accepted: the query's batch that it was; -1 where that is not known.
        size: Once accepted: payload bytes of its accepted messages.
        requeued: Once accepted: the tags that were released or failed.
    """

    segments: tuple[Segment, ...]
    leased_us: int
    holes: BitMap64 = msgspec.field(default_factory=BitMap64)
    attaches: int = 1
    accepted_us: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    readers: tuple[Reader, ...] = ()
    stages: dict[bytes, OutcomeStage] = msgspec.field(default_factory=dict)
    outcomes: Outcomes | None = None
    delivered: PastDeliveries = msgspec.field(default_factory=PastDeliveries)
    sequence: int = 0
    fetched: bool = False
    batch_id: int = -1
    size: int = 0
    requeued: BitMap64 = msgspec.field(default_factory=BitMap64)

    @property
    def floor(self) -> int:
        """The tag before the first tag."""
        return self.segments[0].first_tag - 1

    @property
    def end(self) -> int:
        """The last tag."""
        return self.segments[-1].last_tag

    def held(self) -> dict[int, BitMap64]:
        """The messages of the lease by queue id, without holes."""
        found = ((part.queue_id, part.present(self.holes)) for part in self.segments)
        return {queue_id: positions for queue_id, positions in found if positions}

    def add_holes(self, tags: BitMap64, reason: str) -> None:
        """S5: makes tags holes, counted under a reason."""
        new = tags - self.holes
        if new:
            self.holes = self.holes | new
            self.reasons = {**self.reasons, reason: self.reasons.get(reason, 0) + len(new)}

    def pack(self) -> None:
        """Makes a lease small that stays after its successor (S13), and never changes in place."""
        for segment in self.segments:
            segment.positions.run_optimize()
        self.holes, self.requeued = self.holes or _NO_TAGS, self.requeued or _NO_TAGS
        self.reasons, self.stages = self.reasons or _NO_REASONS, self.stages or _NO_STAGES
        if not self.delivered.tags:
            self.delivered = _NO_DELIVERIES


class Session(msgspec.Struct, forbid_unknown_fields=True):
    """A durable consumer: tags up to `floor` are accepted, (floor, end] is its lease (S1).

    Attributes:
        kept: Accepted leases that are still readable (S13), oldest first. The last one is always
            there for a while: the commit entry that proved its batch may be lost with the machine
            that wrote it, and then that batch is run again (K2). The others never change.
        retain_ms: How long accepted leases stay readable; 0: no bound by age. `retain_bytes`: how
            many bytes of them; 0: no bound by size. With both 0 only the last one stays.
        turn: How many leases were made; it decides which queue comes first in the next one.
        proven: Whether a start that names the incarnation was received (S9).
        holder: The holder that attached last; without a token when an operator or the session
            timeout ended its epoch (S5, S8).
        queue_pattern: The pattern that finds its queues; empty when they are named (S10).
        timeout_ms: How long its holder may be absent before the lease is requeued; 0 for ever (S5).
        detached: Whether the timeout has passed: the messages of the lease are requeued.
        fenced: Tokens of the holders that an operator ended last: they cannot attach again (S8).
        history: The number of the history in which it was opened (Q8).
        succeeds: The forgotten incarnation that it replaces: tag 0 of that one is its own tag 0
            (S9).
        planned: The latest batch that its query planned, with rows of the session or without (S11);
            None for a session of an older version that was not fetched since.
        counted: Batches without rows that the present holder has reported.
        named: The last epoch in which a task named the batch that was then the latest.
        user: The user that opened it; empty where that is not known. It decides the session's owner
            when its queues are deleted (A10).
    """

    name: str
    incarnation: str
    queue_ids: tuple[int, ...]
    holder: Holder
    opened_us: int
    epoch: int = 1
    proven: bool = False
    floor: int = 0
    end: int = 0
    lease: Lease | None = None
    turn: int = 0
    # Only in snapshots of older versions; replaced by `kept`.
    only_kept: Lease | None = msgspec.field(name="kept", default=None)
    queue_pattern: str = ""
    timeout_ms: int = 0
    detached: bool = False
    fenced: tuple[bytes, ...] = ()
    history: int = 0
    succeeds: str = ""
    planned: QueryBatch | None = None
    counted: int = 0
    named: int = 0
    user: str = ""
    kept: list[Lease] = msgspec.field(name="retained", default_factory=list)
    retain_ms: int = 0
    retain_bytes: int = 0

    @property
    def accepted_last(self) -> Lease | None:
        """The lease accepted last, which can be replayed (K2); None when it is over."""
        return self.kept[-1] if self.kept else None

    def held(self) -> dict[int, BitMap64]:
        """The messages of the outstanding lease by queue id, without holes."""
        return self.lease.held() if self.lease is not None and not self.detached else {}

    def leases(self) -> Iterator[Lease]:
        """Yields the leases that can be replayed: the outstanding one, then the last accepted."""
        yield from filter(None, (self.lease, self.accepted_last))


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record of an ended incarnation: why it is refused now (S9)."""

    session: str
    how: str
    at_us: int


@dataclass(slots=True)
class State:
    """The whole state of the broker.

    `histories` are the histories of the journal, the present one last, numbered from 0; objects
    that began before number `admitted_history` are refused (Q8).
    `forgotten` maps the digests of the writers that an operator has forgotten to the instant of
    that.
    `queue_ids`, `dead_letters_to` (ids of queues by the name of their dead-letter queue),
    `publishers_of` (number of publishers, by user), `incarnations` (to session names), `stages_of`
    (by writer), `runs` (names of the sessions that a user's run of a query reads) and
    `outcome_stages` (to session names) are indexes.
    `queries` is by user, then by query id.
    The tables hold items that change in place, each in one table: a snapshot that is being taken
    captures an item before `apply` gets it (`snapshot.cut`).
    Volatile, and not part of a snapshot: `labels` (of the latest fetch, by session), `link_streams`
    (the number of the newest stream, by link: no stream outlives the process), `signals`, the dead
    blocks not yet drained, and `route_cache`.
    """

    sequence: int = 0
    histories: tuple[History, ...] = ()
    admitted_history: int = 0
    topology_sequence: int = 0
    next_queue_id: int = 1
    next_block_id: int = 1
    bindings: int = 0
    queues: MutableMapping[int, Queue] = field(default_factory=dict)
    queue_ids: dict[str, int] = field(default_factory=dict)
    dead_letters_to: dict[str, set[int]] = field(default_factory=dict)
    exchanges: MutableMapping[str, Exchange] = field(default_factory=dict)
    publishers: MutableMapping[bytes, Publisher] = field(default_factory=dict)
    publishers_of: Counter[str] = field(default_factory=Counter)
    writers: MutableMapping[str, Writer] = field(default_factory=dict)
    stages: MutableMapping[bytes, Stage] = field(default_factory=dict)
    stages_of: dict[str, set[bytes]] = field(default_factory=dict)
    forgotten: dict[bytes, int] = field(default_factory=dict)
    sessions: MutableMapping[str, Session] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    queries: dict[str, dict[str, QueryBatch]] = field(default_factory=dict)
    channels: MutableMapping[bytes, ChannelTags] = field(default_factory=dict)
    links: MutableMapping[str, Link] = field(default_factory=dict)
    blocks: BlockReferences = field(default_factory=BlockReferences)
    runs: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    outcome_stages: dict[bytes, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    link_streams: dict[str, int] = field(default_factory=dict)
    signals: Signals = field(default_factory=Signals)
    route_cache: RouteCache = field(default_factory=RouteCache)

    @property
    def history_id(self) -> str:
        """The identity of the present history; empty before the first start."""
        return self.histories[-1].history_id if self.histories else ""

    @property
    def began_us(self) -> int:
        """When the present history was first served."""
        return self.histories[-1].began_us

    @property
    def history(self) -> int:
        """The number of the present history."""
        return max(len(self.histories) - 1, 0)
