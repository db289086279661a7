"""Accept of a lease (S4, S6): effects on its messages; the lease stays readable for a while (S13).

Invariant: a message of a kept lease is read as it was until the lease is released, in spite of
later changes to the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyroaring import BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import records
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.fields import Delay
from ackq_broker.core.queues import dead_letters, redelivery
from ackq_broker.core.queues.dead_letters import RemovalPlan
from ackq_broker.core.sessions import retention
from ackq_broker.core.sessions.lease import Positions, remember_deliveries
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import Lease, Session, State


class AcceptEffects(NamedTuple):
    """Effects of an accept on the messages of the lease that have a negative outcome.

    `positions` has these messages by queue, dead-lettered ones included; `delays` has the
    redelivery delays of the requeued ones.
    """

    plan: RemovalPlan
    positions: Positions
    delays: tuple[Delay, ...]


class _Named(NamedTuple):
    """Messages of one queue with the same disposition."""

    disposition: Disposition
    discard: bool
    queue: Queue
    positions: BitMap64


def plan_accept(state: State, session: Session, holes: BitMap64, now_us: int) -> AcceptEffects:
    """S6: effects of the committed outcomes of the outstanding lease; `holes` are left out."""
    assert session.lease is not None
    outcomes = session.lease.outcomes
    plan = RemovalPlan(state, session.name, outcomes.batch_id if outcomes is not None else -1)
    positions: Positions = {}
    delays: list[Delay] = []
    for disposition, discard, queue, named in _named(state, session.lease, holes):
        requeued = redelivery.plan_outcome(state, plan, queue, named, disposition, discard=discard)
        delays += redelivery.delays(queue, requeued, disposition, now_us, from_query=True)
        positions.setdefault(queue.queue_id, BitMap64()).update(named)
    return AcceptEffects(plan, positions, tuple(delays))


def apply_accept(
    state: State, sequence: int, session: Session, record: records.SessionAdvanced
) -> None:
    """Accepts and keeps the whole lease, except holes and messages with another outcome."""
    lease = session.lease
    assert lease is not None
    retention.end_replay(state, session)
    retention.release(state, session, len(session.kept) - record.keeps)
    rest: Positions = {}
    failed: Positions = {}
    for disposition, _, queue, named in _named(state, lease, lease.holes):
        rest.setdefault(queue.queue_id, BitMap64()).update(named)
        if disposition.outcome is Outcome.FAILED:
            failed.setdefault(queue.queue_id, BitMap64()).update(named)
    for queue_id, positions in lease.held().items():
        queue = state.queues[queue_id]
        lease.size -= queue.kept_bytes
        other = rest.get(queue_id)
        if other is not None:
            remember_deliveries(lease, queue, other)
            queue.keep_readable(other)
            positions = positions - other  # noqa: PLW2901 (the rest of it)
        queue.accept(positions)
        lease.size += queue.kept_bytes
    dead_letters.apply_removals(state, sequence, record, rest)
    for queue_id, positions in rest.items():
        if positions:
            queue = state.queues[queue_id]
            queue.failures.add(positions & failed.get(queue_id, BitMap64()))
            redelivery.apply_requeue(state, sequence, queue, positions, record.delays)
    retention.keep(session, record.at_us)


def _named(state: State, lease: Lease, holes: BitMap64) -> Iterator[_Named]:
    """Messages of a lease with an outcome other than accepted, lowest tags first."""
    if lease.outcomes is None:
        return
    found = ((entry, entry.tags - holes) for entry in lease.outcomes.negative)
    ordered = sorted(
        ((tags.min(), tags, entry) for entry, tags in found if tags), key=lambda e: e[0]
    )
    # Computed once for all outcomes: one outcome may have a single tag of a million.
    every = [(segment, bitmaps.array(segment.positions)) for segment in lease.segments]
    for _, tags, entry in ordered:
        for segment, values in every:
            inside = bitmaps.array(bitmaps.between(tags, segment.first_tag, segment.last_tag))
            if len(inside):
                positions = bitmaps.of(values[inside - segment.first_tag])
                queue = state.queues[segment.queue_id]
                yield _Named(entry.disposition, entry.discard, queue, positions)
