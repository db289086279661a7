"""Checks that a checkpoint fits a session (S4, S9); a refusal names tags, cause and remedy."""

from __future__ import annotations

from ackq.errors import CheckpointMismatchError, LeaseHeldError
from ackq_broker.core.checks import plural
from ackq_broker.core.commands import Released
from ackq_broker.core.state.state import Lease, Session

_REMEDY = "Use the newest checkpoint of this query, or start with a new checkpoint and session."
_OLDER_THAN_ACCEPTED = (
    "the checkpoint is older than the accepted batches, and the messages between are deleted from "
    "the broker"
)
_BROKER_OLDER = "the broker is older than the checkpoint, as after a restore from a copy"


def accepts(session: Session, start_tag: int) -> bool:
    """S4: whether a start tag accepts the outstanding lease.

    The end of the lease does, its floor does not; any other tag raises CheckpointMismatchError.
    """
    if start_tag == session.floor:
        return False
    if start_tag == session.end:
        return True
    if start_tag < session.floor:
        cause = f"everything up to tag {session.floor} was accepted: {_OLDER_THAN_ACCEPTED}"
    elif start_tag > session.end:
        cause = f"the broker knows tags up to {session.end} only: {_BROKER_OLDER}"
    else:
        cause = (
            f"the outstanding lease is ({session.floor}, {session.end}]: no batch of this session "
            "ended inside it, so the checkpoint belongs to another session"
        )
    raise CheckpointMismatchError(
        f"The checkpoint of session '{session.name}' stands at tag {start_tag}, but {cause}. "
        f"{_REMEDY}",
        session=session.name,
        start_tag=start_tag,
        floor_tag=session.floor,
        end_tag=session.end,
    )


def replayed(session: Session, start_tag: int, end_tag: int) -> Lease | None:
    """S2: the lease that a replay names by all of its tags: the outstanding or the last accepted.

    None when there is nothing to replay. Raises CheckpointMismatchError.
    """
    if (start_tag, end_tag) == (session.floor, session.end):
        return session.lease
    if start_tag == end_tag == session.floor:
        return None
    kept = session.accepted_last
    if kept is not None and (start_tag, end_tag) == (kept.floor, session.floor):
        return kept
    if start_tag < session.floor:
        cause = f"everything up to tag {session.floor} was accepted: {_OLDER_THAN_ACCEPTED}"
    elif end_tag > session.end:
        cause = f"the broker knows tags up to {session.end} only: {_BROKER_OLDER}"
    else:
        cause = f"the outstanding lease is ({session.floor}, {session.end}]"
    raise CheckpointMismatchError(
        f"The tags ({start_tag}, {end_tag}] of session '{session.name}' cannot be read again: "
        f"{cause}. {_REMEDY}",
        session=session.name,
        start_tag=start_tag,
        end_tag=end_tag,
        floor_tag=session.floor,
        lease_end_tag=session.end,
    )


def fetched(session: Session, after_tag: int, last_tag: int) -> Lease | None:
    """S2: the lease, outstanding or last accepted, of a range of tags; None if nothing is leased.

    Raises CheckpointMismatchError.
    """
    if session.floor <= after_tag <= last_tag <= session.end:
        return session.lease
    kept = session.accepted_last
    if kept is not None and kept.floor <= after_tag <= last_tag <= session.floor:
        return kept
    raise CheckpointMismatchError(
        f"The tags ({after_tag}, {last_tag}] are not inside the outstanding lease "
        f"({session.floor}, {session.end}] of session '{session.name}': the batch they belong to "
        "was accepted, or is not of this session. Let this task end; its query reads the "
        "outstanding lease.",
        session=session.name,
        after_tag=after_tag,
        last_tag=last_tag,
        floor_tag=session.floor,
        end_tag=session.end,
    )


def replace(old: Session, back: Released, *, takeover: bool) -> tuple[str, ...]:
    """S9: warnings of an opening that replaces a session, whose messages go `back` to their queues.

    Raises LeaseHeldError when the session is proven and holds messages, unless `takeover`.
    """
    held = back.released + back.dropped
    if old.proven and held and not takeover:
        raise LeaseHeldError(
            f"The session '{old.name}' holds {plural(held, 'message')} for a query with another "
            "checkpoint: these rows may already have been processed. Start that query again with "
            f"its checkpoint; or put the messages back with `ackq session release {old.name}`, or "
            "with the option takeover=true; or choose another session name.",
            session=old.name,
            incarnation=old.incarnation,
            messages=held,
        )
    anew = f"The session '{old.name}' was opened again with a new incarnation: "
    if held:
        what = (
            f"{plural(back.released, 'message')} leased under its incarnation {old.incarnation} "
            "went back"
        )
        lost = f"; {back.dropped} of deleted queues were dropped" if back.dropped else ""
        return (f"{anew}{what} and will be delivered again{lost}.",)
    if old.proven:
        return (
            f"{anew}the checkpoint of its incarnation {old.incarnation} is refused from now on.",
        )
    return ()
