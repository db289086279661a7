"""Blocks of the journal: which are referred to, and by which rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.state.state import StagedRows, State


def live_blocks(state: State) -> BitMap64:
    """Every block that a queue or a stage refers to, transient ones included."""
    return state.blocks.live()


def durable_blocks(state: State) -> BitMap64:
    """The blocks that the journal must have: those with something that survives a restart (Q7)."""
    found = BitMap64(block.block_id for block in _staged(state) if block.durable)
    for queue in state.queues.values():
        found |= queue.placements.durable_blocks()
    return found


def block_loads(state: State) -> Iterator[Int64s]:
    """What queues have of their blocks, in parts: `Placements.loads`, and the queue's id.

    The state may change between two parts: what was moved meanwhile may be there twice, or not.
    """
    for queue in tuple(state.queues.values()):
        for load in queue.placements.loads():
            yield np.vstack((load, np.full(load.shape[1], queue.queue_id)))


def live_rows(
    state: State, block_ids: BitMap64, queue_ids: Iterable[int] | None = None
) -> dict[int, BitMap]:
    """The rows of some blocks that anything refers to; rows that are dead never live again.

    Blocks that are staged, that a reader is not through with, or that are dead are left out, and
    blocks that also have runs of a queue outside `queue_ids`, as not all their rows would be found.
    `queue_ids` None: all queues.
    """
    staged = BitMap64(block.block_id for block in _staged(state))
    sought = bitmaps.array(block_ids - staged - state.blocks.pinned())
    found: dict[int, BitMap] = {}
    counted = Counter[int]()
    queues = state.queues if queue_ids is None else queue_ids
    for queue_id in queues if len(sought) else ():
        queue = state.queues.get(queue_id)
        if queue is None:
            continue
        runs = queue.placements.runs_in(sought)
        present = queue.present | queue.kept if len(runs) else BitMap64()
        for run in runs:
            rows = queue.placements.rows_of(run, present)
            found[int(run["block"])] = found.get(int(run["block"]), BitMap()) | rows
        counted.update(runs["block"].tolist())
    return {each: rows for each, rows in found.items() if counted[each] == state.blocks.count(each)}


def _staged(state: State) -> Iterator[StagedRows]:
    """What stages and transactions hold."""
    for stage in state.stages.values():
        yield from stage.blocks
    for publisher in state.publishers.values():
        if publisher.transaction is not None:
            yield from publisher.transaction.blocks
