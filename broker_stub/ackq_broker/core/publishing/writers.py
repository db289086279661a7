"""Writers (K3, K12, A10): their bound, owners and retention, and the names of forgotten ones.

Invariant: a writer that nobody can run again is forgotten automatically; any other writer that has
committed or prepared a batch is forgotten only by an operator, and nothing is written under its
name from then on. A writer with an owner is changed by no other user.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from ackq import limits
from ackq.errors import (
    InUseError,
    LimitError,
    WriterForgottenError,
    WriterNotFoundError,
)
from ackq_broker.core import commands, history, records
from ackq_broker.core.checks import check_owner, check_share, plural, utc
from ackq_broker.core.commands import Decision
from ackq_broker.core.state.state import Stage, State, Writer

# Measured: 150 MiB, and 27 MiB of a snapshot.
MAX_FORGOTTEN: Final = 1_000_000

_SECOND_US: Final = 1_000_000
# A writer heard of within this time is forgotten only by force: it may be between two batches.
_RECENT_US: Final = 24 * 3600 * _SECOND_US
_DIGEST_BYTES: Final = 16


def find(state: State, name: str, user: str) -> Writer | None:
    """The known writer of this name; None for a new one, for which there is room.

    Raises:
        PermissionDeniedError: It belongs to another user.
        HistoryChangedError: It began in an older history (Q8).
        WriterForgottenError: An operator made the broker forget it.
        LimitError: It is new, and the bound on writers is reached.
    """
    writer = state.writers.get(name)
    if writer is None:
        _check_new(state, name)
        check_share("writers", user, limits.MAX_WRITERS, state.writers)
    else:
        check_user(writer, user)
        history.check(
            state,
            writer.history,
            f"The writer '{name}'",
            "Or write with a new checkpoint, or under another txnAppId.",
        )
    return writer


def check_user(writer: Writer, user: str) -> None:
    """A10: refuses a user other than the writer's owner: PermissionDeniedError."""
    remedy = "An operator can give it to that user: `ackq writer assign`."
    check_owner(f"the writer '{writer.writer}'", writer.user, user, remedy)


def claim(writer: Writer, user: str) -> None:
    """A10: assigns an unowned writer to the calling user."""
    if user:
        assert writer.user in ("", user)
        writer.user = user


def assign(state: State, command: commands.AssignWriter, _now_us: int) -> Decision:
    """A10: an operator gives a writer to another user."""
    writer = named(state, command.writer)
    if writer.user == command.user:
        return Decision(reply=writer.user)
    return Decision((records.WriterAssigned(writer.writer, command.user),), writer.user)


def apply_assigned(state: State, _sequence: int, record: records.WriterAssigned) -> None:
    """Changes the owner of a writer."""
    state.writers[record.writer].user = record.user


def forget(state: State, command: commands.ForgetWriter, now_us: int) -> Decision:
    """K3: forgets a writer at an operator's command; False: it was forgotten before."""
    if _digest(command.writer) in state.forgotten:
        return Decision(reply=False)
    writer = named(state, command.writer)
    _check_idle(state, writer, now_us, force=command.force)
    if len(state.forgotten) >= MAX_FORGOTTEN:
        raise LimitError(
            f"The writer '{writer.writer}' was not forgotten: the broker remembers the names of "
            f"{MAX_FORGOTTEN} forgotten writers, its limit. Use a txnAppId for each program, not "
            "for each run, with a txnVersion that grows.",
            limit=MAX_FORGOTTEN,
        )
    return Decision((records.WriterForgotten(writer.writer, now_us),), True)


def apply_forgotten(state: State, _sequence: int, record: records.WriterForgotten) -> None:
    """Keeps a digest of the name in place of the writer."""
    del state.writers[record.writer]
    state.forgotten[_digest(record.writer)] = record.at_us


