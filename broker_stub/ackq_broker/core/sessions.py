"""Sessions (S): opened, advanced, attached, released; each change is one record.

Invariant (I3): a session has at most one outstanding lease, whose mapping from tag to message never
changes, and a tag is accepted only by an advance whose start proves that a checkpoint covers it.
"""

from __future__ import annotations

from typing import Final

from ackq import limits
from ackq.errors import (
    CheckpointMismatchError,
    InvalidArgumentError,
    LimitError,
    UnsupportedError,
)
from ackq_broker.core import checkpoints, commands, holding, leases, records
from ackq_broker.core.commands import Advanced, Attached, Decision
from ackq_broker.core.leases import Change
from ackq_broker.core.names import check_new, counted, queue_named
from ackq_broker.core.records import Taken
from ackq_broker.core.state import Ended, Lease, Session, State
from ackq_broker.core.topology import forget_if_drained, give_back

# Ended incarnations whose fate is remembered, for the message; older ones are merely unknown.
MAX_ENDED: Final = 10_000


def advance(state: State, command: commands.Advance, now_us: int) -> Decision:
    """S4: accepts what the start proves, then leases anew, or gives the outstanding lease again."""
    if command.session_timeout_ms:
        raise UnsupportedError(
            "This broker does not support a session timeout yet: a lease waits for its query for "
            "ever. Leave out sessionTimeout, and release an abandoned session with `ackq session "
            "release NAME`."
        )
    if not command.incarnation:
        return _open(state, command, now_us)
    session = holding.find(state, command.session, command.incarnation)
    holding.check_free(session, command.holder.token, incumbent_live=command.incumbent_live)
    holder, epoch = holding.claim(session, command.holder, now_us)
    accepted = checkpoints.accepts(session, command.start_tag)
    queue_ids = _queue_ids(state, command.queues)
    taken: tuple[Taken, ...] = ()
    if session.lease is not None and not accepted:
        _check_queues(state, session, queue_ids)
    else:
        taken = leases.choose(state, queue_ids, session.turn, command, now_us, {})
    record = records.SessionAdvanced(
        session.name, epoch, holder, queue_ids, now_us, accepted, taken
    )
    changes = (
        taken
        or accepted
        or epoch != session.epoch
        or queue_ids != session.queue_ids
        or not session.proven
    )
    return Decision((record,) if changes else (), _advanced(state, session, record))


def _advanced(state: State, session: Session, record: records.SessionAdvanced) -> Advanced:
    """The answer, as things are once the record is applied."""
    floor = session.end if record.accepted else session.floor
    parts = leases.segments(record.leased, floor)
    if session.lease is not None and not record.accepted:
        parts = session.lease.segments
    settled = session.held() if record.accepted else {}
    return Advanced(
        session=session.name,
        incarnation=session.incarnation,
        epoch=record.epoch,
        end_tag=parts[-1].last_tag if parts else floor,
        chunks=leases.chunks(state, parts),
        backlog=leases.backlog(state, record.queue_ids, Change(settled, {}, record.leased, parts)),
        other_sessions=_others(state, record.queue_ids, session.name),
        attaches=_attaches(session, record),
    )


def apply_session_advanced(state: State, _sequence: int, record: records.SessionAdvanced) -> None:
    """Attaches, accepts and leases."""
    session = state.sessions[record.session]
    session.proven = True
    attaches = _attaches(session, record)
    if record.accepted:
        _accept(state, session, record.at_us)
    if record.epoch != session.epoch:
        assert record.epoch == session.epoch + 1
        session.epoch = record.epoch
        session.holder = record.holder
    _set_queues(state, session, record.queue_ids)
    _lease(state, session, record.leased, record.at_us)
    if session.lease is not None:
        session.lease.attaches = attaches


def attach(state: State, command: commands.Attach, now_us: int) -> Decision:
    """S2: attaches for a replay of the outstanding or the kept lease; changes neither."""
    session = holding.find(state, command.session, command.incarnation)
    holding.check_free(session, command.holder.token, incumbent_live=command.incumbent_live)
    lease = checkpoints.replayed(session, command.start_tag, command.end_tag)
    holder, epoch = holding.claim(session, command.holder, now_us)
    record = records.SessionAdvanced(session.name, epoch, holder, session.queue_ids, now_us)
    parts = lease.segments if lease is not None else ()
    reply = Attached(epoch, leases.chunks(state, parts), _attaches(session, record))
    changes = epoch != session.epoch or not session.proven
    return Decision((record,) if changes else (), reply)


def _open(state: State, command: commands.Advance, now_us: int) -> Decision:
    """S9: makes a new incarnation; it may replace one that nothing depends on."""
    assert command.new_incarnation
    if command.start_tag:
        raise InvalidArgumentError(
            f"The call names tag {command.start_tag} and no incarnation; a session opens at tag 0.",
            start_tag=command.start_tag,
        )
    name = command.session or f"anonymous-{command.new_incarnation[:8]}"
    check_new("session", name)
    queue_ids = _queue_ids(state, command.queues)
    old = state.sessions.get(name)
    if old is None and len(state.sessions) >= limits.MAX_SESSIONS:
        raise LimitError(
            f"The session '{name}' was not opened: the broker has {limits.MAX_SESSIONS} sessions, "
            "its limit. Release those of queries that are gone (`ackq session list`).",
            limit=limits.MAX_SESSIONS,
        )
    back = old.held() if old is not None else {}
    warnings: tuple[str, ...] = ()
    if old is not None:
        holding.check_free(old, command.holder.token, incumbent_live=command.incumbent_live)
        warnings = checkpoints.replace(old, _count(back), takeover=command.takeover)
    taken: tuple[Taken, ...] = ()
    if command.open_and_lease:
        taken = leases.choose(state, queue_ids, 0, command, now_us, back)
    record = records.SessionOpened(
        session=name,
        incarnation=command.new_incarnation,
        replaces=old.incarnation if old is not None else "",
        holder=holding.new_holder(command.holder, now_us),
        queue_ids=queue_ids,
        at_us=now_us,
        leased=taken,
    )
    parts = leases.segments(taken, 0)
    reply = Advanced(
        session=name,
        incarnation=command.new_incarnation,
        epoch=1,
        end_tag=parts[-1].last_tag if parts else 0,
        chunks=leases.chunks(state, parts),
        backlog=leases.backlog(state, queue_ids, Change({}, back, taken, parts)),
        other_sessions=_others(state, queue_ids, name),
        attaches=1 if parts else 0,
        warnings=warnings,
    )
    return Decision((record,), reply)


