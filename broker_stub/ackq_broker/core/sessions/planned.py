"""The latest batch that each query planned, with rows or without (S11).

Invariant: a batch id that a query planned reads no lease that was made later. A sink may have that
batch, and would skip the rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ackq import limits
from ackq.errors import BatchChangedError, UnreadLeaseError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import check_number, plural
from ackq_broker.core.commands import Decision
from ackq_broker.core.sessions import holder
from ackq_broker.core.state.state import Lease, QueryBatch, Session, State

# Queries per user whose latest batch is kept; the longest unchanged are forgotten first (I6).
MAX_QUERIES: Final = 10_000
_NO_TAGS: Final = (0, 0)


class PlannedBatch(NamedTuple):
    """A batch of a user's query."""

    user: str
    query_id: str
    batch_id: int


def check_batch(state: State, session: Session, lease: Lease, command: commands.NoteFetch) -> None:
    """Refuses a batch that was planned before its messages were leased: BatchChangedError.

    All leases of a batch are made before it is planned, also the leases of several sessions. A
    later lease means that the query's offsets were lost: its sink may have the batch, and skip the
    rows. A task that does not know its query, as on Spark Connect, knows no batch either.
    """
    if not command.query_id:
        return
    latest = known_batch(state, command.query_id, command.user)
    for known in filter(None, (latest, session.planned)):
        # A client that is not Spark may number its batches from 0, after the opening.
        reported = known.batch_id or known.query_id
        if reported and command.batch_id <= known.batch_id and lease.sequence > known.sequence:
            raise _changed(session, lease, command, known)


def _changed(
    session: Session, lease: Lease, command: commands.NoteFetch, known: QueryBatch
) -> BatchChangedError:
    before = f"planned batch {known.batch_id}, which had no rows of session '{known.session}'"
    if known.last_tag:
        before = (
            f"read batch {known.batch_id}, from the tags {known.first_tag} to {known.last_tag} of "
            f"session '{known.session}'"
        )
    return BatchChangedError(
        f"Batch {command.batch_id} of query {command.query_id} would read the tags "
        f"{lease.floor + 1} to {lease.segments[-1].last_tag} of session '{session.name}', and "
        f"these were leased after the query had {before}: the checkpoint has lost its offsets and "
        "commits, and kept the query's id. A sink that already has a batch of this id would skip "
        "the rows, and they would be accepted unwritten. Start with a new, empty checkpoint, "
        f"after `ackq session release {session.name}`; messages that the query had read before "
        "may already have been processed.",
        query_id=command.query_id,
        batch=command.batch_id,
        read_batch=known.batch_id,
        session=session.name,
        read_session=known.session,
    )


def check_read(state: State, session: Session) -> None:
    """Refuses to accept a lease without any fetch or settlement: UnreadLeaseError.

    Either Spark read nothing, or the sink skipped the batch because it has one of this id. The
    second is excluded where no batch of this id was planned before: a task named an earlier batch
    in this epoch, batches of one process have consecutive ids, and no later one is known. A lease
    made by an older version may have been fetched without a note.
    """
    lease = session.lease
    assert lease is not None
    held = sum(map(len, lease.held().values()))
    known = lease.fetched or lease.outcomes is not None
    if known or not lease.sequence or not held or _is_new(state, session, lease):
        return
    first, last = lease.floor + 1, lease.segments[-1].last_tag
    raise UnreadLeaseError(
        f"The tags {first} to {last} of session '{session.name}' would be accepted, and no task "
        f"has read any of their {plural(held, 'message')}. Most likely Spark did not need the "
        "rows: the query joins them with an empty table, filters all of them out, or leaves them "
        "unread in foreachBatch. Then start it once more with the option unreadBatch=accept (keep "
        "the option if this may happen again): the batch is done, and its messages are accepted. "
        "Only if the checkpoint has lost files (a power loss, a restored or partly deleted "
        "folder), a sink that records batch ids may have skipped the batch unwritten: then start "
        "with a new, empty checkpoint instead, after "
        f"`ackq session release {session.name}`, which puts the messages back.",
        session=session.name,
        first_tag=first,
        last_tag=last,
        messages=held,
    )


