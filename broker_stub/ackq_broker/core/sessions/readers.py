"""Index from (query, run, batch) to the lease it reads, updated by fetches (S6).

Settle calls look up their lease here.

Invariant: a run of a query is known by the epoch in which it fetched, so a settle call of a
replaced run is never taken for one of its successor.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ackq.errors import InvalidArgumentError, SessionNotFoundError
from ackq_broker.core import commands, records
from ackq_broker.core.commands import Decision, LeaseOwner
from ackq_broker.core.sessions import holder
from ackq_broker.core.state.state import Lease, Reader, Session, State

# The most readers (runs, batches and epochs) known of one lease.
_MOST_READERS: Final = 64


class OwnedLease(NamedTuple):
    """The lease that a settle call is about: the outstanding one, or the `kept` one (K2).

    `lease` is None when the session holds nothing; `batch_id` is the query's, -1 for none; `known`:
    whether the owner was noted as a reader of the lease.
    """

    session: Session
    lease: Lease | None
    kept: bool
    batch_id: int
    known: bool


def note(state: State, command: commands.NoteFetch, _now_us: int) -> Decision:
    """S6: one record for each run, batch and epoch that reads a lease; S9: one for the first fetch.

    On Spark Connect a fetch names no query; it proves the incarnation all the same.
    """
    session = state.sessions.get(state.incarnations.get(command.incarnation, ""))
    if session is None or command.epoch != session.epoch or not session.holder.token:
        return Decision()
    state.labels[session.name] = command.label
    kept = _of_kept(session, command)
    lease = session.kept if kept else session.lease
    if lease is None:
        return Decision()
    reader = Reader(command.query_id, command.run_id, command.batch_id, command.epoch)
    if reader in lease.readers if command.query_id else session.proven:
        return Decision()
    record = records.FetchNoted(
        session=session.name,
        query_id=command.query_id,
        run_id=command.run_id,
        batch_id=command.batch_id,
        epoch=command.epoch,
        kept=kept,
    )
    return Decision((record,))


def apply_noted(state: State, _sequence: int, record: records.FetchNoted) -> None:
    """Adds the reader.

    Spark plans a batch once its offsets are in the log, so a reader has a checkpoint that names the
    incarnation: it is proven (S9), also for a trigger that never calls again.
    """
    session = state.sessions[record.session]
    session.proven = True
    lease = session.kept if record.kept else session.lease
    assert lease is not None
    if not record.query_id:
        return
    unindex(state, session)
    reader = Reader(record.query_id, record.run_id, record.batch_id, record.epoch)
    lease.readers = (*lease.readers, reader)[-_MOST_READERS:]
    index(state, session)


def index(state: State, session: Session) -> None:
    """The runs that read a session lead to it."""
    for reader in _readers(session):
        state.runs.setdefault(reader.run_id, set()).add(session.name)


def unindex(state: State, session: Session) -> None:
    """The opposite of `index`, before readers come or go."""
    for reader in _readers(session):
        names = state.runs.get(reader.run_id, set())
        names.discard(session.name)
        if not names:
            state.runs.pop(reader.run_id, None)


def latest(session: Session) -> Reader | None:
    """Who fetched last, as far as is known; of two of one epoch, from the outstanding lease."""
    found = reversed(_readers(session))
    return max(found, key=lambda reader: reader.epoch, default=None)


def find(state: State, owner: LeaseOwner) -> OwnedLease:
    """The lease of an owner.

    Raises:
        SessionNotFoundError: There is no such session, or none that the run reads for the batch.
        FencedError: The epoch of the run is over (S3).
        InvalidArgumentError: The batch reads two sessions.
    """
    session = (
        holder.session_named(state, owner.session) if owner.session else _read_by(state, owner)
    )
    for lease in session.leases():
        epochs = [reader.epoch for reader in lease.readers if _is(reader, owner)]
        if epochs:
            holder.check_epoch(session, max(epochs))
            return OwnedLease(session, lease, lease is session.kept, owner.batch_id, True)
    # A call that names the session need not come from a query that reads it.
    epochs = [r.epoch for r in _readers(session) if owner.run_id and r.run_id == owner.run_id]
    holder.check_epoch(session, max(epochs, default=session.epoch))
    return OwnedLease(
        session, session.lease, False, owner.batch_id if owner.query_id else -1, False
    )


def _read_by(state: State, owner: LeaseOwner) -> Session:
    """The one session that a run reads for a batch."""
    names = [
        name
        for name in sorted(state.runs.get(owner.run_id, ()))
        if any(_is(reader, owner) for reader in _readers(state.sessions[name]))
    ]
    what = f"batch {owner.batch_id} of query '{owner.query_id}' (run {owner.run_id})"
    if not names:
        raise SessionNotFoundError(
            f"No lease is read by {what}, so there is nothing that it can settle. Settle rows of "
            "an ackq source of the same query, in the batch that brought them; or name their "
            "session with the option session (`ackq session list`).",
            query_id=owner.query_id,
            run_id=owner.run_id,
            batch=owner.batch_id,
        )
    if len(names) > 1:
        raise InvalidArgumentError(
            f"The {what} reads several sessions ({', '.join(names)}), and a delivery tag means "
            "something in one of them only. Say which with the option session.",
            sessions=",".join(names),
        )
    return state.sessions[names[0]]


def _of_kept(session: Session, command: commands.NoteFetch) -> bool:
    """Whether a fetch is of the kept lease: by its tags, else by the batch it was fetched for."""
    if command.last_tag:
        return command.last_tag <= session.floor
    batch = (command.query_id, command.batch_id)
    kept = session.kept.readers if session.kept is not None else ()
    return any((reader.query_id, reader.batch_id) == batch for reader in kept)


def _readers(session: Session) -> tuple[Reader, ...]:
    """Those of the kept lease, then those of the outstanding one."""
    return tuple(reader for lease in (*session.leases(),)[::-1] for reader in lease.readers)


def _is(reader: Reader, owner: LeaseOwner) -> bool:
    """Whether a reader is the run and the batch that an owner names."""
    return (reader.query_id, reader.run_id, reader.batch_id) == owner[1:]
