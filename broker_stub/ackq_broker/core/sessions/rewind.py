"""Rewind (S14): retained messages are read again, at their old places and under new tags.

Invariant: a message is in one state only: while it is ready again, it is in no lease but the
retained ones, which stay readable with the delivery counts of then.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace
from pyroaring import BitMap64

from ackq.errors import PreconditionFailedError
from ackq_broker.core import commands, fields, records
from ackq_broker.core.checks import plural, utc
from ackq_broker.core.commands import Decision, RewoundSession
from ackq_broker.core.sessions.holder import session_named, unchanged
from ackq_broker.core.sessions.lease import Positions, remember_deliveries
from ackq_broker.core.state.state import Lease, Session, State


class Again(NamedTuple):
    """Messages to be read again, by queue and batch, and warnings about others."""

    messages: tuple[fields.Rewound, ...] = ()
    warnings: tuple[str, ...] = ()

    def positions(self) -> Positions:
        """The messages by queue."""
        return _by_queue(self.messages)


def rewind(state: State, command: commands.RewindSession, now_us: int) -> Decision:
    """S14: makes retained messages ready again; with `dry_run` it only counts them."""
    session = session_named(state, command.session)
    if session.lease is not None:
        raise _refused(
            session,
            f"the tags {session.floor + 1} to {session.end} are leased. Let its query accept that "
            "batch, with trigger availableNow; or start it with a new checkpoint and startFrom",
        )
    leases = _from(session, command.rewind)
    messages = _messages(
        state, session, leases, command.rewind, with_rejected=command.with_rejected
    )
    reply = RewoundSession(
        leases[0].batch_id if leases else -1,
        len(leases),
        sum(len(each.positions) for each in messages),
    )
    if command.dry_run or not messages:
        return Decision(reply=reply)
    return Decision((replace(unchanged(session, now_us), rewound=messages),), reply)


def at_opening(
    state: State, old: Session | None, command: commands.Advance, queue_ids: tuple[int, ...]
) -> Again:
    """S14: what an opening leases again of the incarnation that it replaces."""
    wish = command.rewind
    if wish is None:
        return Again()
    if old is None:
        if wish.batch_id is None and not wish.from_us:
            return Again()
        raise PreconditionFailedError(
            f"The session '{command.session}' was not opened: there is no session of this name, so "
            "nothing of it is retained. Start the query without startFrom, or with "
            "startFrom=earliest.",
            session=command.session,
        )
    messages = _messages(state, old, _from(old, wish), wish)
    for each in messages:
        if each.queue_id not in queue_ids:
            queue = state.queues[each.queue_id].name
            raise _refused(old, f"queue '{queue}' has messages of it, and is none of this query's")
    gone = old.kept[0].floor if old.kept else old.floor
    lost = f"Session '{old.name}': the first {plural(gone, 'tag')} of incarnation {old.incarnation}"
    return Again(messages, (f"{lost} are not retained, and not read again.",) if gone else ())


def apply(state: State, messages: tuple[fields.Rewound, ...], sequence: int) -> None:
    """Makes messages ready again; leases of then, of any session, keep their delivery counts."""
    rewound = _by_queue(messages)
    for session in state.sessions.values() if rewound else ():
        for index, lease in enumerate(session.kept):
            for segment in lease.segments:
                if segment.queue_id not in rewound:
                    continue
                if held := segment.positions & rewound[segment.queue_id]:
                    # A snapshot may be encoding the present one.
                    session.kept[index] = replace(session.kept[index])
                    queue = state.queues[segment.queue_id]
                    remember_deliveries(session.kept[index], queue, held)
    for queue_id, positions in rewound.items():
        state.queues[queue_id].rewind(positions, sequence)
    for entry in messages:
        state.queues[entry.queue_id].rewound.put(entry.batch_id + 2, entry.positions)


def apply_queue_rewound(state: State, sequence: int, record: records.QueueRewound) -> None:
    """Makes accepted messages of channels ready again, in no batch."""
    apply(state, (fields.Rewound(record.queue_id, record.positions, -1),), sequence)


def _by_queue(messages: tuple[fields.Rewound, ...]) -> Positions:
    found: Positions = {}
    for each in messages:
        found.setdefault(each.queue_id, BitMap64()).update(each.positions)
    return found


def _messages(
    state: State,
    session: Session,
    leases: list[Lease],
    wish: commands.Rewind,
    *,
    with_rejected: bool = False,
) -> tuple[fields.Rewound, ...]:
    """The accepted messages of these leases, each with the batch that accepted it."""
    found, seen = [], Positions()
    # A message that was rewound before is in two of them: the later one accepted it last.
    for lease in reversed(leases):
        left_out = lease.holes | lease.requeued
        for segment in lease.segments:
            queue = state.queues.get(segment.queue_id)
            if queue is None or queue.deleted:
                continue
            known = seen.setdefault(segment.queue_id, BitMap64())
            positions = (segment.present(left_out) & queue.kept) - known
            if not with_rejected:
                positions -= queue.rejected
            known |= positions
            if positions and (queue.consumers or (queue.sessions - {session.name}) & wish.live):
                raise _refused(
                    session,
                    f"queue '{queue.name}' has other readers, which would get the messages. Stop "
                    "them first",
                )
            if positions:
                found.append(fields.Rewound(segment.queue_id, positions, lease.batch_id))
    return tuple(reversed(found))


def _from(session: Session, wish: commands.Rewind) -> list[Lease]:
    """The retained leases from a batch, or a time, on."""
    kept = session.kept
    if wish.batch_id is None:
        found = [lease for lease in kept if lease.accepted_us >= wish.from_us]
        before = 0 < wish.from_us < (kept[0].accepted_us if kept else wish.from_us + 1)
    else:
        later = (i for i, lease in enumerate(kept) if lease.batch_id >= wish.batch_id)
        found = kept[next(later, len(kept)) :]
        before = wish.batch_id < kept[0].batch_id if kept else True
    if before and (kept[0].floor if kept else session.floor):
        there = "nothing of it is retained"
        if kept:
            first, at = kept[0].batch_id, utc(kept[0].accepted_us)
            there = f"it can go back to batch {first}, accepted {at}"
        raise _refused(session, f"what came before is not retained; {there}")
    return found


def _refused(session: Session, why: str) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"The session '{session.name}' was not rewound: {why}.", session=session.name
    )
