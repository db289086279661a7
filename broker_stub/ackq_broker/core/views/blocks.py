"""Blocks of the journal: the referenced blocks, and the rows that refer to them."""

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
    """The blocks that the journal must keep: the ones with data that survives a restart (Q7)."""
    found = BitMap64(block.block_id for block in _staged(state) if block.durable)
    for queue in state.queues.values():
        found |= queue.placements.durable_blocks()
    return found


def block_loads(state: State) -> Iterator[Int64s]:
    """Block, rows, live rows, payload and queue id of the queues' runs, in parts.

    The columns are those of `Placements.loads`, and the queue's id. The state may change between
    two parts: runs that moved meanwhile may appear twice, or not at all.
    """
    for queue in tuple(state.queues.values()):
        for load in queue.placements.loads():
            yield np.vstack((load, np.full(load.shape[1], queue.queue_id)))


def live_rows(
    state: State, block_ids: BitMap64, queue_ids: Iterable[int] | None = None
) -> dict[int, BitMap]:
    """The referenced rows of the given blocks; rows that are dead never become live again.

    Left out are blocks that are staged, that a reader still needs, or that are dead, and blocks
    that also have runs of a queue outside `queue_ids`, as not all their rows would be found.
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
    """Yields the blocks of stages and transactions."""
    for stage in state.stages.values():
        yield from stage.blocks
    for publisher in state.publishers.values():
        if publisher.transaction is not None:
            yield from publisher.transaction.blocks
