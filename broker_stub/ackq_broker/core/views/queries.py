"""What can be read without changing anything: fetch (S2), browse (Q5), operators' lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from itertools import islice
from typing import Final

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq_broker.core.checks import ANONYMOUS_PREFIX, check_length, queue_named
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands import (
    BrowseChunk,
    DeadLetterGroup,
    ExchangeInfo,
    FetchLabel,
    HolderInfo,
    Piece,
    QueueInfo,
    QueueUse,
    SessionInfo,
    Unfinished,
)
from ackq_broker.core.sessions import checkpoint, readers
from ackq_broker.core.sessions.holder import check_epoch, find_session, session_named
from ackq_broker.core.sessions.lease import count_messages, delivery_counts
from ackq_broker.core.sessions.queues import name_pattern
from ackq_broker.core.state.placements import Rows
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import Lease, Session, StagedRows, State

# Bindings that are listed in one step.
_BINDINGS: Final = 2_000


def fetch(
    state: State,
    name: str,
    incarnation: str,
    epoch: int,
    after_tag: int,
    last_tag: int,
    most_pieces: int | None = None,
) -> list[Piece]:
    """S2: the rows behind the tags (after_tag, last_tag], in tag order, holes left out.

    With `most_pieces`, the first of them.

    Raises:
        FencedError: The epoch is over (S3).
        SessionNotFoundError: The incarnation is unknown or ended.
        CheckpointMismatchError: The range is inside neither the outstanding lease nor the kept
            one, or the session has another name (S10).
    """
    session = find_session(state, name, incarnation)
    check_epoch(session, epoch)
    lease = checkpoint.fetched(session, after_tag, last_tag)
    if lease is None:
        return []
    return list(islice(_rows_of(state, lease, lease.holes, after_tag, last_tag), most_pieces))


def lease_pieces(
    state: State,
    name: str,
    first_tag: int,
    last_tag: int,
    max_messages: int,
    most_pieces: int | None = None,
) -> list[Piece]:
    """S8: rows of the outstanding lease for an operator; raises SessionNotFoundError.

    Of a detached one, what a re-attach could lease again, overdue or not.
    """
    session = session_named(state, name)
    lease = session.lease
    if lease is None:
        return []
    holes = lease.holes
    if session.detached:
        for segment in lease.segments:
            queue = state.queues.get(segment.queue_id)
            ready = queue.ready if queue is not None else BitMap64()
            holes = holes | segment.tags(segment.positions - ready)
    first = max(first_tag, lease.floor + 1)
    last = min(last_tag or session.end, session.end)
    if max_messages and first <= last:
        there = bitmaps.lowest(bitmaps.span(first, last) - holes, max_messages)
        last = there.max() if there else first - 1
    return list(islice(_rows_of(state, lease, holes, first - 1, last), most_pieces))


def _rows_of(
    state: State, lease: Lease, holes: BitMap64, after_tag: int, last_tag: int
) -> Iterator[Piece]:
    """The rows behind the tags (after_tag, last_tag] of a lease, holes left out."""
    for segment in lease.segments:
        after = max(after_tag + 1, segment.first_tag)
        last = min(last_tag, segment.last_tag)
        queue = state.queues.get(segment.queue_id)
        if after > last or queue is None:
            continue
        positions = bitmaps.ranked(
            segment.positions, after - segment.first_tag, last + 1 - segment.first_tag
        )
        tags = np.arange(after, last + 1)
        counts = delivery_counts(lease, tags, positions, queue)
        gone = bitmaps.array(bitmaps.between(holes, after, last)) - after
        present = np.delete(bitmaps.array(positions), gone)
        rows = Rows(
            present, np.delete(tags, gone), np.delete(counts, gone), np.ones(len(present), np.bool_)
        )
        yield from queue.pieces(rows)


def plan_browse(state: State, name: str) -> tuple[BrowseChunk, ...]:
    """Q5: where a queue can be cut for a parallel browse; raises QueueNotFoundError."""
    queue = queue_named(state, name)
    return queue.placements.browse_chunks(
        queue.present, limits.LEASE_CHUNK_TARGET_BYTES, limits.MAX_LEASE_CHUNKS
    )


def browse(
    state: State,
    name: str,
    first: int,
    last: int,
    max_messages: int,
    most_pieces: int | None = None,
) -> list[Piece]:
    """Q5: the rows at the positions first..last, in any state; raises QueueNotFoundError.

    A `last` of 0 means the tail, a `max_messages` of 0 no bound. With `most_pieces`, the first of
    them. The delivery count is that of the present delivery for what is leased, of the next one
    for what waits.
    """
    queue = queue_named(state, name)
    last = last or queue.next_position
    unacked = bitmaps.between(queue.unacked, first, last)
    positions = bitmaps.between(queue.ready | queue.delayed, first, last) | unacked
    if max_messages:
        positions = bitmaps.lowest(positions, max_messages)
        unacked &= positions
    values = bitmaps.array(positions)
    leased = np.zeros(len(values), np.bool_)
    leased[np.searchsorted(values, bitmaps.array(unacked))] = True
    rows = Rows(values, values, queue.delivery_counts(positions), leased)
    return list(islice(queue.pieces(rows), most_pieces))


def matching_names(
    state: State, pattern: str, after: str, *, not_empty: bool, limit: int
) -> list[str]:
    """Q5: the names of queues that match a pattern ("": all), ascending, those behind `after`.

    A `limit` of 0 means no bound. Raises InvalidArgumentError for a pattern that is too long.
    """
    check_length("The pattern of queue names", pattern, limits.MAX_NAME_BYTES)
    matches = name_pattern(pattern).match if pattern else bool
    found = sorted(name for name in state.queue_ids if name > after and matches(name))
    if not_empty:
        filled = (name for name in found if state.queues[state.queue_ids[name]].holds_messages)
        return list(islice(filled, limit or None))
    return found[: limit or None]


def queues(state: State, name: str) -> list[QueueInfo]:
    """The queues by name, or one; raises QueueNotFoundError."""
    if name:
        return [_queue_info(queue_named(state, name))]
    return queue_infos(state, sorted(state.queue_ids))


def queue_infos(state: State, names: Sequence[str]) -> list[QueueInfo]:
    """The queues of these names, in their order; those that are gone are left out."""
    ids = map(state.queue_ids.get, names)
    return [_queue_info(state.queues[queue_id]) for queue_id in ids if queue_id is not None]


def _queue_info(queue: Queue) -> QueueInfo:
    return QueueInfo(
        queue=queue.name,
        queue_id=queue.queue_id,
        properties=queue.properties,
        ready=len(queue.ready),
        unacked=len(queue.unacked),
        staged=queue.staged,
        payload_bytes=queue.payload_bytes,
        oldest_us=queue.oldest_us(),
        sessions=tuple(sorted(queue.sessions)),
        published=queue.published,
        accepted=queue.accepted,
        delayed=len(queue.delayed),
        expired=queue.expired,
        dead_lettered=queue.dead_lettered,
        dropped=queue.dropped,
        consumers=queue.consumers,
        delivered=queue.delivered,
        redelivered=queue.redelivered,
        dead_letters=tuple(sorted(queue.dead_letters.items())),
        dead_letters_held=len(queue.origins.positions() - queue.kept),
    )


def queue_use(state: State, name: str, most: int) -> QueueUse:
    """What refers to a queue, at most so many of a kind; raises QueueNotFoundError."""
    queue = queue_named(state, name)
    sources = [state.queues[queue_id].name for queue_id in islice(queue.sources, most)]
    return QueueUse(
        bindings=tuple(nsmallest(most, queue.bindings)),
        batches=tuple(islice(queue.staged_by.items(), most)),
        sources=tuple(sorted(sources)),
        binding_count=len(queue.bindings),
        batch_count=len(queue.staged_by),
        source_count=len(queue.sources),
    )


def dead_letters(state: State, name: str) -> Iterator[DeadLetterGroup]:
    """The dead letters of a queue by what they have in common, in no order.

    Those that a query may read again are counted, too. The state may change between two parts:
    what went meanwhile is left out. Raises QueueNotFoundError, at once.
    """
    tallies = queue_named(state, name).origins.tallies()
    return (DeadLetterGroup(o.queue, o.cause, o.reason, messages) for o, messages in tallies)


def durable_blocks(state: State) -> BitMap64:
    """The blocks that the journal must have: those with something that survives a restart (Q7)."""
    found = BitMap64(block.block_id for block in _staged(state) if block.durable)
    for queue in state.queues.values():
        found |= queue.placements.durable_blocks()
    return found


def block_loads(state: State) -> Iterator[Int64s]:
    """What queues have of their blocks, in parts: `Placements.loads`, and the queue's id.

    The state may change between two parts: what was moved meanwhile may be there twice, or not.
    """
    for queue in tuple(state.queues.values()):
        for load in queue.placements.loads():
            yield np.vstack((load, np.full(load.shape[1], queue.queue_id)))


def live_rows(state: State, block_ids: BitMap64, queue_ids: Iterable[int]) -> dict[int, BitMap]:
    """The rows of some blocks that anything refers to; rows that are dead never live again.

    Blocks that are staged, that a reader is not through with, or that are dead are left out, and
    those of which other queues than these have runs: of them not all is found.
    """
    staged = BitMap64(block.block_id for block in _staged(state))
    sought = bitmaps.array(block_ids - staged - state.blocks.pinned())
    found: dict[int, BitMap] = {}
    counted = Counter[int]()
    for queue_id in queue_ids if len(sought) else ():
        queue = state.queues.get(queue_id)
        if queue is None:
            continue
        runs = queue.placements.runs_in(sought)
        present = queue.present | queue.kept if len(runs) else BitMap64()
        for run in runs:
            rows = queue.placements.rows_of(run, present)
            found[int(run["block"])] = found.get(int(run["block"]), BitMap()) | rows
        counted.update(runs["block"].tolist())
    return {each: rows for each, rows in found.items() if counted[each] == state.blocks.count(each)}


def _staged(state: State) -> Iterator[StagedRows]:
    """What stages and transactions hold."""
    for stage in state.stages.values():
        yield from stage.blocks
    for publisher in state.publishers.values():
        if publisher.transaction is not None:
            yield from publisher.transaction.blocks


def exchanges(state: State) -> Iterator[ExchangeInfo | None]:
    """The exchanges by name, but for the default one, which has no bindings of its own.

    The state may change between two steps; None is a step in the middle of many bindings.
    """
    for name in sorted(state.exchanges):
        if (exchange := state.exchanges.get(name)) is None:
            continue  # it was deleted meanwhile
        bound = [(each, key) for key, queues in exchange.bindings.items() for each in queues]
        found: list[tuple[str, str]] = []
        for first in range(0, len(bound), _BINDINGS):
            part = bound[first : first + _BINDINGS]
            found += [(state.queues[each].name, key) for each, key in part if each in state.queues]
            yield None
        yield ExchangeInfo(name, exchange.kind, exchange.durable, tuple(found))


def unfinished(state: State, buffering: AbstractSet[bytes]) -> Unfinished:
    """What a restart would interrupt (O6)."""
    open_ones = {each.publisher_id for each in state.publishers.values() if each.transaction}
    return Unfinished(
        unacked=sum(
            len(run.tags) for channel in state.channels.values() for run in channel.unacked.values()
        ),
        transactions=len(open_ones | buffering),
        stages=sum(not stage.sealed for stage in state.stages.values()),
    )


def sessions(state: State, name: str) -> list[SessionInfo]:
    """The sessions by name, or one; raises SessionNotFoundError."""
    found = [session_named(state, name)] if name else [s for _, s in sorted(state.sessions.items())]
    return [_session_info(state, session) for session in found]


def _session_info(state: State, session: Session) -> SessionInfo:
    lease, holder = session.lease, session.holder
    holes = lease.holes if lease is not None else BitMap64()
    outcomes = lease.outcomes if lease is not None else None
    reader = readers.latest(session)
    return SessionInfo(
        session=session.name,
        incarnation=session.incarnation,
        queues=tuple(state.queues[queue_id].name for queue_id in session.queue_ids),
        epoch=session.epoch,
        floor_tag=session.floor,
        end_tag=session.end,
        leased=count_messages(session.held()),
        holes=len(holes),
        holder=HolderInfo(holder.token, holder.host, holder.pid, holder.application)
        if holder.token
        else None,
        since_us=holder.since_us,
        proven=session.proven,
        leased_at_us=lease.leased_us if lease is not None else 0,
        fetch=FetchLabel(reader.query_id, reader.batch_id, state.labels.get(session.name, ""))
        if reader is not None
        else FetchLabel(),
        attaches=lease.attaches if lease is not None else 0,
        run_id=reader.run_id if reader is not None else "",
        session_timeout_ms=session.timeout_ms,
        detached=session.detached,
        holes_by_reason=tuple(sorted(lease.reasons.items())) if lease is not None else (),
        settled=len(outcomes.tags() - holes) if outcomes is not None else 0,
        queue_pattern=session.queue_pattern,
        fetched=lease is not None and lease.fetched,
        refused=session.history < state.admitted_history,
        named=not session.name.startswith(ANONYMOUS_PREFIX),
        heard_us=max(holder.since_us, session.kept.accepted_us if session.kept else 0),
    )
