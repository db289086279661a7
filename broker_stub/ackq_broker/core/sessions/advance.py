"""Session commands (S): open, advance, attach and end; each change is one record.

Invariant (I3): a session has at most one outstanding lease, whose mapping from tag to message never
changes, and a tag is accepted only by an advance whose start proves that a checkpoint covers it.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import check_duration, check_new, check_share
from ackq_broker.core.commands import Advanced, Attached, Decision
from ackq_broker.core.fields import QueuePositions
from ackq_broker.core.holders import claim, new_holder
from ackq_broker.core.queues import enqueue
from ackq_broker.core.queues.dead_letters import RemovalPlan
from ackq_broker.core.queues.topology import requeue
from ackq_broker.core.sessions import (
    accept,
    checkpoint,
    planned,
    queues,
    readers,
    retention,
    rewind,
    timeout,
)
from ackq_broker.core.sessions.accept import AcceptEffects
from ackq_broker.core.sessions.holder import (
    begin_epoch,
    check_free,
    drop_stages,
    find_session,
    forgotten,
    standing,
    unchanged,
)
from ackq_broker.core.sessions.lease import (
    Positions,
    QueueDelta,
    backlog_after,
    choose_messages,
    lease_chunks,
    make_segments,
    release_counts,
)
from ackq_broker.core.sessions.timeout import Resumed
from ackq_broker.core.state.state import Ended, Lease, QueryBatch, Session, State

# Ended incarnations remembered for the error message; older ones are merely unknown.
MAX_ENDED: Final = 10_000


def advance(state: State, command: commands.Advance, now_us: int) -> Decision:
    """S4: accepts the lease that the start proves; leases again, or returns the outstanding one."""
    check_duration("The session timeout cannot be", command.session_timeout_ms)
    check_duration("The retention cannot be", command.retain_ms)
    incarnation = command.incarnation
    if incarnation and not command.start_tag:
        incarnation = standing(state, command.session, incarnation)
        if forgotten(state, command.session, incarnation):
            return _open(state, command, now_us)
    if not incarnation:
        return _open(state, command, now_us)
    session = find_session(state, command.session, incarnation)
    check_free(session, command.holder.token, incumbent_live=command.incumbent_live)
    holder, epoch = claim(session, command.holder, now_us)
    accepted = checkpoint.accepts(session, command.start_tag)
    if accepted and command.refuse_unread:
        planned.check_read(state, session)
    queue_ids = queues.find(state, command, accepting=session if accepted else None)
    resumed = timeout.resume(state, session, now_us)
    again = resumed.positions()
    taken: tuple[QueuePositions, ...] = ()
    if session.lease is not None and not accepted:
        held = again if session.detached else session.held()
        queues.check_held(state, session, held, queue_ids)
    else:
        taken = choose_messages(state, queue_ids, session.turn, command, now_us, resumed=again)
    effects = _plan_accept(state, session, resumed, now_us) if accepted else _nothing(state)
    for entry in taken:
        effects.plan.remove(state.queues[entry.queue_id], entry.positions)
    record = records.SessionAdvanced(
        session=session.name,
        epoch=epoch,
        holder=holder,
        queue_ids=queue_ids,
        at_us=now_us,
        accepted=accepted,
        leased=taken,
        delays=effects.delays,
        resumed=resumed.taken,
        holes=resumed.holes,
        queue_pattern=command.queue_pattern,
        timeout_ms=command.session_timeout_ms,
        rejected_there=tuple(effects.plan.rejected_there),
        retain_ms=command.retain_ms,
        retain_bytes=command.retain_bytes,
        keeps=retention.keeps(state, session, command, again, now_us) if accepted else 0,
        **effects.plan.effects(),
    )
    changes = (
        taken
        or accepted
        or epoch != session.epoch
        or queue_ids != session.queue_ids
        or not session.proven
        or command.queue_pattern != session.queue_pattern
        or command.session_timeout_ms != session.timeout_ms
        or (command.retain_ms, command.retain_bytes) != (session.retain_ms, session.retain_bytes)
    )
    reply = _advanced(state, session, record, effects)
    return Decision((*effects.plan.declared, record) if changes else (), reply)


def _plan_accept(state: State, session: Session, resumed: Resumed, now_us: int) -> AcceptEffects:
    """S6: effects of accepting a lease, which may have to be resumed first (S5)."""
    assert session.lease is not None
    holes = session.lease.holes | resumed.tags()
    effects = accept.plan_accept(state, session, holes, now_us)
    for queue_id, positions in resumed.positions().items():
        effects.plan.remove(state.queues[queue_id], positions)
    return effects


def _nothing(state: State) -> AcceptEffects:
    return AcceptEffects(RemovalPlan(state), {}, ())


def _advanced(
    state: State, session: Session, record: records.SessionAdvanced, effects: AcceptEffects
) -> Advanced:
    """Reply to an advance; describes the state after the record is applied."""
    floor = session.end if record.accepted else session.floor
    parts, holes = make_segments(record.leased, floor), BitMap64()
    if session.lease is not None and not record.accepted:
        parts = session.lease.segments
        holes = BitMap64.union(session.lease.holes, *(hole.tags for hole in record.holes))
    delta = QueueDelta(
        removed=_removed(session, record, effects) if record.accepted else {},
        requeued={},
        delayed=_delayed(record),
        leased=(*record.resumed, *record.leased),
        dead_lettered=_dead_lettered(record),
        lease=parts,
        holes=holes,
    )
    return Advanced(
        session=session.name,
        incarnation=session.incarnation,
        epoch=record.epoch,
        end_tag=parts[-1].last_tag if parts else floor,
        chunks=lease_chunks(state, parts),
        backlog=backlog_after(state, record.queue_ids, delta),
        other_sessions=queues.others(state, record.queue_ids, session.name),
        attaches=_attaches(session, record),
        warnings=_warnings(state, session, record),
    )


def _removed(
    session: Session, record: records.SessionAdvanced, effects: AcceptEffects
) -> Positions:
    """Messages that an accept removes: all of the lease except the requeued ones."""
    held = session.held() or {entry.queue_id: entry.positions for entry in record.resumed}
    delayed = _delayed(record)
    assert set(effects.positions) <= set(held)
    return {
        queue_id: positions - delayed.get(queue_id, BitMap64())
        for queue_id, positions in held.items()
    }


def _delayed(record: records.SessionAdvanced) -> Positions:
    """Messages that an accept requeues, all of them with a delay (C14)."""
    found: Positions = {}
    for delay in record.delays:
        found.setdefault(delay.queue_id, BitMap64()).update(delay.positions)
    return found


def _dead_lettered(record: records.SessionAdvanced) -> dict[int, int]:
    """Number of ready messages that each queue gains by dead letters."""
    found: dict[int, int] = {}
    for move in record.moves:
        found[move.target_id] = found.get(move.target_id, 0) + len(move.positions)
    for drop in record.drops:
        found[drop.queue_id] = found.get(drop.queue_id, 0) - drop.messages
    return found


def apply_session_advanced(state: State, sequence: int, record: records.SessionAdvanced) -> None:
    """Applies an advance or an attach: changes the holder, accepts and leases."""
    session = state.sessions[record.session]
    session.proven = True
    attaches = _attaches(session, record)
    if session.detached:
        timeout.apply_resumed(state, session, record)
    if record.epoch != session.epoch:
        assert record.epoch == session.epoch + 1
        begin_epoch(state, session, record.holder)
    if record.accepted:
        drop_stages(state, session)
        assert session.lease is not None
        planned.apply_accepted(state, sequence, session, session.lease)
        accept.apply_accept(state, sequence, session, record)
    _read(state, session, record)
    _lease(state, session, record, sequence)
    if session.lease is not None:
        session.lease.attaches = attaches
    enqueue.drop_heads(state, record.drops)
    rewind.apply(state, record.rewound, sequence)


def attach(state: State, command: commands.Attach, now_us: int) -> Decision:
    """S2: attaches a holder for a replay of the outstanding or kept lease; changes neither."""
    session = find_session(state, command.session, command.incarnation)
    if command.planned:
        return planned.count_empty(session, command)
    check_free(session, command.holder.token, incumbent_live=command.incumbent_live)
    lease = checkpoint.replayed(session, command.start_tag, command.end_tag)
    holder, epoch = claim(session, command.holder, now_us)
    resumed = timeout.resume(state, session, now_us)
    record = replace(
        unchanged(session, now_us),
        epoch=epoch,
        holder=holder,
        resumed=resumed.taken,
        holes=resumed.holes,
    )
    parts = lease.segments if lease is not None else ()
    reply = Attached(
        epoch,
        lease_chunks(state, parts),
        _attaches(session, record),
        _warnings(state, session, record),
    )
    changes = epoch != session.epoch or not session.proven
    return Decision((record,) if changes else (), reply)


def _open(state: State, command: commands.Advance, now_us: int) -> Decision:
    """S9: opens a new incarnation of a session; it may replace one that nothing depends on.

    One that succeeds a forgotten incarnation is proven, and leases like an advance from tag 0.
    """
    assert command.new_incarnation
    if command.start_tag:
        raise InvalidArgumentError(
            f"The call names tag {command.start_tag} and no incarnation; a session opens at tag 0.",
            start_tag=command.start_tag,
        )
    name = command.session or f"{limits.ANONYMOUS_PREFIX}{command.new_incarnation}"
    check_new("session", name)
    queue_ids = queues.find(state, command)
    old = state.sessions.get(name)
    if old is None:
        check_share("sessions", command.user, limits.MAX_SESSIONS, state.sessions)
    if old is None and len(state.sessions) >= limits.MAX_SESSIONS:
        raise LimitError(
            f"The session '{name}' was not opened: the broker has {limits.MAX_SESSIONS} sessions, "
            "its limit. Release sessions whose queries have ended (`ackq session list --all`).",
            limit=limits.MAX_SESSIONS,
        )
    requeued = old.held() if old is not None else {}
    again = rewind.at_opening(state, old, command, queue_ids)
    warnings: tuple[str, ...] = again.warnings
    if old is not None:
        check_free(old, command.holder.token, incumbent_live=command.incumbent_live)
        takeover = command.takeover or command.rewind is not None
        warnings += checkpoint.replace(old, release_counts(state, requeued), takeover=takeover)
    if command.incarnation:
        assert old is None
        warnings = (_anew(name, command.incarnation),)
    taken: tuple[QueuePositions, ...] = ()
    if command.open_and_lease or command.incarnation:
        both = again.positions()
        for queue_id, positions in requeued.items():
            both[queue_id] = both.get(queue_id, BitMap64()) | positions
        taken = choose_messages(state, queue_ids, 0, command, now_us, requeued=both)
    record = records.SessionOpened(
        session=name,
        incarnation=command.new_incarnation,
        replaces=old.incarnation if old is not None else "",
        holder=new_holder(command.holder, now_us),
        queue_ids=queue_ids,
        at_us=now_us,
        leased=taken,
        queue_pattern=command.queue_pattern,
        timeout_ms=command.session_timeout_ms,
        succeeds=command.incarnation,
        user=command.user,
        retain_ms=command.retain_ms,
        retain_bytes=command.retain_bytes,
        rewound=again.messages,
    )
    parts = make_segments(taken, 0)
    reply = Advanced(
        session=name,
        incarnation=command.new_incarnation,
        epoch=1,
        end_tag=parts[-1].last_tag if parts else 0,
        chunks=lease_chunks(state, parts),
        backlog=backlog_after(
            state,
            queue_ids,
            QueueDelta({}, requeued, {}, taken, {}, parts, BitMap64(), again.positions()),
        ),
        other_sessions=queues.others(state, queue_ids, name),
        attaches=1 if parts else 0,
        warnings=(*warnings, *queues.circles(state, name, queue_ids)),
        leased_elsewhere=queues.leased_elsewhere(state, queue_ids, name),
    )
    return Decision((record,), reply)


def _anew(name: str, incarnation: str) -> str:
    """Warning of an opening that succeeds a forgotten incarnation (S9)."""
    return (
        f"The session '{name}' was opened again with a new incarnation: its incarnation "
        f"{incarnation} was forgotten, because no checkpoint had come back with it."
    )


def apply_session_opened(state: State, sequence: int, record: records.SessionOpened) -> None:
    """Ends the replaced incarnation and begins the new one."""
    if record.replaces:
        old = state.sessions[record.session]
        rewind.apply(state, record.rewound, sequence)
        assert old.incarnation == record.replaces
        end(state, old, sequence, f"replaced by incarnation {record.incarnation}", record.at_us)
    assert record.session not in state.sessions
    assert record.incarnation not in state.incarnations
    session = Session(
        record.session,
        record.incarnation,
        (),
        record.holder,
        record.at_us,
        proven=bool(record.succeeds),
        history=state.history,
        succeeds=record.succeeds,
        # The opening is batch 0. A lease made by the opening is batch 0 as well.
        planned=QueryBatch("", -1 if record.leased else 0, sequence, record.session, 0, 0),
        user=record.user,
    )
    state.sessions[session.name] = session
    state.incarnations[session.incarnation] = session.name
    _read(state, session, record)
    _lease(state, session, record, sequence)


def apply_session_released(state: State, sequence: int, record: records.SessionReleased) -> None:
    """Ends the incarnation of a session that an operator released."""
    session = state.sessions[record.session]
    end(state, session, sequence, "released by an operator", record.at_us)


def end(state: State, session: Session, sequence: int, how: str, at_us: int) -> None:
    """Requeues a session's lease and refuses its incarnation from then on."""
    retention.release(state, session, len(session.kept))
    drop_stages(state, session)
    readers.unindex(state, session)
    if session.detached:
        timeout.unwatch(state, session)
    for queue_id, positions in session.held().items():
        requeue(state, queue_id, positions, sequence)
    queues.enter(state, session, ())
    del state.sessions[session.name]
    del state.incarnations[session.incarnation]
    state.labels.pop(session.name, None)
    for incarnation in filter(None, (session.succeeds, session.incarnation)):
        state.ended[incarnation] = Ended(session.name, how, at_us)
    while len(state.ended) > MAX_ENDED:
        del state.ended[next(iter(state.ended))]


