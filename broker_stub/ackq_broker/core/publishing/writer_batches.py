"""Writer batches (K3, K12): blocks are staged, and become visible together in one record.

Invariant: a batch of a writer becomes visible at most once, with all of its named stages or none;
room for staged rows is reserved, so a commit never fails for room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyroaring import BitMap

from ackq.errors import (
    BatchNotFoundError,
    BatchOrderError,
    FencedError,
    InUseError,
    InvalidArgumentError,
    LimitError,
    OutcomeUnknownError,
    StageMismatchError,
    UnroutableError,
)
from ackq_broker.core import commands, records
from ackq_broker.core.checks import check_batch_id, check_number, plural, queue_named
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import (
    BatchKey,
    CommittedBatch,
    Decision,
    DroppedBatch,
    StagedBlock,
)
from ackq_broker.core.fields import RoutedRows
from ackq_broker.core.publishing import prepared, repetition, writers
from ackq_broker.core.queues import enqueue
from ackq_broker.core.queues.bounds import NO_ROOM, BlockSize, bounded, overflowing, queue_full
from ackq_broker.core.queues.routing import route, router_of
from ackq_broker.core.queues.topology import exchange_not_found
from ackq_broker.core.state.state import Stage, StagedRows, State, Writer

MAX_STAGES: Final = 100_000


def open_stage(state: State, command: commands.OpenStage, now_us: int) -> Decision:
    """K3: begins a stage; a run not seen before drops the stages of the writer's older runs."""
    if not command.writer:
        raise InvalidArgumentError("The stage names no writer; give the query id or the txnAppId.")
    if command.stage_id in state.stages:
        raise FencedError(
            f"The stage {command.stage_id.hex()} exists already. Make a new random id for every "
            "write() call.",
            stage=command.stage_id.hex(),
        )
    check_batch_id(command.batch_id)
    writer = writers.find(state, command.writer, command.user)
    if writer is not None and command.batch_id < writer.batch_id:
        raise _passed(writer, command.batch_id)
    if len(state.stages) >= MAX_STAGES:
        raise LimitError(
            f"The stage of writer '{command.writer}' was not opened: the broker holds "
            f"{MAX_STAGES} stages, its limit. A stage ends with the commit or abort of its batch: "
            "`ackq batch list` shows the batches whose writes have died, and `ackq batch drop` "
            "drops them.",
            limit=MAX_STAGES,
        )
    superseded: tuple[bytes, ...] = ()
    if writer is not None and command.run_id not in writer.runs:
        superseded = tuple(
            stage_id
            for stage_id in sorted(state.stages_of.get(command.writer, ()))
            if not state.stages[stage_id].prepared
        )
    record = records.StageOpened(
        stage_id=command.stage_id,
        writer=command.writer,
        batch_id=command.batch_id,
        run_id=command.run_id,
        label=command.label,
        mandatory=command.mandatory,
        at_us=now_us,
        superseded=superseded,
        single=command.single,
        user=command.user,
    )
    return Decision((record,))


def apply_stage_opened(state: State, _sequence: int, record: records.StageOpened) -> None:
    """Adds an opened stage."""
    drop_stages(state, record.superseded)
    writer = repetition.remember_run(state, record.writer, record.run_id)
    writers.claim(writer, record.user)
    writer.touched_us = record.at_us
    if writer.batch_id < 0:
        writer.single = record.single
    state.stages[record.stage_id] = Stage(
        stage_id=record.stage_id,
        writer=record.writer,
        batch_id=record.batch_id,
        run_id=record.run_id,
        label=record.label,
        mandatory=record.mandatory,
        touched_us=record.at_us,
    )
    state.stages_of.setdefault(record.writer, set()).add(record.stage_id)