def apply_session_opened(state: State, sequence: int, record: records.SessionOpened) -> None:
    """Ends the replaced incarnation and begins the new one."""
    if record.replaces:
        old = state.sessions[record.session]
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
        history=state.history,
    )
    state.sessions[session.name] = session
    state.incarnations[session.incarnation] = session.name
    _set_queues(state, session, record.queue_ids)
    _lease(state, session, record.leased, record.at_us)


def release(state: State, command: commands.ReleaseSession, now_us: int) -> Decision:
    """S5, S9: an operator puts an absent owner's lease back and ends the incarnation."""
    session = holding.named(state, command.session)
    if command.incumbent_live and not command.fence:
        raise holding.already_held(session, "Stop its query first, or add --fence to end it.")
    for queue_id in session.queue_ids:
        state.queues[queue_id].use()
    record = records.SessionReleased(session.name, now_us)
    return Decision((record,), _count(session.held()))


def apply_session_released(state: State, sequence: int, record: records.SessionReleased) -> None:
    """Ends the incarnation."""
    session = state.sessions[record.session]
    end(state, session, sequence, "released by an operator", record.at_us)


def end(state: State, session: Session, sequence: int, how: str, at_us: int) -> None:
    """Puts a session's lease back and refuses its incarnation from then on."""
    let_go(state, session)
    for queue_id, positions in session.held().items():
        give_back(state, queue_id, positions, sequence)
    _set_queues(state, session, ())
    del state.sessions[session.name]
    del state.incarnations[session.incarnation]
    state.fetches.pop(session.name, None)
    state.ended[session.incarnation] = Ended(session.name, how, at_us)
    if len(state.ended) > MAX_ENDED:
        del state.ended[next(iter(state.ended))]


def _queue_ids(state: State, names: tuple[str, ...]) -> tuple[int, ...]:
    """S10: the queues to read, each once, in the order given."""
    if not names:
        raise InvalidArgumentError("The call names no queue to read; give at least one.")
    return tuple(dict.fromkeys(queue_named(state, name).queue_id for name in names))


def _check_queues(state: State, session: Session, queue_ids: tuple[int, ...]) -> None:
    """S10: refuses to leave out a queue whose messages the lease holds, unless it was deleted."""
    for queue_id, positions in session.held().items():
        queue = state.queues[queue_id]
        if queue_id not in queue_ids and not queue.deleted:
            raise CheckpointMismatchError(
                f"The session '{session.name}' holds {counted(len(positions), 'message')} of queue "
                f"'{queue.name}', which this query does not name any more. Name that queue until "
                "the batch is done, then leave it out.",
                session=session.name,
                queue=queue.name,
            )


def _set_queues(state: State, session: Session, queue_ids: tuple[int, ...]) -> None:
    for queue_id in session.queue_ids:
        state.queues[queue_id].sessions.discard(session.name)
    session.queue_ids = queue_ids
    for queue_id in queue_ids:
        state.queues[queue_id].sessions.add(session.name)


def _others(state: State, queue_ids: tuple[int, ...], name: str) -> tuple[str, ...]:
    """S10: the other sessions on these queues; which of them are live, the service knows."""
    names = {other for queue_id in queue_ids for other in state.queues[queue_id].sessions}
    return tuple(sorted(names - {name}))


def _lease(state: State, session: Session, taken: tuple[Taken, ...], at_us: int) -> None:
    if not taken:
        return
    assert session.lease is None
    assert session.floor == session.end
    parts = leases.segments(taken, session.floor)
    for segment in parts:
        state.queues[segment.queue_id].lease(segment.positions)
    session.lease = Lease(parts, at_us)
    session.end = parts[-1].last_tag
    session.turn += 1
    assert session.end > session.floor


def _accept(state: State, session: Session, at_us: int) -> None:
    """The whole lease is accepted and kept; holes have nothing to accept."""
    assert session.lease is not None
    let_go(state, session)
    for queue_id, positions in session.held().items():
        state.queues[queue_id].accept(positions)
    session.kept, session.lease = session.lease, None
    session.kept.accepted_us = at_us
    session.floor = session.end


def let_go(state: State, session: Session) -> None:
    """The kept lease can not be replayed any more: its messages are gone for good."""
    if session.kept is None:
        return
    for queue_id, positions in session.kept.held().items():
        queue = state.queues[queue_id]
        state.blocks.release(queue.let_go(positions))
        forget_if_drained(state, queue)
    session.kept = None


def _attaches(session: Session, record: records.SessionAdvanced) -> int:
    """S8: how many holders the lease that is outstanding after the record has had."""
    if record.leased:
        return 1
    if session.lease is None or record.accepted:
        return 0
    return session.lease.attaches + (record.epoch != session.epoch)


def _count(held: leases.Positions) -> int:
    return sum(map(len, held.values()))
