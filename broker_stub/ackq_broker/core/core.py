"""The broker's state machine: commands are decided on the state, only records change it (I2).

Invariant: the same records give the same state, byte for byte, whether applied live, in recovery,
or over a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from pyroaring import BitMap, BitMap64

from ackq_broker.core import commands, history
from ackq_broker.core.checks import queue_named
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands import (
    BatchInfo,
    BatchKey,
    BrowseChunk,
    Command,
    DeadLetterGroup,
    Decision,
    ExchangeInfo,
    LinkInfo,
    Piece,
    QueueInfo,
    QueueUse,
    Route,
    SessionInfo,
    WriterInfo,
)
from ackq_broker.core.links import operator
from ackq_broker.core.publishing import confirm_mode
from ackq_broker.core.queues import timers
from ackq_broker.core.queues.routing import match, router_of
from ackq_broker.core.records import Record
from ackq_broker.core.sessions import holder, readers
from ackq_broker.core.snapshot.cut import Cut, dump
from ackq_broker.core.snapshot.load import load
from ackq_broker.core.state.signals import Totals
from ackq_broker.core.state.state import State
from ackq_broker.core.tables import APPLY, DECIDE
from ackq_broker.core.views import access, holdings, queries, writers


class Core:
    """The state machine. Not thread-safe; it does no I/O and knows no clock.

    A caller decides a command, applies the decision's records at once and in order under
    consecutive sequences, and sends the reply when the journal has caught up (I1).
    """

    __slots__ = ("_cut", "_state")

    def __init__(self) -> None:
        self._state = State()
        self._cut: Cut | None = None

    @property
    def sequence(self) -> int:
        """The sequence of the record applied last; 0 before the first."""
        return self._state.sequence

    @property
    def history_id(self) -> str:
        """The identity of the journal's history (Q8), as the last `Start` gave it."""
        return self._state.history_id

    @property
    def history_cause(self) -> str:
        """Why the journal's history began, as the `Start` gave it that brought it."""
        return self._state.histories[-1].cause if self._state.histories else ""

    def refused_by_history(self) -> commands.RefusedByHistory:
        """Numbers of what is refused because it began in an older history (Q8)."""
        return history.refused_by_history(self._state)

    def decide(self, command: Command, now_us: int) -> Decision:
        """Decides a command; changes nothing.

        Args:
            command: One of `commands`.
            now_us: The broker's time, microseconds since the epoch; never earlier than in the call
                before (Q8).

        Raises:
            AckqError: The command is refused; each command names the kinds.
        """
        self._state.signals.now_us = now_us
        return DECIDE[type(command)](self._state, command, now_us)

    def apply(self, sequence: int, record: Record) -> None:
        """Applies a record to the state; `sequence` is the next one.

        An exception leaves the state half changed: the core must not be used any more.
        """
        assert sequence == self._state.sequence + 1, (sequence, self._state.sequence)
        if self._cut is None or not self._cut.open:
            APPLY[type(record)](self._state, sequence, record)
        else:
            with self._cut.guarding():
                APPLY[type(record)](self._state, sequence, record)
        self._state.sequence = sequence

    def snapshot(self) -> bytes:
        """The state as bytes: equal states give equal bytes."""
        return dump(self._state)

    def cut(self) -> Cut:
        """The state as of now, to be encoded in pieces while later records are applied.

        One at a time; until all pieces were taken or it is closed, `apply` is slower.
        """
        assert self._cut is None or not self._cut.open, "one cut at a time"
        self._cut = Cut(self._state)
        return self._cut

    @classmethod
    def restore(cls, data: bytes) -> Core:
        """The core whose snapshot this is; raises UnsupportedError for one of a newer version."""
        self = cls()
        self._state = load(data)
        return self

    def unfinished(self, buffering: AbstractSet[bytes]) -> commands.Unfinished:
        """What a restart would interrupt (O6).

        Args:
            buffering: Publishers with messages of a transaction that the core does not have yet.
        """
        return queries.unfinished(self._state, buffering)

    # --- permissions ---

    def session_access(self, name: str, incarnation: str) -> list[access.SessionAccess]:
        """What a caller needs to use a session: those that the name and the incarnation lead to."""
        return access.sessions(self._state, name, incarnation)

    def sessions_of_run(self, run_id: str, user: str) -> list[str]:
        """The sessions that a user's run of a query has read (S6)."""
        return readers.sessions_of_run(self._state, run_id, user)

    def queues_like(self, pattern: str) -> list[str]:
        """The names that the pattern of a session finds (S10)."""
        return access.queues_like(self._state, pattern)

    def queue_names(self) -> Collection[str]:
        """The names of all queues."""
        return self._state.queue_ids

    def exchange_names(self) -> Collection[str]:
        """The names of all exchanges."""
        return self._state.exchanges

    def bindings(self) -> int:
        """The number of all bindings."""
        return self._state.bindings

    def bindings_of_queues(self) -> dict[str, int]:
        """The number of bindings of each queue, by its name."""
        return {queue.name: len(queue.bindings) for queue in self._state.queues.values()}

    def committed_target(self, writer: str) -> str:
        """Where a writer's last batch went; empty where that is not known."""
        return access.committed_target(self._state, writer)

    def staged_bytes(self, stage_ids: Iterable[bytes]) -> dict[bytes, int]:
        """The payload bytes of those of the stages that are there."""
        return access.staged_bytes(self._state, stage_ids)

    # --- blocks ---

    def drain_dead_blocks(self) -> list[int]:
        """The blocks that lost their last reference since the last call.

        A block may be dead after the very record that brings it, when a drop-head queue drops it.
        """
        return self._state.blocks.drain_dead()

    def live_blocks(self) -> BitMap64:
        """Every block that a queue or a stage refers to, transient ones included."""
        return self._state.blocks.live()

    def durable_blocks(self) -> BitMap64:
        """The blocks that the journal must have; all live ones once a `Start` was applied (Q7)."""
        return queries.durable_blocks(self._state)

    def block_loads(self) -> Iterator[Int64s]:
        """Block, rows, rows left, their payload and the queue's id of every run, in parts.

        A hint: the state may change between two parts.
        """
        return queries.block_loads(self._state)

    def live_rows(
        self, block_ids: BitMap64, queue_ids: Iterable[int] | None = None
    ) -> dict[int, BitMap]:
        """The rows of some blocks that anything refers to; the others never come to life again.

        Blocks that are staged, pinned or dead are left out.

        Args:
            block_ids: The blocks.
            queue_ids: The queues that have runs of them, as `block_loads` said: a block that others
                have runs of, too, is left out. None: all are looked at.
        """
        sought = self._state.queues if queue_ids is None else queue_ids
        return queries.live_rows(self._state, block_ids, sought)

    # --- publishers ---

    def keyed(self, exchange: str) -> bool:
        """Whether the routing keys of what is published to an exchange matter; a missing one's do.

        Where they do not, a `Route` of every row stands for them all.
        """
        router = router_of(self._state, exchange)
        return router is None or router.keyed

    def match(self, exchange: str, routes: Sequence[Route], start: int, most_steps: int) -> int:
        """Matches topics ahead of a decision, which takes one step for each then.

        Returns:
            The first one from `start` on that is left after so many steps; all of them: none is.
        """
        router = router_of(self._state, exchange)
        if router is None:
            return len(routes)
        return start + match(router, islice(routes, start, None), most_steps)

    def missing(self, publisher_id: bytes, first: int, last: int) -> list[tuple[int, int]]:
        """P10: the ranges of first..last, both included, that were never accepted.

        Raises:
            PublisherForgottenError: The publisher is unknown.
            WrongModeError: It is in transaction mode.
        """
        return confirm_mode.missing(self._state, publisher_id, first, last)

    # --- writers ---

    def batches(self, most: int, queue: str = "", after: BatchKey | None = None) -> list[BatchInfo]:
        """What is staged, at most so many batches by writer and batch, behind one of them.

        With a queue only those that have rows for it; raises QueueNotFoundError.
        """
        return writers.batches(self._state, queue, after, most)

    def batch(self, key: BatchKey) -> BatchInfo:
        """What is staged of one batch; raises BatchNotFoundError."""
        return writers.batch(self._state, key)

    def writers(
        self, most: int, after: str = "", silent_since_us: int = 1 << 62
    ) -> list[WriterInfo]:
        """At most so many writers by name, behind one of them; those that were silent since."""
        return writers.writers(self._state, after, most, silent_since_us)

    def writer(self, name: str) -> WriterInfo:
        """One writer; raises WriterNotFoundError."""
        return writers.writer(self._state, name)

    # --- sessions ---

    def fetch(
        self,
        session: str,
        incarnation: str,
        epoch: int,
        after_tag: int,
        last_tag: int,
        most_pieces: int | None = None,
    ) -> list[Piece]:
        """S2: the rows behind the tags (after_tag, last_tag] of the lease, holes left out.

        With `most_pieces` the first of them: the rest is behind the last tag of the last piece.

        Raises:
            FencedError: The epoch is over; names the present holder (S3).
            SessionNotFoundError: The incarnation is unknown or ended.
            CheckpointMismatchError: The range is inside neither the outstanding lease nor the kept
                one, or the session has another name (S10).
        """
        return queries.fetch(
            self._state, session, incarnation, epoch, after_tag, last_tag, most_pieces
        )

    def lease_pieces(
        self,
        session: str,
        first_tag: int = 0,
        last_tag: int = 0,
        max_messages: int = 0,
        most_pieces: int | None = None,
    ) -> list[Piece]:
        """S8: the rows of the outstanding lease behind the tags first..last, holes left out.

        0 means the lease's first tag, its last, no bound. None when nothing is leased. With
        `most_pieces` the first of them.

        Raises:
            SessionNotFoundError: No such session.
        """
        return queries.lease_pieces(
            self._state, session, first_tag, last_tag, max_messages, most_pieces
        )

    def check_holder(self, session: str, incarnation: str, epoch: int, token: bytes) -> None:
        """S3: refuses a caller that does not hold the session in this epoch.

        Raises:
            FencedError: Another holder took over; names it.
            SessionNotFoundError: The incarnation is unknown or ended.
        """
        found = holder.find_session(self._state, session, incarnation)
        holder.check_epoch(found, epoch)
        holder.check_token(found, token)

    def incumbent(self, session: str, incarnation: str) -> tuple[str, bytes] | None:
        """The incarnation and token of the holder that a session's next caller meets.

        The service knows whether that holder is live (`incumbent_live`). None when there is none.
        With an incarnation the name is ignored, but for one that has a successor (S9).
        """
        incarnation = holder.standing(self._state, session, incarnation)
        name = self._state.incarnations.get(incarnation) if incarnation else session
        found = self._state.sessions.get(name) if name is not None else None
        return (found.incarnation, found.holder.token) if found is not None else None

    def ready_total(self, session: str) -> int:
        """How many messages are ready in a session's queues, cheaply; 0 without such a session."""
        found = self._state.sessions.get(session)
        if found is None:
            return 0
        return sum(len(self._state.queues[queue_id].ready) for queue_id in found.queue_ids)

    def sessions(self, name: str = "") -> list[SessionInfo]:
        """The sessions by name, or one; raises SessionNotFoundError."""
        return queries.sessions(self._state, name)

    # --- links ---

    def links(self, name: str = "") -> list[LinkInfo]:
        """The links by name, or one; raises LinkNotFoundError."""
        return operator.infos(self._state, name)

    def link_names(self) -> list[str]:
        """The names of the links, in no order."""
        return list(self._state.links)

    def link(self, name: str) -> LinkInfo:
        """One link; raises LinkNotFoundError."""
        (found,) = operator.infos(self._state, name)
        return found

    def link_queue(self, name: str) -> str:
        """The queue that a link brings messages to; empty: there is no such link."""
        found = self._state.links.get(name)
        return self._state.queues[found.queue_id].name if found is not None else ""

    def link_missing(self, name: str) -> int:
        """Held messages of a link that its subscription was not delivered again; 0: it is gone."""
        found = self._state.links.get(name)
        return len(found.missing(self._state.queues[found.queue_id])) if found is not None else 0

    def link_holder(self, name: str) -> tuple[str, bytes] | None:
        """The incarnation of a link, and its holder's token; None: there is no such link."""
        found = self._state.links.get(name)
        return (found.incarnation, found.holder.token) if found is not None else None

    # --- channels ---

    def outstanding(self, channel_id: bytes) -> BitMap64:
        """The tags that a channel has not settled; none for an unknown channel."""
        channel = self._state.channels.get(channel_id)
        return channel.outstanding() if channel is not None else BitMap64()

    def unpin(self, pieces: Iterable[Piece]) -> None:
        """The service has read the blocks of a `no_ack` delivery; once for each such delivery."""
        self._state.blocks.unpin(piece.block_id for piece in pieces)

    def drain_woken(self) -> KeysView[str]:
        """The queues that gained ready messages since the last call; volatile."""
        return self._state.signals.drain_woken()

    def drain_dead_letters(self) -> dict[tuple[str, str], int]:
        """How many became dead letters since the last call, by queue and cause; volatile."""
        drained = dict(self._state.signals.dead_letters)
        self._state.signals.dead_letters.clear()
        return drained

    # --- time ---

    def next_due_us(self) -> int:
        """When the next message expires or becomes ready, or a queue may go; 0 for never.

        Then `commands.Tick` is to be decided. It may turn out that nothing was due after all.
        """
        return timers.next_due_us(self._state)

    # --- queues ---

    def note_consumers(
        self, queue: str, consumers: int, demand: Callable[[], commands.Demand] = commands.Demand
    ) -> None:
        """How many consumers a queue has from now on, and what tells their demand; volatile.

        A queue with some is in use (Q4), and is not expired (Q3). No queue of that name: nothing.
        """
        queue_id = self._state.queue_ids.get(queue)
        if queue_id is not None:
            self._state.queues[queue_id].consumers = consumers
            self._state.queues[queue_id].demand = demand
            self._state.queues[queue_id].use()

    def ready(self, queue: str) -> int:
        """How many messages of a queue are ready; raises QueueNotFoundError."""
        return len(queue_named(self._state, queue).ready)

    def plan_browse(self, queue: str) -> tuple[BrowseChunk, ...]:
        """Q5: where a queue can be cut for a parallel browse; raises QueueNotFoundError."""
        return queries.plan_browse(self._state, queue)

    def browse(
        self,
        queue: str,
        first: int = 0,
        last: int = 0,
        max_messages: int = 0,
        most_pieces: int | None = None,
    ) -> list[Piece]:
        """Q5: the rows at the positions first..last; 0 means the head, the tail, no bound.

        With `most_pieces` the first of them.

        Raises:
            QueueNotFoundError: No such queue.
        """
        return queries.browse(self._state, queue, first, last, max_messages, most_pieces)

    def tail(self, queue: str) -> int:
        """The position of the last message that a queue was given; raises QueueNotFoundError."""
        return queue_named(self._state, queue).next_position - 1

    def queues(self, name: str = "") -> list[QueueInfo]:
        """The queues by name, or one; raises QueueNotFoundError."""
        return queries.queues(self._state, name)

    def queue_ids(self) -> dict[str, int]:
        """The ids of the queues by name."""
        return self._state.queue_ids.copy()

    def session_names(self) -> list[str]:
        """The names of the sessions, in no order."""
        return list(self._state.sessions)

    def departed_totals(self) -> Totals:
        """What queues that are gone add to the counts of those that are there; may be negative.

        Together they are the counts since the process began, which only grow.
        """
        totals = self._state.signals.departed.copy()
        totals.subtract(self._state.signals.before)
        return totals

    def keepers(self, queue: str, position: int = 0) -> list[holdings.Keeper]:
        """Q9: who holds messages of a queue, or the one at a position; QueueNotFoundError."""
        return holdings.keepers(self._state, queue, position)

    def holding(
        self, queue: str, keeper: holdings.Keeper, position: int = 0
    ) -> commands.HoldingInfo | None:
        """Q9: what one of the `keepers` holds; None: nothing any more. Raises QueueNotFoundError.

        With a position `first_tag` is the tag of the message there.
        """
        return holdings.holding(self._state, queue, keeper, position)

    def waiting(self, queue: str) -> commands.Waiting:
        """Q9: what waits for something else than a consumer; raises QueueNotFoundError."""
        return holdings.waiting(self._state, queue)

    def queue_use(self, name: str, most: int) -> QueueUse:
        """What refers to a queue, at most so many of a kind; raises QueueNotFoundError."""
        return queries.queue_use(self._state, name, most)

    def dead_letters(self, name: str) -> Iterator[DeadLetterGroup]:
        """The dead letters of a queue by what they have in common, in no order.

        Those that a query may read again are counted, too. What goes between two of them is left
        out. Raises QueueNotFoundError, at once.
        """
        return queries.dead_letters(self._state, name)

    def matching_names(
        self, pattern: str = "", after: str = "", *, not_empty: bool = False, limit: int = 0
    ) -> list[str]:
        """Q5: names of queues, ascending, those behind `after`; a `limit` of 0 means all."""
        return queries.matching_names(self._state, pattern, after, not_empty=not_empty, limit=limit)

    def queue_infos(self, names: Sequence[str]) -> list[QueueInfo]:
        """The queues of these names, in their order; those that are gone are left out."""
        return queries.queue_infos(self._state, names)

    def exchanges(self) -> Iterator[ExchangeInfo | None]:
        """The exchanges by name; None is a step in the middle of one."""
        return queries.exchanges(self._state)
