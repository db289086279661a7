"""Reads of retained batches (S13): which there are, and their rows."""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain, islice
from typing import NamedTuple

from ackq.errors import PreconditionFailedError
from ackq_broker.core.checks import utc
from ackq_broker.core.commands import Chunk, Piece
from ackq_broker.core.sessions.holder import find_session, session_named
from ackq_broker.core.sessions.lease import count_messages, lease_chunks
from ackq_broker.core.state.state import Lease, Session, State
from ackq_broker.core.views.messages import rows_of


class RetainedBatch(NamedTuple):
    """An accepted batch that can be read again, as in `ackq.v1.RetainedBatch`."""

    batch_id: int
    after_tag: int
    last_tag: int
    accepted_us: int
    messages: int
    holes: int
    chunks: tuple[Chunk, ...]


def find_retained(
    state: State, name: str, batch_id: int | None = None, from_us: int = 0, to_us: int = 0
) -> tuple[str, list[Lease]]:
    """The incarnation of a session, and its retained batches: one by number, or by acceptance.

    Raises:
        SessionNotFoundError: There is no such session.
        PreconditionFailedError: Some of what is asked for is not retained, or not accepted yet.
    """
    session = session_named(state, name)
    kept = session.kept
    if batch_id is not None:
        found = [lease for lease in kept if lease.batch_id == batch_id][-1:]
        if not found:
            raise _refused(session, f"Batch {batch_id} of session '{name}'")
        return session.incarnation, found
    if from_us and _left_out(session) and (not kept or from_us < kept[0].accepted_us):
        raise _refused(session, f"What session '{name}' accepted from {utc(from_us)} on")
    after = (lease for lease in kept if lease.accepted_us >= from_us)
    return session.incarnation, [each for each in after if not to_us or each.accepted_us < to_us]


def retained_batch(state: State, lease: Lease) -> RetainedBatch:
    """A batch of `find_retained`."""
    return RetainedBatch(
        lease.batch_id,
        lease.floor,
        lease.end,
        lease.accepted_us,
        count_messages(lease.held()),
        len(lease.holes),
        lease_chunks(state, lease.segments),
    )


def retained_pieces(
    state: State, name: str, incarnation: str, after_tag: int, last_tag: int, most_pieces: int
) -> list[Piece]:
    """S13: the first rows of the tags (after_tag, last_tag] of retained batches, without holes.

    Also of an older history (Q8), as reading changes nothing.

    Raises:
        SessionNotFoundError: The incarnation is unknown or ended.
        PreconditionFailedError: Some of the tags are not retained.
    """
    session = session_named(state, name)
    if session.incarnation != incarnation:
        session = find_session(state, name, incarnation)
    kept = session.kept
    if not kept or not kept[0].floor <= after_tag <= last_tag <= session.floor:
        tags = f"The tags ({after_tag}, {last_tag}] of session '{name}'"
        raise _refused(session, tags)
    first = bisect_right(kept, after_tag, key=_floor) - 1
    last = bisect_right(kept, last_tag - 1, key=_floor)
    rows = (rows_of(state, lease, lease.holes, after_tag, last_tag) for lease in kept[first:last])
    return list(islice(chain.from_iterable(rows), most_pieces))


def _floor(lease: Lease) -> int:
    return lease.floor


def _left_out(session: Session) -> bool:
    """Whether anything that the session accepted is not retained."""
    return session.floor > 0 if not session.kept else session.kept[0].floor > 0


def _refused(session: Session, what: str) -> PreconditionFailedError:
    """The refusal to read something that is not retained, with what is."""
    kept = session.kept
    there = "nothing of that session is"
    if kept:
        first, last = (
            f"batch {lease.batch_id}, accepted {utc(lease.accepted_us)}"
            for lease in (kept[0], kept[-1])
        )
        there = f"{len(kept)} batches of it are, from {first}, to {last}"
    return PreconditionFailedError(
        f"{what} is not retained: {there}. The options retain and retainBytes of the query decide "
        f"how much is retained from then on; see `ackq session show {session.name}`.",
        session=session.name,
    )
