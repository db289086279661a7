"""Enqueues rows of a block: decided as parts of a record, placed when it is applied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.deadlines import rounded
from ackq_broker.core.fields import Drop, Expiry, RoutedRows
from ackq_broker.core.queues.bounds import BlockSize, head_drops
from ackq_broker.core.state.block_sizes import sizes_at
from ackq_broker.core.state.placements import Moved, Placement
from ackq_broker.core.state.queue import Gone, Queue
from ackq_broker.core.state.state import StagedRows, State

# Above any instant, and far enough below the maximum of a signed 64-bit integer.
_NEVER_US: Final = 1 << 61


class Visible(NamedTuple):
    """Time, sequence and durability with which a block becomes visible."""

    at_us: int
    sequence: int
    durable: bool


def make_parts(
    rows: dict[int, BitMap],
    size: BlockSize,
    expiries: tuple[Expiry, ...] = (),
    transient: BitMap | None = None,
) -> dict[int, RoutedRows]:
    """One part for each queue that gets rows; positions are not assigned yet."""
    parts = {}
    for queue_id, selected in rows.items():
        count = len(selected)
        if count:
            start = selected.min()
            scattered = selected if selected.max() - start + 1 != count else None
            transient_rows = selected & transient if transient is not None else None
            parts[queue_id] = RoutedRows(
                queue_id,
                0,
                count,
                size.of(selected),
                start,
                scattered,
                _of_rows(expiries, selected),
                transient_rows or None,
            )
    return parts


def drops(state: State, parts: Iterable[tuple[RoutedRows, bytes]]) -> tuple[Drop, ...]:
    """The drops of drop-head queues when these parts are placed.

    Each part comes with the packed sizes of its block, empty when all rows have the same size.
    """
    coming: dict[int, list[Int64s]] = {}
    for part, column in parts:
        if state.queues[part.queue_id].properties.overflow == "drop-head":
            coming.setdefault(part.queue_id, []).append(_sizes(part, column))
    found = (
        head_drops(state.queues[queue_id], np.concatenate(sizes))
        for queue_id, sizes in coming.items()
    )
    return tuple(drop for drop in found if drop is not None)


def drops_of_staged(state: State, blocks: Iterable[StagedRows]) -> tuple[Drop, ...]:
    """The drops of drop-head queues for staged blocks; rows of deleted queues are left out."""
    return drops(
        state,
        (
            (part, state.blocks.sizes.column(block.block_id))
            for block in blocks
            for part in block.parts
            if takes_rows(state, part.queue_id)
        ),
    )


def takes_rows(state: State, queue_id: int) -> bool:
    """Whether the queue of staged rows still exists; rows of a deleted one are handled (P6)."""
    queue = state.queues.get(queue_id)
    return queue is not None and not queue.deleted


def place(state: State, block_id: int, part: RoutedRows, visible: Visible) -> None:
    """Appends a part to its queue, which gives it positions, and adds a reference to its block."""
    queue = state.queues[part.queue_id]
    assert part.first_position in (0, queue.next_position)
    placement = Placement(
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
    queue.place(placement)
    state.blocks.add(block_id)
    if not (part.expiries or part.transient or queue.properties.message_ttl_ms):
        return
    positions = bitmaps.span(placement.first_position, queue.next_position - 1)
    _let_expire(queue, placement, positions, part.expiries)
    if part.transient is not None:
        queue.transient_rows |= _positions_of(placement, positions, part.transient)


def put(state: State, queue: Queue, moved: Moved, at_us: int, sequence: int) -> None:
    """Appends runs of another queue; they expire by the TTL of this queue alone."""
    positions = queue.enqueue(moved, at_us, sequence)
    for block_id in moved.block_ids:
        state.blocks.add(block_id)
    ttl_ms = queue.properties.message_ttl_ms
    if ttl_ms:
        (end_us,) = rounded(np.array([at_us + ttl_ms * 1000]), at_us).tolist()
        queue.expire_at(end_us, positions)


def _sizes(part: RoutedRows, column: bytes) -> Int64s:
    """Payload bytes of each row of a part."""
    if not column:
        return np.full(part.count, part.payload_bytes // part.count)
    rows = (part.start, part.count) if part.rows is None else bitmaps.row_array(part.rows)
    return sizes_at(column, rows)


def _let_expire(
    queue: Queue, placement: Placement, positions: BitMap64, expiries: tuple[Expiry, ...]
) -> None:
    """Sets when rows expire: at the queue's TTL, or at their own if earlier (Q3)."""
    ttl_ms = queue.properties.message_ttl_ms
    if not (ttl_ms or expiries):
        return
    limit_us = placement.published_us + ttl_ms * 1000 if ttl_ms else _NEVER_US
    instants, groups = [limit_us], [positions]
    for expiry in expiries:
        if expiry.expires_us < limit_us:
            groups.append(_positions_of(placement, positions, expiry.rows))
            groups[0] = groups[0] - groups[-1]
            instants.append(expiry.expires_us)
    ends = rounded(np.array(instants), placement.published_us).tolist()
    for instant_us, group in zip(ends, groups, strict=True):
        if group and instant_us < _NEVER_US:
            queue.expire_at(instant_us, group)


def _of_rows(expiries: tuple[Expiry, ...], rows: BitMap) -> tuple[Expiry, ...]:
    """The expiries restricted to these rows."""
    if not expiries:
        return ()
    found = (Expiry(e.expires_us, e.rows if e.rows is None else e.rows & rows) for e in expiries)
    return tuple(expiry for expiry in found if expiry.rows is None or expiry.rows)


def _positions_of(placement: Placement, positions: BitMap64, rows: BitMap | None) -> BitMap64:
    """The positions of some of a run's rows."""
    if rows is None:
        return positions
    indices = bitmaps.row_array(rows).astype(np.int64) - placement.start
    if placement.selected is not None:
        indices = np.searchsorted(bitmaps.row_array(placement.selected), bitmaps.row_array(rows))
    return bitmaps.of(indices + placement.first_position)


def drop_heads(state: State, given_up: Iterable[Drop]) -> None:
    """Drops the oldest ready messages of queues that overflow."""
    for drop in given_up:
        queue = state.queues[drop.queue_id]
        gone = bitmaps.lowest(queue.ready, drop.after + drop.messages)
        gone -= bitmaps.lowest(gone, drop.after)
        queue.dropped += len(gone)
        state.blocks.release(queue.drop(gone, Gone.PURGED))