def stage_block(state: State, command: commands.StageBlock, now_us: int) -> Decision:
    """K3: adds a block to a stage: routes it and reserves its room, all of it or nothing."""
    stage = _open_stage(state, command.stage_id)
    if _is_replay(state, stage):
        # Its rows are counted and go nowhere, so they need no room, and no queue has to exist.
        counted_only = records.BlockStaged(
            command.stage_id, 0, command.rows, command.payload_bytes, now_us, ()
        )
        return Decision((counted_only,), StagedBlock(command.rows, None))
    router = router_of(state, command.exchange)
    if router is None:
        raise exchange_not_found(command.exchange)
    routed = route(state, router, command.routes, bitmaps.row_range(0, command.rows - 1))
    if routed.refused:
        raise routed.refused[0].reason
    rows_of = routed.rows
    if routed.unroutable and command.unroutable_queue:
        instead = queue_named(state, command.unroutable_queue).queue_id
        rows = rows_of.get(instead, BitMap()) | routed.unroutable
        rows_of = dict(sorted({**rows_of, instead: rows}.items()))
    elif stage.mandatory and routed.unroutable:
        raise UnroutableError(
            f"{plural(len(routed.unroutable), 'row')} of the batch would go to no queue: the "
            f"exchange '{command.exchange}' has no queue for routing key "
            f"'{routed.unroutable_key}'. Declare or bind a queue, or write with mandatory off.",
            exchange=command.exchange,
            routing_key=routed.unroutable_key,
        )
    size = BlockSize(command.rows, command.payload_bytes, command.sizes)
    refusing = any(bounded(state.queues[queue_id]) for queue_id in rows_of)
    ours = prepared.reserved(state, stage.batch) if refusing else {}
    for queue_id, rows in rows_of.items():
        queue, freed = state.queues[queue_id], ours.get(queue_id, NO_ROOM)
        if overflowing(queue, rows, size, freed=freed):
            raise queue_full(queue, rows, size, freed=freed)
    parts = tuple(enqueue.make_parts(rows_of, size, command.expiries).values())
    block_id = state.next_block_id if parts else 0
    record = records.BlockStaged(
        command.stage_id,
        block_id,
        command.rows,
        command.payload_bytes,
        now_us,
        parts,
        size.column() if parts else b"",
    )
    return Decision((record,), StagedBlock(command.rows, block_id or None))


def apply_block_staged(state: State, _sequence: int, record: records.BlockStaged) -> None:
    """Adds a block to its stage."""
    stage = state.stages[record.stage_id]
    stage.rows += record.rows
    stage.payload_bytes += record.payload_bytes
    _touch(state, stage, record.at_us)
    if record.parts:
        assert record.block_id == state.next_block_id
        state.next_block_id += 1
        state.blocks.add(record.block_id)
        state.blocks.sizes.add(record.block_id, record.sizes)
        stage.blocks.append(StagedRows(record.block_id, record.parts))
        reserve(state, record.parts, 1, stage.batch)


def seal_stage(state: State, command: commands.SealStage, now_us: int) -> Decision:
    """K3: seals a stage if it holds the rows and bytes that its writer counted."""
    stage = _open_stage(state, command.stage_id)
    if (stage.rows, stage.payload_bytes) != (command.rows, command.payload_bytes):
        raise StageMismatchError(
            f"The stage {command.stage_id.hex()} holds {stage.rows} rows with "
            f"{stage.payload_bytes} bytes; its writer counted {command.rows} rows with "
            f"{command.payload_bytes} bytes. Write the partition again.",
            stage=command.stage_id.hex(),
        )
    return Decision((records.StageSealed(command.stage_id, now_us),))


def apply_stage_sealed(state: State, _sequence: int, record: records.StageSealed) -> None:
    """Seals a stage, so that it takes no further rows."""
    stage = state.stages[record.stage_id]
    stage.sealed = True
    _touch(state, stage, record.at_us)


def drop_stage(state: State, command: commands.DropStage, _now_us: int) -> Decision:
    """K3: drops a stage whose upload ended without a seal."""
    stage = state.stages.get(command.stage_id)
    if stage is None or stage.sealed:
        return Decision()
    return Decision((records.StagesDropped((command.stage_id,)),))