def _read(
    state: State, session: Session, record: records.SessionOpened | records.SessionAdvanced
) -> None:
    """S5, S10, S13: sets the queues that the session reads, its timeout and its retention."""
    queues.enter(state, session, record.queue_ids)
    session.queue_pattern = record.queue_pattern
    session.timeout_ms = record.timeout_ms
    session.retain_ms, session.retain_bytes = record.retain_ms, record.retain_bytes


def _lease(
    state: State,
    session: Session,
    record: records.SessionOpened | records.SessionAdvanced,
    sequence: int,
) -> None:
    if not record.leased:
        return
    assert session.lease is None
    assert session.floor == session.end
    parts = make_segments(record.leased, session.floor)
    for segment in parts:
        state.queues[segment.queue_id].lease(segment.positions)
    session.lease = Lease(parts, record.at_us, sequence=sequence)
    session.end = parts[-1].last_tag
    session.turn += 1
    assert session.end > session.floor


def _warnings(state: State, session: Session, record: records.SessionAdvanced) -> tuple[str, ...]:
    """S10: warnings about a session's queues: for a new holder, and when the queues change."""
    if (record.epoch, record.queue_ids) == (session.epoch, session.queue_ids):
        return ()
    return queues.circles(state, session.name, record.queue_ids)


def _attaches(session: Session, record: records.SessionAdvanced) -> int:
    """S8: number of holders that the lease outstanding after the record has had."""
    if record.leased:
        return 1
    if session.lease is None or record.accepted:
        return 0
    return session.lease.attaches + (record.epoch != session.epoch)
