"""How rows become messages of a queue: parts of a record, made to decide, placed to apply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyroaring import BitMap

from ackq_broker.core import bitmaps
from ackq_broker.core.admission import BlockSize, head_drops
from ackq_broker.core.placements import Placement
from ackq_broker.core.records import Drop, Part
from ackq_broker.core.state import State


class Visible(NamedTuple):
    """When and how a block becomes visible."""

    at_us: int
    sequence: int
    durable: bool


def make_parts(rows: dict[int, BitMap], size: BlockSize) -> dict[int, Part]:
    """A part for each queue that gets rows, without positions."""
    parts = {}
    for queue_id, selected in rows.items():
        count = len(selected)
        if count:
            start = selected.min()
            scattered = selected if selected.max() - start + 1 != count else None
            parts[queue_id] = Part(queue_id, 0, count, size.of(count), start, scattered)
    return parts


def drops(state: State, parts: Iterable[Part]) -> tuple[Drop, ...]:
    """What the drop-head queues give up when these parts are placed."""
    by_queue: dict[int, list[Part]] = {}
    for part in parts:
        by_queue.setdefault(part.queue_id, []).append(part)
    found = (
        head_drops(state.queues[queue_id], parts_of) for queue_id, parts_of in by_queue.items()
    )
    return tuple(drop for drop in found if drop is not None)


def place(state: State, block_id: int, part: Part, visible: Visible) -> None:
    """Gives a part its positions; the block gets a reference."""
    queue = state.queues[part.queue_id]
    assert part.first_position in (0, queue.next_position)
    queue.place(
        Placement(
            queue.next_position,
            part.count,
            block_id,
            part.payload_bytes,
            visible.at_us,
            visible.sequence,
            visible.durable,
            part.start,
            part.rows,
        )
    )
    state.blocks.add(block_id)


def drop_heads(state: State, given_up: Iterable[Drop]) -> None:
    """Takes the oldest ready messages of queues that overflow."""
    for drop in given_up:
        queue = state.queues[drop.queue_id]
        state.blocks.release(queue.drop(bitmaps.lowest(queue.ready, drop.messages)))