def abort_batch(state: State, command: commands.AbortBatch, _now_us: int) -> Decision:
    """K3: drops the named stages of a batch; the batch may be repeated, and a commit stands.

    Prepared stages stay, unless nobody can run the write again: the batch may be committed at its
    home (K14).
    """
    writer = state.writers.get(command.writer)
    if writer is not None:
        writers.check_user(writer, command.user)
    named = tuple(
        stage_id
        for stage_id in dict.fromkeys(command.stage_ids)
        if (stage := state.stages.get(stage_id)) is not None
        and (stage.writer, stage.batch_id) == (command.writer, command.batch_id)
        and not (stage.prepared and writer is not None and not writer.single)
    )
    return Decision((records.StagesDropped(named),) if named else (), len(named))


def drop_batch(state: State, command: commands.DropBatch, _now_us: int) -> Decision:
    """K3: an operator drops a batch; a commit that names a stage of it is refused from then on."""
    writer, edges = command.batch.writer, prepared.edges_of(state, command.batch)
    found = list(_stages(state, command.batch)) if edges else stages_of(state, command.batch)
    writing = sum(not stage.sealed for stage in found)
    if writing and not command.force:
        raise InUseError(
            f"Batch {command.batch.batch_id} of writer '{writer}' was not dropped: it is being "
            f"written by {plural(writing, 'task')} now. Stop the write, or force the drop: the "
            "commit of the batch is then refused.",
            **command.batch._asdict(),
        )
    if edges and not command.force:
        raise InUseError(
            f"Batch {command.batch.batch_id} of writer '{writer}' was not dropped: it may be "
            f"committed at another of its edges, {edges}. Start the query, which commits or "
            "replaces it. If it will never run again, force the drop: the rows are lost here if "
            "the batch was committed there.",
            **command.batch._asdict(),
        )
    ids = tuple(sorted(stage.stage_id for stage in found))
    record = records.StagesDropped(ids, writer if edges else "")
    rows, payload_bytes = (sum(s.rows for s in found), sum(s.payload_bytes for s in found))
    return Decision((record,), DroppedBatch(len(found), rows, payload_bytes))


def apply_stages_dropped(state: State, _sequence: int, record: records.StagesDropped) -> None:
    """Drops stages of an aborted or dropped batch, or of an upload that was not sealed."""
    drop_stages(state, record.stage_ids)
    if record.prepared_by in state.writers:
        state.writers[record.prepared_by].preparing = prepared.NOTHING


def commit_batch(state: State, command: commands.CommitBatch, now_us: int) -> Decision:
    """K3, K12: makes the named stages visible, once per (writer, batch)."""
    check_batch_id(command.batch_id)
    check_number("The rows of a batch cannot be", command.rows)
    check_number("The bytes of a batch cannot be", command.payload_bytes)
    if command.single and command.stages and command.writer not in state.writers:
        raise _outcome_unknown(command)
    writer = writers.find(state, command.writer, command.user)
    last = writer.batch_id if writer is not None else -1
    if writer is not None and command.batch_id < last:
        raise _passed(writer, command.batch_id)
    # Stages of this batch or an earlier one are useless after the commit, named or not.
    stale = tuple(
        stage_id
        for stage_id in sorted(state.stages_of.get(command.writer, ()))
        if state.stages[stage_id].batch_id <= command.batch_id
    )
    if writer is not None and command.batch_id == last:
        if command.prepare or writer.edges not in ("", command.edges):
            return Decision(reply=repetition.committed(writer))
        return repetition.decide(writer, command, stale)
    if not command.finish:
        prepared.check_edges(writer, command)
        prepared.check_alone(state, command)
    if command.prepare and not command.edges:
        return prepared.look(writer, command)
    named = _named_stages(state, command)
    if not command.finish:
        _check_targets(state, command, named)
    if command.prepare:
        return prepared.prepare(writer, command, named, now_us)
    winners = {stage.stage_id for stage in named}
    rows = command.rows
    record = records.BatchCommitted(
        writer=command.writer,
        batch_id=command.batch_id,
        run_id=command.run_id,
        execution_id=command.execution_id,
        rows=rows,
        at_us=now_us,
        stage_ids=tuple(stage.stage_id for stage in named),
        dropped=tuple(stage_id for stage_id in stale if stage_id not in winners),
        drops=enqueue.drops_of_staged(state, (block for stage in named for block in stage.blocks)),
        single=command.single,
        target=command.target,
        user=command.user,
        edges=command.edges,
        others=command.others,
    )
    reply = CommittedBatch(rows, False, command.target, command.edges, command.others)
    return Decision((record,), reply)


