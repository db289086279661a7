"""Writers and their staged batches (K3); the missing numbers of a publisher (P10)."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from ackq_broker.core.checks import queue_named
from ackq_broker.core.commands import BatchInfo, BatchKey, BatchTarget, StageInfo, WriterInfo
from ackq_broker.core.publishing import confirm_mode, prepared, writer_batches
from ackq_broker.core.publishing.writers import named
from ackq_broker.core.queues import enqueue
from ackq_broker.core.state.state import Stage, State, Writer


def staged_batches(
    state: State, most: int, queue: str = "", after: BatchKey | None = None
) -> list[BatchInfo]:
    """Up to `most` staged batches after `after`, ordered by writer and batch id.

    Raises QueueNotFoundError.

    Args:
        state: The state.
        most: The maximum number of batches.
        queue: Only batches with rows for this queue; empty: all.
        after: None: from the first.
    """
    if queue:
        keys: Iterable[BatchKey] = queue_named(state, queue).staged_by
    else:
        keys = {stage.batch for stage in state.stages.values()}
    page = nsmallest(most, (key for key in keys if after is None or key > after))
    return [staged_batch(state, key) for key in page]


def staged_batch(state: State, key: BatchKey) -> BatchInfo:
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
        edges=prepared.edges_of(state, key),
    )


def list_writers(
    state: State, most: int, after: str = "", silent_since_us: int = 1 << 62
) -> list[WriterInfo]:
    """Up to `most` writers after `after`, ordered by name.

    Args:
        state: The state.
        most: The maximum number of writers.
        after: Empty: from the first.
        silent_since_us: Only writers that were not active after this instant.
    """
    found = (
        name
        for name, writer in state.writers.items()
        if name > after and writer.touched_us <= silent_since_us
    )
    return [_info_of(state, state.writers[name]) for name in nsmallest(most, found)]


def writer_info(state: State, name: str) -> WriterInfo:
    """One writer; raises WriterNotFoundError."""
    return _info_of(state, named(state, name))


def missing(state: State, publisher_id: bytes, first: int, last: int) -> list[tuple[int, int]]:
    """P10: the ranges of first..last, both included, that were never accepted.

    Raises:
        PublisherForgottenError: The publisher is unknown.
        WrongModeError: It is in transaction mode.
    """
    return confirm_mode.missing(state, publisher_id, first, last)


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
    """The queues in which stages reserve space, ordered by falling number of rows."""
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


def _info_of(state: State, writer: Writer) -> WriterInfo:
    return WriterInfo(
        writer.writer,
        writer.batch_id,
        writer.rows,
        writer.touched_us,
        len(state.stages_of.get(writer.writer, ())),
        writer.single,
        writer.user,
    )
