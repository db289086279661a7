"""Operator commands: release a session (S5), settle messages of its lease (S8).

Invariant: a lease changes between two epochs, never inside one: earlier readers are fenced.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from pyroaring import BitMap64

from ackq.errors import InvalidArgumentError, PreconditionFailedError
from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import commands, records
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Decision, SettledLease
from ackq_broker.core.holders import already_held
from ackq_broker.core.queues import dead_letters, enqueue, redelivery
from ackq_broker.core.queues.dead_letters import RemovalPlan
from ackq_broker.core.queues.topology import requeue
from ackq_broker.core.sessions import holder, outcomes, readers
from ackq_broker.core.sessions.lease import Positions, release_counts
from ackq_broker.core.state.queue import Gone
from ackq_broker.core.state.state import Lease, Session, State

# Number of holders ended by an operator that are still refused by token, not only by epoch.
_REMEMBERED_HOLDERS: Final = 16


def release(state: State, command: commands.ReleaseSession, now_us: int) -> Decision:
    """S5, S9: requeues the lease of an absent holder and ends the incarnation."""
    session = holder.session_named(state, command.session)
    _check_absent(session, fence=command.fence, incumbent_live=command.incumbent_live)
    for queue_id in session.queue_ids:
        state.queues[queue_id].use()
    record = records.SessionReleased(session.name, now_us)
    return Decision((record,), release_counts(state, session.held()))


def settle(state: State, command: commands.SettleLease, now_us: int) -> Decision:
    """S8: rejects or releases messages of the lease, and ends the epoch."""
    if command.outcome not in {Outcome.REJECTED, Outcome.RELEASED}:
        raise InvalidArgumentError(
            "An operator can only reject or release messages of a lease; the outcome "
            f"'{command.outcome.value}' is for the session's query to settle with.",
            session=command.session,
        )
    session = holder.session_named(state, command.session)
    _check_incarnation(session, command.incarnation)
    _check_absent(session, fence=command.fence, incumbent_live=command.incumbent_live)
    tags = _tags(session, command.ranges)
    lease = session.lease
    assert lease is not None
    tags -= lease.holes
    reader = readers.latest(session)
    plan = RemovalPlan(state, session.name, reader.batch_id if reader is not None else -1)
    if command.outcome is Outcome.REJECTED:
        if not command.discard:
            outcomes.check_dead_letterable(state, session, lease, tags)
        tags = _remove_rejected(state, session, tags, plan, command.reason, now_us)
        dropped = plan.dropped
    else:
        dropped = _lost(state, lease, tags)
    record = records.SessionSettled(
        session=session.name,
        tags=tags,
        at_us=now_us,
        rejected_there=tuple(plan.rejected_there),
        **plan.effects(),
    )
    reply = SettledLease(len(tags), plan.moved, session.epoch + 1, dropped)
    return Decision((*plan.declared, record), reply)


def apply_settled(state: State, sequence: int, record: records.SessionSettled) -> None:
    """Removes or requeues the messages, makes their tags holes, and ends the epoch."""
    session = state.sessions[record.session]
    lease = session.lease
    assert lease is not None
    rest = _positions(lease, record.tags)
    dead_letters.apply_removals(state, sequence, record, rest)
    if not session.detached:
        for queue_id, positions in rest.items():
            if positions:
                requeue(state, queue_id, positions, sequence)
    lease.add_holes(record.tags, Gone.SETTLED)
    if session.holder.token:
        session.fenced = (*session.fenced, session.holder.token)[-_REMEMBERED_HOLDERS:]
    holder.end_epoch(state, session)
    enqueue.drop_heads(state, record.drops)


def _check_incarnation(session: Session, incarnation: str) -> None:
    """Refuses tags of an incarnation that has ended: PreconditionFailedError."""
    if incarnation and incarnation != session.incarnation:
        raise PreconditionFailedError(
            f"The session '{session.name}' was opened again since: its incarnation is "
            f"{session.incarnation}, not {incarnation}, and its tags belong to other messages. "
            f"See `ackq session lease {session.name}`.",
            session=session.name,
            incarnation=session.incarnation,
        )


def _check_absent(session: Session, *, fence: bool, incumbent_live: bool) -> None:
    """Refuses to fence a live holder without `fence`: AlreadyHeldError."""
    if incumbent_live and not fence:
        raise already_held(session, "Stop its query first, or add --fence to end it.")


def _tags(session: Session, ranges: tuple[tuple[int, int], ...]) -> BitMap64:
    """The tags of the given ranges, holes included; refuses a tag outside of the lease."""
    assert all(first <= last for first, last in ranges)
    floor, end = session.floor, session.end
    wrong = [
        first if first <= floor else max(first, end + 1)
        for first, last in ranges
        if first <= floor or last > end
    ]
    if wrong or session.lease is None:
        raise outcomes.outside(session, min(wrong, default=end + 1), session.lease)
    firsts = np.array([first for first, _ in ranges], np.int64)
    lasts = np.array([last for _, last in ranges], np.int64)
    return bitmaps.of_runs(firsts, lasts - firsts + 1)


def _remove_rejected(
    state: State, session: Session, tags: BitMap64, plan: RemovalPlan, reason: str, now_us: int
) -> BitMap64:
    """Plans rejections; returns their tags, in a detached lease only of messages still ready."""
    assert session.lease is not None
    found, rejection = BitMap64(), Disposition(Outcome.REJECTED, reason)
    for segment in session.lease.segments:
        queue = state.queues.get(segment.queue_id)
        positions = segment.at(tags)
        if queue is not None and session.detached:
            positions = queue.timely(queue.still_ready(positions), now_us)
        if queue is not None and positions:
            redelivery.plan_outcome(state, plan, queue, positions, rejection)
            found |= segment.tags(positions)
    return found


def _lost(state: State, lease: Lease, tags: BitMap64) -> int:
    """Q4: number of tags whose queue was deleted, so that they cannot be requeued."""
    queues = (state.queues.get(segment.queue_id) for segment in lease.segments)
    return sum(
        len(segment.at(tags))
        for segment, queue in zip(lease.segments, queues, strict=True)
        if queue is None or queue.deleted
    )


def _positions(lease: Lease, tags: BitMap64) -> Positions:
    found = ((segment.queue_id, segment.at(tags)) for segment in lease.segments)
    return {queue_id: positions.copy() for queue_id, positions in found if positions}