def apply_batch_committed(state: State, sequence: int, record: records.BatchCommitted) -> None:
    """Places the rows of the stages of a committed batch, in order."""
    writer = repetition.remember_run(state, record.writer, record.run_id)
    assert record.batch_id > writer.batch_id
    writers.claim(writer, record.user)
    writer.batch_id = record.batch_id
    writer.executions = {}
    repetition.remember_write(writer, record.run_id, record.execution_id)
    writer.run_id = record.run_id
    writer.target = record.target
    writer.rows = record.rows
    writer.single = record.single
    writer.touched_us = record.at_us
    writer.edges, writer.others = record.edges, record.others
    visible = enqueue.Visible(record.at_us, sequence, durable=True)
    for stage_id in record.stage_ids:
        stage = state.stages[stage_id]
        assert stage.sealed
        for block in stage.blocks:
            for part in block.parts:
                # False for a queue that was deleted before its batch was finished (K14), and in
                # the journal of a version that dropped such rows.
                if enqueue.takes_rows(state, part.queue_id):
                    enqueue.place(state, block.block_id, part, visible)
    # The stages' own references are released last, so that no block is dead in between.
    drop_stages(state, record.stage_ids)
    drop_stages(state, record.dropped)
    enqueue.drop_heads(state, record.drops)


def apply_batch_repeated(state: State, _sequence: int, record: records.BatchRepeated) -> None:
    """Notes that another run has written the batch, as the run that committed it did."""
    repetition.remember_write(state.writers[record.writer], record.run_id, record.execution_id)


def drop_stages(state: State, stage_ids: tuple[bytes, ...]) -> None:
    """Drops stages and their reservations."""
    for stage_id in stage_ids:
        stage = state.stages.pop(stage_id)
        state.stages_of[stage.writer].remove(stage_id)
        if not state.stages_of[stage.writer]:
            del state.stages_of[stage.writer]
        for block in stage.blocks:
            reserve(state, block.parts, -1, stage.batch)
            state.blocks.release([block.block_id])


def reserve(
    state: State, parts: tuple[RoutedRows, ...], sign: int, batch: BatchKey | None = None
) -> None:
    """Adds (1) or releases (-1) the reservations of the parts in their queues.

    They belong to `batch`, or to a transaction (None).
    """
    for part in parts:
        queue = state.queues.get(part.queue_id)
        if queue is not None:
            queue.reserve(sign * part.count, sign * part.payload_bytes, batch)


def _touch(state: State, stage: Stage, at_us: int) -> None:
    """Notes when a stage and its writer were last heard of."""
    stage.touched_us = at_us
    state.writers[stage.writer].touched_us = at_us


def stages_of(state: State, batch: BatchKey) -> list[Stage]:
    """The stages of a batch; raises BatchNotFoundError when it has none."""
    found = list(_stages(state, batch))
    if not found:
        raise BatchNotFoundError(
            f"Nothing is staged of batch {batch.batch_id} of writer '{batch.writer}': it was "
            "committed, aborted or dropped, or never written. `ackq batch list` shows the staged "
            "batches.",
            **batch._asdict(),
        )
    return found


def _stages(state: State, batch: BatchKey) -> Iterator[Stage]:
    stages = (state.stages[stage_id] for stage_id in state.stages_of.get(batch.writer, ()))
    return (stage for stage in stages if stage.batch == batch)


