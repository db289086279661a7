"""Retention (S13): accepted leases of a session stay readable, and end oldest first.

The lease accepted last is one of them, the only one without the options of retention (K2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import Final

from ackq import limits
from ackq.outcomes import Outcome
from ackq_broker.core import commands, records
from ackq_broker.core.commands import Decision
from ackq_broker.core.queues import retention as queue_retention
from ackq_broker.core.queues.topology import forget_if_drained
from ackq_broker.core.sessions import readers
from ackq_broker.core.sessions.lease import Positions
from ackq_broker.core.state.state import Lease, Outcomes, Session, State

_MS_US: Final = 1_000
# The most leases that one record ends at the disk reserve.
_MOST_GIVEN: Final = 1_000
_REPLAY_US: Final = limits.REPLAY_RETENTION_S * 1_000_000


def keeps(
    state: State, session: Session, wish: commands.Advance, again: Positions, now_us: int
) -> int:
    """Number of the kept leases that stay readable when the outstanding lease is accepted.

    Where that lease is detached, it holds what is leased `again` in the same record (S5).
    """
    if not wish.retain_ms and not wish.retain_bytes:
        return 0
    held = again if session.detached else session.held()
    sizes = (state.queues[queue_id].placements.size(each) for queue_id, each in held.items())
    size = sum(sizes) if wish.retain_bytes else 0
    return len(session.kept) - _past(session.kept, wish, now_us, size)


def keep(session: Session, at_us: int) -> None:
    """Keeps the accepted lease for replays; its outcomes took effect."""
    lease = session.lease
    assert lease is not None
    assert not lease.stages
    lease.accepted_us = at_us
    if lease.outcomes is not None:
        done = lease.outcomes
        lease.requeued = done.tags() - done.tags(Outcome.REJECTED)
        lease.outcomes = Outcomes(done.epoch, done.batch_id, (), done.stages)
    if lease.readers:
        lease.batch_id = lease.readers[-1].batch_id
    elif session.planned is not None:
        lease.batch_id = session.planned.batch_id
    lease.batch_id = min(lease.batch_id, limits.LARGEST_NUMBER)
    if session.kept:
        session.kept[-1].pack()
    session.kept.append(lease)
    session.lease = None
    session.floor = session.end


def end_replay(state: State, session: Session) -> None:
    """Ends replays of the lease accepted last: what they staged is dropped, its readers forgotten.

    From then on the lease never changes in place: a snapshot may be encoding it.
    """
    last = session.accepted_last
    if last is None:
        return
    for stage_id in last.stages:
        del state.outcome_stages[stage_id]
    readers.unindex(state, session)
    last.readers, last.stages, last.outcomes = (), {}, None
    readers.index(state, session)


def release(state: State, session: Session, leases: int) -> None:
    """Removes the messages of the oldest kept leases, which can no longer be read."""
    if leases == len(session.kept):
        end_replay(state, session)
    for lease in session.kept[:leases]:
        for queue_id, positions in lease.held().items():
            queue = state.queues[queue_id]
            state.blocks.release(queue.release_kept(positions))
            forget_if_drained(state, queue)
    del session.kept[:leases]


def lapsed(state: State, now_us: int) -> dict[str, int]:
    """Number of kept leases that are past their retention, by session."""
    found = {}
    for name, session in sorted(state.sessions.items()):
        last = session.accepted_last
        if last is None:
            continue
        leases = _past(session.kept[:-1], session, now_us, last.size)
        over = now_us - last.accepted_us > _REPLAY_US and _past([last], session, now_us, 0)
        if over and leases == len(session.kept) - 1:
            leases += 1
        if leases:
            found[name] = leases
    return found


def give_way(state: State, command: commands.GiveWay, now_us: int) -> Decision:
    """S13: ends the oldest retention of all sessions and queues.

    A lease that a replay may need is not among it.
    """
    every = (
        [(lease.accepted_us, name, 0, 0, lease.size) for lease in session.kept[:-1]]
        for name, session in state.sessions.items()
    )
    leases, queues, batches, size = Counter[str](), dict[int, int](), 0, 0
    found = merge(*every, *queue_retention.oldest(state))
    for _, name, queue_id, until_us, more in islice(found, _MOST_GIVEN):
        if size >= command.payload_bytes:
            break
        if queue_id:
            queues[queue_id] = until_us
        else:
            leases[name] += 1
        batches += 1
        size += more
    if not batches:
        return Decision(reply=commands.GaveWay(0, 0, ()))
    names = tuple(sorted(leases))
    holders = [f"session '{name}'" for name in names]
    holders += [f"queue '{state.queues[queue_id].name}'" for queue_id in queues]
    record = records.Expired(
        *((), (), (), now_us, names),
        leases=tuple(leases[name] for name in names),
        retained=tuple(queues.items()),
    )
    return Decision((record,), commands.GaveWay(batches, size, tuple(holders)))


def _past(
    kept: Sequence[Lease], bounds: Session | commands.Advance, now_us: int, newer_bytes: int
) -> int:
    """How many of these leases, oldest first, are out of bounds beside newer ones of that size."""
    most_us, most_bytes = bounds.retain_ms * _MS_US, bounds.retain_bytes
    if not most_us and not most_bytes:
        return len(kept)
    size = newer_bytes + sum(lease.size for lease in kept) if most_bytes else 0
    for index, lease in enumerate(kept):
        young = not most_us or now_us - lease.accepted_us <= most_us
        fits = not most_bytes or size <= most_bytes
        if young and fits and len(kept) - index < limits.MAX_RETAINED_BATCHES:
            return index
        size -= lease.size
    return len(kept)