def named(state: State, name: str) -> Writer:
    """The writer of this name; raises WriterNotFoundError."""
    writer = state.writers.get(name)
    if writer is None:
        raise WriterNotFoundError(
            f"There is no writer '{name}'. `ackq writer list` shows all writers.", writer=name
        )
    return writer


def done(state: State, now_us: int) -> tuple[str, ...]:
    """K3: names of the writers past their retention, without writers that have stages."""
    return tuple(
        sorted(
            writer.writer
            for writer in state.writers.values()
            if writer.writer not in state.stages_of
            and now_us - writer.touched_us > _retention_us(writer)
        )
    )


def abandoned_stages(state: State, now_us: int) -> tuple[bytes, ...]:
    """K3: ids of the stages past their retention."""
    return tuple(
        sorted(
            stage.stage_id
            for stage in state.stages.values()
            if _is_abandoned(stage, state.writers[stage.writer], now_us)
        )
    )


def _is_abandoned(stage: Stage, writer: Writer, now_us: int) -> bool:
    """Whether a stage is past its retention.

    For a single write its latest activity counts: a task may write for hours after another one was
    complete. A prepared stage waits for the end of its batch, which another broker may know (K14).
    """
    if stage.prepared and not writer.single:
        return False
    if now_us - stage.touched_us > limits.STAGE_RETENTION_S * _SECOND_US:
        return True
    idle_us = now_us - writer.touched_us
    return writer.single and idle_us > limits.SINGLE_STAGE_RETENTION_S * _SECOND_US


def _retention_us(writer: Writer) -> float:
    """Retention of a writer without stages, counted from when it was last heard of."""
    if writer.single:
        committed = writer.batch_id >= 0
        seconds = limits.SINGLE_COMMIT_RETENTION_S if committed else limits.SINGLE_STAGE_RETENTION_S
        return seconds * _SECOND_US
    # A batch that is prepared, without rows here, may be committed at its home (K14).
    known = max(writer.batch_id, writer.preparing[0]) >= 0
    return float("inf") if known else limits.STAGE_RETENTION_S * _SECOND_US


def _check_new(state: State, name: str) -> None:
    """I6: refuses a new writer that was forgotten, or that exceeds the bound on writers."""
    forgotten_us = state.forgotten.get(_digest(name))
    if forgotten_us is not None:
        raise WriterForgottenError(
            f"The writer '{name}' was forgotten at {utc(forgotten_us)}, by `ackq writer forget`. "
            "The broker no longer knows which of its batches were committed, so it writes no "
            "batch under this name. Write with a new checkpoint, or under another txnAppId.",
            writer=name,
            forgotten_us=forgotten_us,
        )
    if len(state.writers) >= limits.MAX_WRITERS:
        raise LimitError(
            f"The writer '{name}' was refused: the broker remembers {limits.MAX_WRITERS} writers, "
            "its limit. Each checkpoint that writes is a writer, each txnAppId with its target, "
            "and for an hour each write without txnAppId. `ackq writer list --idle 30d` shows "
            "writers that have been idle for long, and `ackq writer forget` forgets those that "
            "will not write again.",
            limit=limits.MAX_WRITERS,
        )


def _check_idle(state: State, writer: Writer, now_us: int, *, force: bool) -> None:
    """Refuses to forget a writer that may be live."""
    stages = len(state.stages_of.get(writer.writer, ()))
    if stages:
        raise InUseError(
            f"The writer '{writer.writer}' was not forgotten: it has {plural(stages, 'stage')}. "
            "Stop it, and drop them with `ackq batch drop`.",
            writer=writer.writer,
        )
    if now_us - writer.touched_us <= _RECENT_US and not force:
        raise InUseError(
            f"The writer '{writer.writer}' was not forgotten: it was active at "
            f"{utc(writer.touched_us)}, within the last day. If it will not write again, force "
            "it: writes under its name are then refused.",
            writer=writer.writer,
        )


def _digest(name: str) -> bytes:
    """Digest of fixed size that is kept in place of a forgotten writer's name."""
    return blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()
