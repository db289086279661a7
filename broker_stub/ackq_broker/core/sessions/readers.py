"""Index from (query, run, batch) to the lease it reads, updated by fetches (S6).

Settle calls look up their lease here.

Invariant: a run of a query is known by the epoch in which it fetched, so a settle call of a
replaced run is never taken for a call of its successor. A fetch or a settle call concerns only
queries and runs of its own user: the same ids of another user have no effect.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ackq.errors import (
    FencedError,
    InvalidArgumentError,
    SessionNotFoundError,
)
from ackq_broker.core import commands, records
from ackq_broker.core.checks import check_batch_id, foreign
from ackq_broker.core.commands import Decision, LeaseOwner
from ackq_broker.core.sessions import holder, planned
from ackq_broker.core.state.state import Lease, Reader, Session, State

# The most readers (runs, batches and epochs) known of one lease.
_MOST_READERS: Final = 64


class OwnedLease(NamedTuple):
    """The lease that a settle call is about: the outstanding one, or the last accepted (K2).

    `lease` is None when the session holds nothing; `batch_id` is the query's, -1 for none; `known`:
    whether the owner was noted as a reader of the lease.
    """

    session: Session
    lease: Lease | None
    kept: bool
    batch_id: int
    known: bool


def note(state: State, command: commands.NoteFetch, _now_us: int) -> Decision:
    """S6: records each run, batch and epoch that reads a lease; S9: records the first fetch.

    On Spark Connect a fetch names no query; it proves the incarnation nevertheless, and that the
    lease was read (S11).

    Raises:
        BatchChangedError: The batch was planned before, and this lease was made later (S11).
        InvalidArgumentError: The batch id is above 2^62.
    """
    check_batch_id(command.batch_id)
    session = state.sessions.get(state.incarnations.get(command.incarnation, ""))
    if session is None or command.epoch != session.epoch or not session.holder.token:
        return Decision()
    state.labels[session.name] = command.label
    if command.empty:
        return planned.name_empty(session, command)
    kept = _of_kept(session, command)
    lease = session.accepted_last if kept else session.lease
    if lease is None:
        return Decision()
    reader = _reader(command)
    if reader in lease.readers if command.query_id else lease.fetched:
        return Decision()
    planned.check_batch(state, session, lease, command)
    record = records.FetchNoted(
        session=session.name,
        query_id=command.query_id,
        run_id=command.run_id,
        batch_id=command.batch_id,
        epoch=command.epoch,
        kept=kept,
        user=command.user,
    )
    return Decision((record,))


def apply_noted(state: State, sequence: int, record: records.FetchNoted) -> None:
    """Adds a reader to the lease that it fetches.

    Spark plans a batch once its offsets are in the log, so a reader has a checkpoint that names the
    incarnation: the incarnation is proven (S9), also for a trigger that never calls again.
    """
    session = state.sessions[record.session]
    session.proven = True
    lease = session.accepted_last if record.kept else session.lease
    assert lease is not None
    lease.fetched = True
    if not record.query_id:
        return
    unindex(state, session)
    lease.readers = (*lease.readers, _reader(record))[-_MOST_READERS:]
    index(state, session)
    planned.name(session, record.batch_id)
    key = planned.PlannedBatch(record.user, record.query_id, record.batch_id)
    tags = lease.floor + 1, lease.segments[-1].last_tag
    planned.remember(state, session, key, sequence, tags)


def index(state: State, session: Session) -> None:
    """Adds a session to the index of runs, under each run that reads it."""
    for reader in _readers(session):
        state.runs.setdefault((reader.user, reader.run_id), set()).add(session.name)


def unindex(state: State, session: Session) -> None:
    """Removes a session from the index of runs, before its readers change."""
    for reader in _readers(session):
        run = reader.user, reader.run_id
        names = state.runs.get(run, set())
        names.discard(session.name)
        if not names:
            state.runs.pop(run, None)


def sessions_of_run(state: State, run_id: str, user: str) -> list[str]:
    """S6: sessions that a run reads, as noted for this user or without an owner (A10)."""
    return sorted({name for who in {user, ""} for name in state.runs.get((who, run_id), ())})


def latest(session: Session) -> Reader | None:
    """The reader that fetched last, if known; in one epoch, of the outstanding lease first."""
    found = reversed(_readers(session))
    return max(found, key=lambda reader: reader.epoch, default=None)


def find(state: State, owner: LeaseOwner) -> OwnedLease:
    """The lease that the owner named by a settle call reads.

    Raises:
        SessionNotFoundError: There is no such session, or none that the run reads for the batch.
        FencedError: The epoch of the run, or the one that the owner names, is over (S3).
        InvalidArgumentError: The run reads several sessions for the batch, or its id is above 2^62.
    """
    check_batch_id(owner.batch_id)
    session = (
        holder.session_named(state, owner.session) if owner.session else _read_by(state, owner)
    )
    if owner.epoch:
        holder.check_epoch(session, owner.epoch)
    for lease in session.leases():
        epochs = [reader.epoch for reader in lease.readers if _is(reader, owner)]
        if epochs:
            holder.check_epoch(session, max(epochs))
            return OwnedLease(session, lease, lease is session.accepted_last, owner.batch_id, True)
    # A call that names the session need not come from a query that reads it.
    theirs = [r for r in _readers(session) if not foreign(r.user, owner.user)]
    epochs = [r.epoch for r in theirs if owner.run_id and r.run_id == owner.run_id]
    holder.check_epoch(session, max(epochs, default=session.epoch))
    return OwnedLease(
        session, session.lease, False, owner.batch_id if owner.query_id else -1, False
    )


def check_has_read(state: State, session: Session, owner: LeaseOwner) -> None:
    """S3, S6: refuses an unknown run of a query that reads the session, or did: FencedError.

    A caller that names the session need not read it. But a run of its own query that settles rows
    has read them: an unknown run was replaced so long ago that it was forgotten, or it read rows
    that were leased before the session was opened again, when the tags were for other messages.
    """
    if not owner.query_id or not owner.run_id:
        return
    theirs = [
        reader
        for reader in _readers(session)
        if reader.query_id == owner.query_id and not foreign(reader.user, owner.user)
    ]
    if any(reader.run_id == owner.run_id for reader in theirs):
        return
    if not theirs:
        _check_never_read(state, session, owner)
        return
    raise FencedError(
        f"Run {owner.run_id} of query {owner.query_id} has read no message that session "
        f"'{session.name}' holds; run {theirs[-1].run_id} reads it now. Let this run end; its "
        "checkpoint is safe.",
        session=session.name,
        run_id=owner.run_id,
        current_epoch=session.epoch,
    )


def _check_never_read(state: State, session: Session, owner: LeaseOwner) -> None:
    """Refuses a query that read this session, but no message that it holds now: FencedError."""
    last = planned.known_batch(state, owner.query_id, owner.user)
    if last is None or last.session != session.name or not last.last_tag:
        return
    raise FencedError(
        f"Query {owner.query_id} has read no message that session '{session.name}' holds, though "
        "it read that session before: the session was opened again or released since, and its "
        "tags belong to other messages. Let this run end.",
        session=session.name,
        run_id=owner.run_id,
        current_epoch=session.epoch,
    )


def _read_by(state: State, owner: LeaseOwner) -> Session:
    """The one session that a run reads for a batch."""
    names = [
        name
        for name in sessions_of_run(state, owner.run_id, owner.user)
        if any(_is(reader, owner) for reader in _readers(state.sessions[name]))
    ]
    what = f"batch {owner.batch_id} of query '{owner.query_id}' (run {owner.run_id})"
    if not names:
        raise SessionNotFoundError(
            f"No lease is read by {what}, so it has no messages to settle. Settle rows of an ackq "
            "source of the same query, in the batch that brought them; or name their session with "
            "the option session (`ackq session list`).",
            query_id=owner.query_id,
            run_id=owner.run_id,
            batch=owner.batch_id,
        )
    if len(names) > 1:
        raise InvalidArgumentError(
            f"The {what} reads several sessions ({', '.join(names)}), and a delivery tag belongs "
            "to one of them. Name that session with the option session.",
            sessions=",".join(names),
        )
    return state.sessions[names[0]]


def _of_kept(session: Session, command: commands.NoteFetch) -> bool:
    """Whether a fetch reads the lease accepted last: known by its tags, else by its batch."""
    if command.last_tag:
        return command.last_tag <= session.floor
    batch = (command.query_id, command.batch_id)
    kept = session.accepted_last
    known = kept.readers if kept is not None else ()
    return any((reader.query_id, reader.batch_id) == batch for reader in known)


def _readers(session: Session) -> tuple[Reader, ...]:
    """Readers of the lease accepted last, then readers of the outstanding one."""
    return tuple(reader for lease in (*session.leases(),)[::-1] for reader in lease.readers)


def _is(reader: Reader, owner: LeaseOwner) -> bool:
    """Whether a reader is the run and batch that an owner names, and not of another user."""
    same = (reader.query_id, reader.run_id, reader.batch_id) == owner[1:4]
    return same and not foreign(reader.user, owner.user)


def _reader(noted: commands.NoteFetch | records.FetchNoted) -> Reader:
    """The reader that a lease keeps for a fetch."""
    return Reader(noted.query_id, noted.run_id, noted.batch_id, noted.epoch, noted.user)
