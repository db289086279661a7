"""Session timeout (S5): requeues the lease of an absent holder; a re-attach leases it again.

Invariant: a detached lease holds nothing. A message that is leased again keeps its tag, every other
tag is a hole from then on, and that is decided in one record.
"""

from __future__ import annotations

from typing import NamedTuple

from pyroaring import BitMap64

from ackq_broker.core import commands, records
from ackq_broker.core.commands import Decision, Released
from ackq_broker.core.fields import Hole, QueuePositions
from ackq_broker.core.queues.topology import requeue
from ackq_broker.core.sessions import holder
from ackq_broker.core.sessions.lease import Positions, release_counts, remember_deliveries
from ackq_broker.core.state.queue import Gone, Queue
from ackq_broker.core.state.state import Segment, Session, State


class Resumed(NamedTuple):
    """Effects of a re-attach: ready messages that are leased again, tags that are holes."""

    taken: tuple[QueuePositions, ...] = ()
    holes: tuple[Hole, ...] = ()

    def positions(self) -> Positions:
        """The messages that are leased again, by queue id."""
        return {entry.queue_id: entry.positions for entry in self.taken}

    def tags(self) -> BitMap64:
        """The tags that become holes."""
        return BitMap64.union(BitMap64(), *(hole.tags for hole in self.holes))


def detach(state: State, command: commands.DetachSession, now_us: int) -> Decision:
    """S5: requeues the lease after the timeout, unless another holder has attached meanwhile."""
    session = state.sessions.get(command.session)
    reader = command.incarnation, command.epoch
    if session is None or (session.incarnation, session.epoch) != reader:
        return Decision(reply=Released(0, 0))
    held = session.held()
    if not held:
        return Decision(reply=Released(0, 0))
    record = records.SessionDetached(session.name, now_us)
    return Decision((record,), release_counts(state, held))


def apply_detached(state: State, sequence: int, record: records.SessionDetached) -> None:
    """Requeues the lease and ends the epoch."""
    session = state.sessions[record.session]
    lease = session.lease
    assert lease is not None
    for segment in lease.segments:
        positions = segment.present(lease.holes)
        if not positions:
            continue
        queue = state.queues[segment.queue_id]
        remember_deliveries(lease, queue, positions)
        requeue(state, segment.queue_id, positions, sequence)
        if queue.deleted:
            lease.add_holes(segment.tags(positions), Gone.PURGED)
        else:
            queue.watch(positions)
    session.detached = True
    holder.end_epoch(state, session)


def resume(state: State, session: Session, now_us: int) -> Resumed:
    """S5: effects of a re-attach to a detached lease; none for a lease that is held."""
    lease = session.lease
    if lease is None or not session.detached:
        return Resumed()
    taken: list[QueuePositions] = []
    holes: dict[Gone, BitMap64] = {}
    for segment in lease.segments:
        queue = state.queues.get(segment.queue_id)
        waiting = segment.present(lease.holes)
        again = BitMap64()
        if queue is not None:
            again = queue.timely(queue.still_ready(waiting), now_us)
        if again:
            taken.append(QueuePositions(segment.queue_id, again))
        for reason, positions in _gone(queue, waiting - again).items():
            holes.setdefault(reason, BitMap64()).update(segment.tags(positions))
    return Resumed(tuple(taken), tuple(Hole(reason.value, tags) for reason, tags in holes.items()))


def apply_resumed(state: State, session: Session, record: records.SessionAdvanced) -> None:
    """Re-leases the messages of a timed-out lease that are still ready; other tags are holes."""
    assert session.lease is not None
    for entry in record.resumed:
        state.queues[entry.queue_id].lease(entry.positions)
    for hole in record.holes:
        session.lease.add_holes(hole.tags, hole.reason)
    unwatch(state, session)
    session.detached = False


def unwatch(state: State, session: Session) -> None:
    """Stops watching the messages of a detached lease."""
    assert session.lease is not None
    for segment in session.lease.segments:
        queue = state.queues.get(segment.queue_id)
        if queue is not None:
            queue.unwatch(segment.positions - _watched_by_others(state, queue, session))


def _gone(queue: Queue | None, positions: BitMap64) -> dict[Gone, BitMap64]:
    """Messages that cannot be leased again, by reason; without a queue, deleted with it."""
    if queue is None:
        return {Gone.PURGED: positions} if positions else {}
    found: dict[Gone, BitMap64] = {}
    known = {Gone(reason): departed for reason, departed in sorted(queue.departed.items())}
    # A message that is ready nevertheless is overdue. Every other message in the queue is held by
    # another reader, or was until it was requeued with a delay.
    for reason, among in (
        *known.items(),
        (Gone.EXPIRED, queue.ready),
        (Gone.TAKEN, queue.present),
        (Gone.PURGED, positions),
    ):
        some = positions & among
        if some:
            found.setdefault(reason, BitMap64()).update(some)
            positions = positions - some
    return found


def _watched_by_others(state: State, queue: Queue, session: Session) -> BitMap64:
    """Messages of a queue that other detached sessions had leased."""
    found = BitMap64()
    for name in queue.sessions - {session.name}:
        other = state.sessions[name]
        if other.detached and other.lease is not None:
            found |= _of(other.lease.segments, queue)
    return found


def _of(segments: tuple[Segment, ...], queue: Queue) -> BitMap64:
    found = (part.positions for part in segments if part.queue_id == queue.queue_id)
    return next(found, BitMap64())