def _is_replay(state: State, stage: Stage) -> bool:
    """K3: whether the stage's batch is committed, so that nothing of the stage will be visible.

    A commit drops all stages of its batch; so this one was opened later, to be compared with it.
    """
    writer = state.writers[stage.writer]
    assert stage.batch_id >= writer.batch_id
    return stage.batch_id == writer.batch_id


def _open_stage(state: State, stage_id: bytes) -> Stage:
    stage = state.stages.get(stage_id)
    if stage is None or stage.sealed:
        why = (
            "was sealed"
            if stage is not None
            else "was dropped by a newer run of its query, a commit, an abort or an operator "
            "(`ackq batch drop`)"
        )
        raise FencedError(
            f"The stage {stage_id.hex()} takes no more rows: it {why}. This attempt of the task "
            "can no longer succeed.",
            stage=stage_id.hex(),
        )
    return stage


def _outcome_unknown(command: commands.CommitBatch) -> OutcomeUnknownError:
    """K3: the error for a commit of a forgotten writer, which may repeat one that took effect."""
    return OutcomeUnknownError(
        f"The broker no longer knows the writer '{command.writer}', and did not commit: it "
        "forgets a write without txnAppId an hour after its commit, or a day after its last "
        "activity. If this repeats a commit whose answer was lost, the rows may be in the queue.",
        writer=command.writer,
    )


def _passed(writer: Writer, batch_id: int) -> BatchOrderError:
    return BatchOrderError(
        f"The writer '{writer.writer}' has committed batch {writer.batch_id}; batch {batch_id} is "
        "older and was refused. For a stream, continue with the newest checkpoint; for a batch "
        "write, use a higher txnVersion.",
        writer=writer.writer,
        batch=batch_id,
        committed=writer.batch_id,
    )


def _named_stages(state: State, command: commands.CommitBatch) -> list[Stage]:
    """The stages that a commit names, each sealed and with the counts of its writer."""
    found: dict[bytes, Stage] = {}
    for reference in command.stages:
        stage = state.stages.get(reference.stage_id)
        if stage is None or (stage.writer, stage.batch_id) != (command.writer, command.batch_id):
            why = (
                "does not exist: it was dropped by an abort, a commit, a newer run or an operator "
                "(`ackq batch drop`), or never sealed"
            )
        elif not stage.sealed:
            why = "is not complete"
        elif (stage.rows, stage.payload_bytes) != (reference.rows, reference.payload_bytes):
            why = (
                f"holds {stage.rows} rows with {stage.payload_bytes} bytes, not {reference.rows} "
                f"rows with {reference.payload_bytes} bytes"
            )
        elif stage.stage_id in found:
            why = "is named twice"
        else:
            found[stage.stage_id] = stage
            continue
        lost = stage is None and command.finish
        if lost and command.keep_changed:
            continue
        batch = f"Batch {command.batch_id} of writer '{command.writer}'"
        raise StageMismatchError(
            f"{batch} is committed at its home, and its stage {reference.stage_id.hex()} was "
            "dropped here, or lost with the broker's data: its rows do not become visible here. To "
            "go on without them, set changedBatch=keep for one run."
            if lost
            else f"{batch} was not committed, and nothing of it is visible: its stage "
            f"{reference.stage_id.hex()} {why}. Run the batch again.",
            writer=command.writer,
            batch=command.batch_id,
            stage=reference.stage_id.hex(),
        )
    return list(found.values())


def _check_targets(state: State, command: commands.CommitBatch, named: list[Stage]) -> None:
    """K3: refuses rows for a deleted queue; when the batch is run again, it is routed again."""
    parts = [part for stage in named for block in stage.blocks for part in block.parts]
    lost = sum(part.count for part in parts if not enqueue.takes_rows(state, part.queue_id))
    if lost:
        raise StageMismatchError(
            f"Batch {command.batch_id} of writer '{command.writer}' was not committed, and "
            f"nothing of it is visible: a queue for which {plural(lost, 'row')} of it had been "
            "staged was deleted meanwhile. Declare the queue, if it is missing, and run the batch "
            "again: its rows are then routed again.",
            writer=command.writer,
            batch=command.batch_id,
        )
