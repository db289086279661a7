"""Bounds of a queue: rows that reject-publish refuses, messages that drop-head drops (Q3).

The bounds of reject-publish count ready, delayed, unacked and staged messages, those of drop-head
the ready ones alone. Messages count one after the other, each with its own bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq.errors import QueueFullError
from ackq_broker.core.checks import plural
from ackq_broker.core.columns import bitmaps, packed_sizes
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.record_fields import Drop
from ackq_broker.core.state.queue import Queue

# More than any queue holds, and still apart from the edge of a signed 64-bit integer.
_UNBOUNDED: Final = 1 << 61


class BlockSize(NamedTuple):
    """A whole block: its rows and their payload bytes; `each` row's, unless all are alike."""

    rows: int
    payload_bytes: int
    each: Int64s | None = None

    def of(self, rows: BitMap) -> int:
        """Payload bytes of some of its rows."""
        if self.each is None or len(rows) == self.rows:
            return self.payload_bytes * len(rows) // self.rows
        return int(self.each[bitmaps.row_array(rows)].sum())

    def each_of(self, rows: BitMap) -> Int64s:
        """Payload bytes of each of some of its rows."""
        if self.each is None:
            return np.full(len(rows), self.payload_bytes // self.rows)
        return self.each[bitmaps.row_array(rows)]

    def column(self) -> bytes:
        """The sizes as a record has them: packed; empty when all rows are alike."""
        return b"" if self.each is None else packed_sizes.pack(self.each)


class Room(NamedTuple):
    """How many messages a queue takes, and how many payload bytes they may have together."""

    messages: int
    payload_bytes: int


def overflowing(queue: Queue, rows: BitMap, size: BlockSize) -> BitMap:
    """The rows that do not fit a reject-publish queue, each counted after those before it.

    A row that goes to several queues and fits one of them counts there even if another refuses it:
    never over a bound, and at worst a row is refused that would have fitted by itself.
    """
    left = room(queue)
    if len(rows) <= left.messages and (
        size.payload_bytes <= left.payload_bytes or size.of(rows) <= left.payload_bytes
    ):
        return BitMap()
    return rows - BitMap(bitmaps.row_array(rows)[_fitting(size.each_of(rows), left)].tolist())


def queue_full(queue: Queue, rows: BitMap, size: BlockSize) -> QueueFullError:
    """The error for rows refused together, with the figures from before them."""
    properties = queue.properties
    bounds = [
        f"{queue.messages + queue.staged} of at most {properties.max_length} messages"
        if properties.max_length
        else "",
        f"{queue.payload_bytes + queue.staged_bytes} of at most {properties.max_bytes} bytes"
        if properties.max_bytes
        else "",
    ]
    came = f"{plural(len(rows), 'message')} with {plural(size.of(rows), 'byte')}"
    fitting = len(rows) - len(overflowing(queue, rows, size))
    staged = (
        f" Of what it holds, {plural(queue.staged, 'message')} with "
        f"{plural(queue.staged_bytes, 'byte')} are staged by writes that have not committed: they "
        "go when such a write commits, aborts or is run again, or "
        f"{limits.STAGE_RETENTION_S // 86_400} days after it ended."
        if queue.staged
        else ""
    )
    return QueueFullError(
        f"The queue '{queue.name}' {f'has room for {fitting} only' if fitting else 'is full'}: it "
        f"holds {' and '.join(b for b in bounds if b)}, staged ones included, and {came} came "
        f"together.{staged} Its overflow is reject-publish: consume from it, purge it, or publish "
        "again later.",
        queue=queue.name,
        fitting=fitting,
    )


def head_drops(queue: Queue, coming: Int64s, ready: BitMap64 | None = None) -> Drop | None:
    """Messages that a drop-head queue drops when others arrive, which may be among them.

    Its bounds are on ready messages: only those can be dropped (S7), and what a slow consumer has
    unacked must not make every new message be dropped at once.

    Args:
        queue: The queue.
        coming: Payload bytes of each message that arrives, in order.
        ready: The messages ready when they arrive, if other than now.
    """
    properties = queue.properties
    if properties.overflow != "drop-head":
        return None
    ready = queue.ready if ready is None else ready
    dropped = 0
    if properties.max_length:
        dropped = len(ready) + len(coming) - properties.max_length
    if properties.max_bytes:
        excess = _ready_bytes(queue, ready) + int(coming.sum()) - properties.max_bytes
        dropped = max(dropped, _messages_of(queue, ready, excess, coming))
    return Drop(queue.queue_id, dropped) if dropped > 0 else None


def room(queue: Queue) -> Room:
    """What a reject-publish queue has room for; another one takes everything."""
    properties = queue.properties
    messages = payload_bytes = _UNBOUNDED
    if properties.overflow == "reject-publish" and properties.max_length:
        messages = properties.max_length - queue.messages - queue.staged
    if properties.overflow == "reject-publish" and properties.max_bytes:
        payload_bytes = properties.max_bytes - queue.payload_bytes - queue.staged_bytes
    return Room(max(messages, 0), max(payload_bytes, 0))


def _fitting(sizes: Int64s, left: Room) -> list[int]:
    """Indices of the messages that fit: one that does not leaves its room to those behind it.

    Columnar up to the first that does not fit; behind it a comparison for each message, while any
    could fit.
    """
    able = np.flatnonzero(sizes <= left.payload_bytes)
    totals = np.cumsum(sizes[able])
    whole = int(np.searchsorted(totals, left.payload_bytes, "right"))
    found: list[int] = able[:whole].tolist()
    rest = able[whole:]
    room_bytes = left.payload_bytes - (int(totals[whole - 1]) if whole else 0)
    smallest = int(sizes[rest].min()) if len(rest) else 0
    for index, size in zip(rest.tolist(), sizes[rest].tolist(), strict=True):
        if room_bytes < smallest or len(found) >= left.messages:
            break
        if size <= room_bytes:
            found.append(index)
            room_bytes -= size
    return found[: left.messages]


def _ready_bytes(queue: Queue, ready: BitMap64) -> int:
    """Payload bytes of the messages that will be ready, most of which are."""
    gone, more = queue.ready - ready, ready - queue.ready
    return queue.ready_bytes + queue.placements.size(more) - queue.placements.size(gone)


def _messages_of(queue: Queue, ready: BitMap64, excess: int, coming: Int64s) -> int:
    """The fewest messages from the head on, the new ones last, that have `excess` bytes."""
    if excess <= 0:
        return 0
    count, size = queue.placements.fit(ready, len(ready), excess - 1)
    if count < len(ready):
        return count + 1
    # Not enough ready bytes: the rest comes from the new ones.
    rest = int(np.searchsorted(np.cumsum(coming), excess - size)) + 1
    return len(ready) + min(rest, len(coming))