def _is_new(state: State, session: Session, lease: Lease) -> bool:
    """Whether the batch of an unread lease has an id that its query had never planned before."""
    before = session.planned
    if before is None or session.named != session.epoch or before.sequence >= lease.sequence:
        return False
    latest = known_batch(state, before.query_id, before.user)
    return latest is None or latest.batch_id <= before.batch_id or latest.sequence > lease.sequence


def name_empty(session: Session, command: commands.NoteFetch) -> Decision:
    """Records the batch without rows that a task names, such as the batch of an opening."""
    known = session.planned
    done = known is not None and (
        known.query_id == command.query_id
        and known.batch_id >= command.batch_id
        and (known.batch_id > command.batch_id or session.named == session.epoch)
    )
    if not command.query_id or done:
        return Decision()
    record = records.BatchPlanned(
        session.name,
        command.query_id,
        command.batch_id,
        session.counted,
        named=True,
        user=command.user,
    )
    return Decision((record,))


def count_empty(session: Session, command: commands.Attach) -> Decision:
    """Records batches without rows that the holder's query planned, and that no task knows.

    Raises FencedError when another holder has the session, InvalidArgumentError for more than 2^62.
    """
    check_number("The batches planned without rows cannot be", command.planned)
    holder.check_token(session, command.holder.token)
    known = session.planned
    more = command.planned - session.counted
    reply = commands.Attached(session.epoch, (), 0)
    if known is None or more <= 0:
        return Decision((), reply)
    record = records.BatchPlanned(
        session.name,
        known.query_id,
        _later(known.batch_id, more),
        command.planned,
        user=known.user,
    )
    return Decision((record,), reply)


def apply_planned(state: State, sequence: int, record: records.BatchPlanned) -> None:
    """Remembers a planned batch for its session and its query."""
    session = state.sessions[record.session]
    session.counted = record.counted
    if record.named:
        name(session, record.batch_id)
    key = PlannedBatch(record.user, record.query_id, record.batch_id)
    remember(state, session, key, sequence, _NO_TAGS)


def name(session: Session, batch_id: int) -> None:
    """Notes that a task named its batch; one before the latest says nothing about the next."""
    if session.planned is None or batch_id >= session.planned.batch_id:
        session.named = session.epoch


def apply_accepted(state: State, sequence: int, session: Session, lease: Lease) -> None:
    """Counts the batch of an accepted lease that no task named: it was planned nevertheless."""
    known = session.planned
    if known is not None and not lease.readers:
        tags = lease.floor + 1, lease.segments[-1].last_tag
        key = PlannedBatch(known.user, known.query_id, _later(known.batch_id, 1))
        remember(state, session, key, sequence, tags)


def _later(batch_id: int, more: int) -> int:
    """The id of the batch that comes so many later; the largest id stays it."""
    return min(batch_id + more, limits.LARGEST_NUMBER)


def known_batch(state: State, query_id: str, user: str) -> QueryBatch | None:
    """The latest batch of a user's query.

    Includes batches without an owner (A10); without users, the batches of every owner.
    """
    owners = (user, "") if user else tuple(state.queries)
    found = (state.queries.get(owner, {}).get(query_id) for owner in owners)
    return max(filter(None, found), key=lambda known: known.batch_id, default=None)


def remember(
    state: State, session: Session, key: PlannedBatch, sequence: int, tags: tuple[int, int]
) -> None:
    """Notes a planned batch for its session and its query, unless a later one is known."""
    batch = QueryBatch(key.query_id, key.batch_id, sequence, session.name, *tags, key.user)
    known = session.planned
    if known is None or key.batch_id > known.batch_id or key.query_id != known.query_id:
        session.planned = batch
    latest = known_batch(state, key.query_id, key.user)
    if not key.query_id or (latest is not None and key.batch_id <= latest.batch_id):
        return
    own = state.queries.setdefault(key.user, {})
    own.pop(key.query_id, None)
    own[key.query_id] = batch
    if len(own) > MAX_QUERIES:
        del own[next(iter(own))]
