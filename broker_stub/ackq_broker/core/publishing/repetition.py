"""Repetitions of a writer's batch (K3, K12): checks that a repeated batch is the committed one.

Invariant: rows are taken for written only if their batch is the one that was committed, as far as
run, target, count and SQL execution show.
"""

from __future__ import annotations

from typing import Any, Final

from ackq.errors import BatchChangedError, BatchOrderError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import plural
from ackq_broker.core.commands import CommittedBatch, Decision
from ackq_broker.core.state.state import State, Writer

# Runs remembered for each writer, to distinguish a newer run from an older one that has not ended
# yet, and one write of a run from another.
_REMEMBERED_RUNS: Final = 32


def decide(writer: Writer, command: commands.CommitBatch, stale: tuple[bytes, ...]) -> Decision:
    """K12: takes an equal version for a repetition, unless its run used it for another write.

    Each run is held to its first write of the version: also in a run other than the one that
    committed, a second write of it is not a repetition.
    """
    known = writer.executions.get(command.run_id)
    if command.execution_id and known is not None and known != command.execution_id:
        raise BatchOrderError(
            f"The writer '{writer.writer}' was given version {command.batch_id} twice: this "
            "version has been used in this run, by another write. Give each write of a batch a "
            "txnAppId of its own, or a higher txnVersion.",
            writer=writer.writer,
            batch=command.batch_id,
        )
    _check_unchanged(writer, command)
    changes: tuple[records.Record, ...] = (records.StagesDropped(stale),) if stale else ()
    at = writer.reached.get(command.run_id)
    if known is None if command.execution_id else command.run_id and at != command.batch_id:
        noted = records.BatchRepeated(command.writer, command.run_id, command.execution_id)
        changes = (*changes, noted)
    return Decision(changes, committed(writer))


def committed(writer: Writer) -> CommittedBatch:
    """The batch committed last, as the reply to a repetition."""
    return CommittedBatch(writer.rows, True, writer.target, writer.edges, writer.others)


def _check_unchanged(writer: Writer, command: commands.CommitBatch) -> None:
    """K3: a repetition must be the first batch of its run, for the same target, with as many rows.

    Any other batch stands for other rows, which would be taken for written: BatchChangedError. A
    batch that an older version recorded has no target, and is not compared.
    """
    if command.keep_changed or not (writer.target and command.target):
        return
    at = writer.reached.get(command.run_id, writer.batch_id)
    was, now = (writer.target, writer.rows), (command.target, command.rows)
    if was == now and at == writer.batch_id:
        return
    went_on = f", which has continued from batch {at}" if at != writer.batch_id else ""
    raise BatchChangedError(
        f"Batch {writer.batch_id} of writer '{writer.writer}' was committed before, with "
        f"{plural(writer.rows, 'row')} for {writer.target} by run {writer.run_id}. It was sent "
        f"again with {plural(command.rows, 'row')} for {command.target} by run "
        f"{command.run_id}{went_on}, and nothing was written. Two queries may use copies of one "
        "checkpoint: give each a checkpoint of its own. If the batch is done, changedBatch=keep "
        "at the sink treats it as done, and these rows are not written.",
        writer=writer.writer,
        batch=writer.batch_id,
        committed_target=writer.target,
        committed_rows=writer.rows,
        target=command.target,
        rows=command.rows,
    )


def remember_run(state: State, name: str, run_id: str) -> Writer:
    """Adds a run to the latest runs of a writer; returns the writer, new or known."""
    writer = state.writers.setdefault(name, Writer(name, history=state.history))
    if run_id not in writer.runs:
        writer.runs = (*writer.runs, run_id)[-_REMEMBERED_RUNS:]
    return writer


def remember_write(writer: Writer, run_id: str, execution_id: str) -> None:
    """K3, K12: notes the batch that a run has reached and, in a query, the run's first write."""
    if run_id:
        writer.reached.pop(run_id, None)
        writer.reached[run_id] = writer.batch_id
        _bound(writer.reached)
    if execution_id:
        assert run_id not in writer.executions
        writer.executions[run_id] = execution_id
        _bound(writer.executions)


def _bound(by_run: dict[str, Any]) -> None:
    """I6: forgets the oldest entry when there are more than `_REMEMBERED_RUNS`."""
    if len(by_run) > _REMEMBERED_RUNS:
        del by_run[next(iter(by_run))]
