"""Bounds of a queue: rows that reject-publish refuses, messages that drop-head drops (Q3).

The bounds of reject-publish count ready, delayed, unacked and staged messages, those of drop-head
the ready ones alone. Bytes of a part of a block are pro rata: the core
knows a block's bytes, not a row's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq.errors import QueueFullError
from ackq_broker.core.checks import plural
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.record_fields import Drop
from ackq_broker.core.state.queue import Queue


class BlockSize(NamedTuple):
    """A whole block: its rows and their payload bytes."""

    rows: int
    payload_bytes: int

    def of(self, rows: int) -> int:
        """Payload bytes of some of its rows."""
        return self.payload_bytes * rows // self.rows


class Load(NamedTuple):
    """Messages and their payload bytes together."""

    messages: int
    payload_bytes: int

    def plus(self, messages: int, payload_bytes: int) -> Load:
        """The sum of both loads."""
        return Load(self.messages + messages, self.payload_bytes + payload_bytes)


NO_LOAD: Final = Load(0, 0)


def overflowing(queue: Queue, rows: BitMap, size: BlockSize) -> BitMap:
    """The rows, last ones first, that do not fit a reject-publish queue; empty when all do.

    A row that goes to several queues and fits one of them counts there even if another refuses it:
    never over a bound, and at worst a row is refused that a row-by-row count would have let in.
    """
    fitting = room(queue, Load(len(rows), size.of(len(rows))))
    return BitMap() if fitting >= len(rows) else rows & bitmaps.row_range(rows[fitting], rows.max())


def queue_full(queue: Queue, rows: BitMap, size: BlockSize) -> QueueFullError:
    """The error for rows refused together, with the figures from before them."""
    coming = Load(len(rows), size.of(len(rows)))
    properties = queue.properties
    bounds = [
        f"{queue.messages + queue.staged} of at most {properties.max_length} messages"
        if properties.max_length
        else "",
        f"{queue.payload_bytes + queue.staged_bytes} of at most {properties.max_bytes} bytes"
        if properties.max_bytes
        else "",
    ]
    came = f"{plural(coming.messages, 'message')} with {plural(coming.payload_bytes, 'byte')}"
    fitting = room(queue, coming)
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


def head_drops(queue: Queue, coming: Load, ready: BitMap64 | None = None) -> Drop | None:
    """Messages that a drop-head queue drops when others arrive, which may be among them.

    Its bounds are on ready messages: only those can be dropped (S7), and what a slow consumer has
    unacked must not make every new message be dropped at once.

    Args:
        queue: The queue.
        coming: The messages that arrive.
        ready: The messages ready when they arrive, if other than now.
    """
    properties = queue.properties
    if properties.overflow != "drop-head":
        return None
    ready_bytes = queue.ready_bytes
    if ready is None:
        ready = queue.ready
    else:
        gone, more = queue.ready - ready, ready - queue.ready
        ready_bytes += queue.placements.size(more) - queue.placements.size(gone)
    dropped = 0
    if properties.max_length:
        dropped = len(ready) + coming.messages - properties.max_length
    if properties.max_bytes:
        excess = ready_bytes + coming.payload_bytes - properties.max_bytes
        dropped = max(dropped, _messages_of(queue, ready, excess, coming))
    return Drop(queue.queue_id, dropped) if dropped > 0 else None


def room(queue: Queue, size: Load) -> int:
    """The number of messages of a load that fit a reject-publish queue."""
    properties = queue.properties
    if properties.overflow != "reject-publish":
        return size.messages
    found = size.messages
    if properties.max_length:
        found = min(found, properties.max_length - queue.messages - queue.staged)
    if properties.max_bytes and size.payload_bytes:
        left = properties.max_bytes - queue.payload_bytes - queue.staged_bytes
        found = min(found, left * size.messages // size.payload_bytes)
    return max(found, 0)


def _messages_of(queue: Queue, ready: BitMap64, excess: int, coming: Load) -> int:
    """How many messages from the head on, the new ones last, have at least `excess` bytes."""
    if excess <= 0:
        return 0
    count, size = queue.placements.fit(ready, len(ready), excess)
    if count < len(ready):
        return count + (size < excess)
    # Not enough ready bytes: the rest comes from the new ones, pro rata and rounded up.
    added = coming.payload_bytes
    return len(ready) + (-(-(excess - size) * coming.messages // added) if added else 0)
