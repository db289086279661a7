"""Holder of a session (S3, S9, S10): found by incarnation, fenced by epoch and token."""

from __future__ import annotations

from typing import Final

from ackq.errors import (
    CheckpointMismatchError,
    FencedError,
    SessionNotFoundError,
)
from ackq_broker.core import history, records
from ackq_broker.core.checks import utc
from ackq_broker.core.fields import Holder
from ackq_broker.core.holders import already_held, holder_fields, holder_text
from ackq_broker.core.state.state import Session, State

# How an unproven incarnation ended that no checkpoint came back with (S9).
FORGOTTEN: Final = "forgotten, because no checkpoint came back with it in time,"


def session_named(state: State, name: str) -> Session:
    """The session of this name; raises SessionNotFoundError."""
    session = state.sessions.get(name)
    if session is None:
        raise SessionNotFoundError(
            f"There is no session '{name}'. See `ackq session list`.", session=name
        )
    return session


def unchanged(session: Session, now_us: int) -> records.SessionAdvanced:
    """A record that changes nothing of a session, to be completed."""
    return records.SessionAdvanced(
        session=session.name,
        epoch=session.epoch,
        holder=session.holder,
        queue_ids=session.queue_ids,
        at_us=now_us,
        queue_pattern=session.queue_pattern,
        timeout_ms=session.timeout_ms,
        retain_ms=session.retain_ms,
        retain_bytes=session.retain_bytes,
    )


def find_session(state: State, name: str, incarnation: str) -> Session:
    """The session of this incarnation; an empty name is not compared.

    Raises:
        SessionNotFoundError: The incarnation is unknown, or was replaced, released or forgotten
            (S9).
        CheckpointMismatchError: It belongs to a session of another name (S10).
        HistoryChangedError: It was opened in an older history (Q8).
    """
    owner = state.incarnations.get(incarnation)
    if owner is None:
        raise _not_found(state, name, incarnation)
    if name and name != owner:
        raise CheckpointMismatchError(
            f"The checkpoint belongs to session '{owner}' (incarnation {incarnation}), and this "
            f"query names session '{name}'. Set the option session to '{owner}', or start '{name}' "
            "with a new checkpoint.",
            session=owner,
            named=name,
            incarnation=incarnation,
        )
    session = state.sessions[owner]
    history.check(
        state,
        session.history,
        f"The incarnation {incarnation} of session '{owner}'",
        "Or start the query with a new checkpoint.",
    )
    return session


def standing(state: State, name: str, incarnation: str) -> str:
    """S9: the incarnation that continues this one at tag 0: its successor, or itself."""
    session = state.sessions.get(name)
    if session is None or not incarnation or session.succeeds != incarnation:
        return incarnation
    return session.incarnation


def forgotten(state: State, name: str, incarnation: str) -> bool:
    """S9: whether another incarnation may be opened in place of this one.

    Allowed when the broker remembers that nothing was ever leased under this incarnation, and the
    name is free. Under one that is merely unknown, rows may have been read, and its tags would now
    be other rows.
    """
    ended = state.ended.get(incarnation)
    gone = ended is not None and ended.how == FORGOTTEN and ended.session == name
    return gone and incarnation not in state.incarnations and name not in state.sessions


def check_free(session: Session, token: bytes, *, incumbent_live: bool) -> None:
    """S3, S8, K10: refuses another holder while the present one is live: AlreadyHeldError.

    Raises FencedError for a holder that an operator ended.
    """
    if token in session.fenced:
        raise FencedError(
            f"An operator settled messages of session '{session.name}', and ended the epoch of "
            "this reader: its batch has changed. Let its query end and start it again; its "
            "checkpoint is safe.",
            session=session.name,
            current_epoch=session.epoch,
        )
    if incumbent_live and token != session.holder.token:
        raise already_held(
            session,
            "One query at a time reads a session: stop that query, give this one another session "
            f"name, or end that one with `ackq session release {session.name} --fence`.",
        )


def check_epoch(session: Session, epoch: int) -> None:
    """S3: refuses a call of an older epoch: FencedError, naming the present holder."""
    if epoch < session.epoch:
        raise FencedError(
            f"The session '{session.name}' {_standing(session)} in epoch {session.epoch}; this "
            f"reader has epoch {epoch} and was replaced. Let its query end; its checkpoint is "
            "safe.",
            session=session.name,
            epoch=epoch,
            current_epoch=session.epoch,
            **holder_fields(session.holder),
        )
    if epoch > session.epoch:
        raise CheckpointMismatchError(
            f"This reader has epoch {epoch} of session '{session.name}', and the broker knows "
            f"epoch {session.epoch} only: the broker is older than the reader, as after a restore "
            "from a copy. Start the query again.",
            session=session.name,
            epoch=epoch,
            current_epoch=session.epoch,
        )


def check_token(session: Session, token: bytes) -> None:
    """S3: refuses a caller that is not the present holder: FencedError."""
    if token != session.holder.token:
        raise FencedError(
            f"The session '{session.name}' {_standing(session)}, and not by this reader. Let its "
            "query end; its checkpoint is safe.",
            session=session.name,
            current_epoch=session.epoch,
            **holder_fields(session.holder),
        )


def _standing(session: Session) -> str:
    """Text that names the holder of a session, or says why it has none."""
    if session.holder.token:
        return f"is held by {holder_text(session.holder)}"
    how = "its reader was away for too long" if session.detached else "an operator ended its reader"
    return f"is held by nobody ({how})"


def end_epoch(state: State, session: Session) -> None:
    """S5, S8: ends the epoch without a next holder; every call of that epoch is fenced."""
    old = session.holder
    begin_epoch(state, session, Holder(b"", old.host, old.pid, old.application, old.since_us))


def begin_epoch(state: State, session: Session, holder: Holder) -> None:
    """S3: begins an epoch with another holder; drops uncommitted stages (S6)."""
    drop_stages(state, session)
    session.epoch += 1
    session.holder = holder
    session.counted = 0


def drop_stages(state: State, session: Session) -> None:
    """S6: drops the uncommitted stages of the outstanding lease."""
    if session.lease is not None:
        for stage_id in session.lease.stages:
            del state.outcome_stages[stage_id]
        session.lease.stages = {}


def _not_found(state: State, name: str, incarnation: str) -> SessionNotFoundError:
    ended = state.ended.get(incarnation)
    if ended is not None:
        return SessionNotFoundError(
            f"The incarnation {incarnation} of session '{ended.session}' was {ended.how} at "
            f"{utc(ended.at_us)}; its messages went back to their queues. Start this query with a "
            "new checkpoint.",
            session=ended.session,
            incarnation=incarnation,
            how=ended.how,
        )
    return SessionNotFoundError(
        f"This broker (history {state.history_id}) does not know incarnation '{incarnation}' of "
        f"session '{name}': the checkpoint belongs to another broker, or this broker's data was "
        "lost. Connect to the broker that the checkpoint was made with, or start with a new "
        "checkpoint.",
        session=name,
        incarnation=incarnation,
        history=state.history_id,
    )
