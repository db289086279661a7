"""What a queue's bounds allow: rows reject-publish refuses, messages drop-head gives up (Q3).

Bounds count ready, unacked and staged messages. Bytes of a part of a block are pro rata: the core
knows a block's bytes, not a row's.
"""

from __future__ import annotations

from typing import NamedTuple

from pyroaring import BitMap

from ackq.errors import QueueFullError
from ackq_broker.core import bitmaps
from ackq_broker.core.queues import Queue
from ackq_broker.core.records import Drop, Part


class BlockSize(NamedTuple):
    """A whole block: its rows and their payload bytes."""

    rows: int
    payload_bytes: int

    def of(self, rows: int) -> int:
        """Payload bytes of some of its rows."""
        return self.payload_bytes * rows // self.rows


def overflowing(queue: Queue, rows: BitMap, size: BlockSize) -> BitMap:
    """The rows, last ones first, that do not fit a reject-publish queue; empty when all do.

    A row that goes to several queues and fits one of them counts there even if another refuses it:
    never over a bound, and at worst a row is refused that a row-by-row count would have let in.
    """
    properties = queue.properties
    if properties.overflow != "reject-publish":
        return BitMap()
    room = len(rows)
    if properties.max_length:
        room = min(room, properties.max_length - queue.messages - queue.staged)
    if properties.max_bytes and size.payload_bytes:
        left = properties.max_bytes - queue.payload_bytes - queue.staged_bytes
        room = min(room, left * size.rows // size.payload_bytes)
    if room >= len(rows):
        return BitMap()
    return rows & bitmaps.row_range(rows[max(room, 0)], rows.max())


def queue_full(queue: Queue) -> QueueFullError:
    """Why a row was refused, with the figures."""
    properties = queue.properties
    bounds = [
        f"{queue.messages + queue.staged} of {properties.max_length} messages"
        if properties.max_length
        else "",
        f"{queue.payload_bytes + queue.staged_bytes} of {properties.max_bytes} bytes"
        if properties.max_bytes
        else "",
    ]
    return QueueFullError(
        f"The queue '{queue.name}' is full: it holds {' and '.join(b for b in bounds if b)}, "
        "staged ones included, and its overflow is reject-publish. Consume from it, purge it, or "
        "publish again later.",
        queue=queue.name,
    )


def head_drops(queue: Queue, parts: list[Part]) -> Drop | None:
    """What a drop-head queue gives up when these parts are placed; they may be among it.

    S7: only ready messages go, so a queue of leased ones may stay above its bounds.
    """
    properties = queue.properties
    if properties.overflow != "drop-head":
        return None
    messages = sum(part.count for part in parts)
    added = sum(part.payload_bytes for part in parts)
    dropped = 0
    if properties.max_length:
        dropped = queue.messages + messages - properties.max_length
    if properties.max_bytes:
        excess = queue.payload_bytes + added - properties.max_bytes
        dropped = max(dropped, _messages_of(queue, excess, messages, added))
    dropped = min(dropped, len(queue.ready) + messages)
    return Drop(queue.queue_id, dropped) if dropped > 0 else None


def _messages_of(queue: Queue, excess: int, messages: int, added: int) -> int:
    """How many messages from the head on, the new ones last, have at least `excess` bytes."""
    if excess <= 0:
        return 0
    ready = len(queue.ready)
    count, size = queue.placements.fit(queue.ready, ready, excess)
    if count < ready:
        return count + (size < excess)
    # Not enough ready bytes: the rest comes from the new ones, pro rata and rounded up.
    return ready + (-(-(excess - size) * messages // added) if added else 0)
