"""Writers and what they have staged, as operators see them (K3)."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from ackq_broker.core.checks import queue_named
from ackq_broker.core.commands import BatchInfo, BatchKey, BatchTarget, StageInfo, WriterInfo
from ackq_broker.core.publishing import writer_batches
from ackq_broker.core.publishing.writers import named
from ackq_broker.core.queues import enqueue
from ackq_broker.core.state.state import Stage, State, Writer


def batches(state: State, queue: str, after: BatchKey | None, most: int) -> list[BatchInfo]:
    """Staged batches behind one, by writer and batch; raises QueueNotFoundError.

    Args:
        state: The state.
        queue: Only those with rows for it; empty: all.
        after: None: from the first.
        most: At most so many.
    """
    if queue:
        keys: Iterable[BatchKey] = queue_named(state, queue).staged_by
    else:
        keys = {stage.batch for stage in state.stages.values()}
    page = nsmallest(most, (key for key in keys if after is None or key > after))
    return [batch(state, key) for key in page]


def batch(state: State, key: BatchKey) -> BatchInfo:
    """One staged batch; raises BatchNotFoundError."""
    stages = writer_batches.stages_of(state, key)
    writer = state.writers[key.writer]
    return BatchInfo(
        batch=key,
        stages=tuple(map(_stage_info, sorted(stages, key=lambda stage: stage.touched_us))),
        targets=_targets(state, stages),
        committed=key.batch_id <= writer.batch_id,
        single=writer.single,
        user=writer.user,
    )


def writers(state: State, after: str, most: int, silent_since_us: int) -> list[WriterInfo]:
    """Writers behind one, by name.

    Args:
        state: The state.
        after: Empty: from the first.
        most: At most so many.
        silent_since_us: Only those that were not heard of since.
    """
    found = (
        name
        for name, writer in state.writers.items()
        if name > after and writer.touched_us <= silent_since_us
    )
    return [_writer_info(state, state.writers[name]) for name in nsmallest(most, found)]


def writer(state: State, name: str) -> WriterInfo:
    """One writer; raises WriterNotFoundError."""
    return _writer_info(state, named(state, name))


def _stage_info(stage: Stage) -> StageInfo:
    return StageInfo(
        stage.stage_id,
        stage.label,
        stage.run_id,
        stage.rows,
        stage.payload_bytes,
        stage.sealed,
        stage.touched_us,
    )


def _targets(state: State, stages: list[Stage]) -> tuple[BatchTarget, ...]:
    """The queues that stages hold room in, those with most rows first."""
    sums: dict[int, tuple[int, int]] = {}
    for stage in stages:
        for block in stage.blocks:
            for part in block.parts:
                rows, size = sums.get(part.queue_id, (0, 0))
                sums[part.queue_id] = (rows + part.count, size + part.payload_bytes)
    found = [
        BatchTarget(
            state.queues[queue_id].name if queue_id in state.queues else "",
            rows,
            payload_bytes,
            not enqueue.takes_rows(state, queue_id),
        )
        for queue_id, (rows, payload_bytes) in sums.items()
    ]
    return tuple(sorted(found, key=lambda target: (-target.rows, target.queue)))


def _writer_info(state: State, writer: Writer) -> WriterInfo:
    return WriterInfo(
        writer.writer,
        writer.batch_id,
        writer.rows,
        writer.touched_us,
        len(state.stages_of.get(writer.writer, ())),
        writer.single,
        writer.user,
    )
