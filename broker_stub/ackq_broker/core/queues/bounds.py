"""Bounds of a queue: rows that reject-publish refuses, messages that drop-head drops (Q3).

The bounds of reject-publish count ready, delayed, unacked and staged messages; drop-head counts
ready messages alone. Messages count one after the other, each with its own bytes. Messages that
reach a consumer at once do not count: the first of the ready and the new ones, as many as consumers
have room for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq.errors import QueueFullError
from ackq_broker.core.checks import plural
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.fields import Drop
from ackq_broker.core.state.block_sizes import pack
from ackq_broker.core.state.queue import Queue

# More than any queue holds, and far enough below the maximum of a signed 64-bit integer.
_UNBOUNDED: Final = 1 << 61


class BlockSize(NamedTuple):
    """Size of a whole block: rows and payload bytes; `each`: bytes by row, None if all equal."""

    rows: int
    payload_bytes: int
    each: Int64s | None = None

    def of(self, rows: BitMap) -> int:
        """Payload bytes of some of its rows."""
        if self.each is None or len(rows) == self.rows:
            return self.payload_bytes * len(rows) // self.rows
        if len(rows) == 1:
            return int(self.each[rows.min()])
        return int(self.each[bitmaps.row_array(rows)].sum())

    def each_of(self, rows: BitMap) -> Int64s:
        """Payload bytes of each of some of its rows."""
        if self.each is None:
            return np.full(len(rows), self.payload_bytes // self.rows)
        return self.each[bitmaps.row_array(rows)]

    def column(self) -> bytes:
        """The row sizes as a record has them: packed; empty when all rows have the same size."""
        return b"" if self.each is None else pack(self.each)


class Room(NamedTuple):
    """Free room of a queue: messages, and payload bytes of all of them together."""

    messages: int
    payload_bytes: int


NO_ROOM: Final = Room(0, 0)


class _Given(NamedTuple):
    """Numbers of ready and of new messages that reach consumers at once."""

    ready: int
    coming: int


def overflowing(
    queue: Queue, rows: BitMap, size: BlockSize, demand: int = 0, freed: Room = NO_ROOM
) -> BitMap:
    """The rows that do not fit a reject-publish queue, counted one after the other.

    A row that goes to several queues counts in each queue that it fits, even if another refuses it:
    no bound is exceeded, and at worst a row is refused that would have fitted by itself.

    Args:
        queue: The queue.
        rows: The rows to enqueue.
        size: Size of their block.
        demand: Number of messages that consumers without acks take at once.
        freed: Room of staged rows that never become visible together with these.
    """
    if not bounded(queue):
        return BitMap()
    left = room(queue, freed=freed)
    if len(rows) <= left.messages and (
        size.payload_bytes <= left.payload_bytes or size.of(rows) <= left.payload_bytes
    ):
        return BitMap()
    given = _given(queue.ready, demand, len(rows))
    left = room(queue, bitmaps.lowest(queue.ready, given.ready), freed)
    fitting = _fitting(size.each_of(rows)[given.coming :], left) + given.coming
    gone = np.ones(len(rows), np.bool_)
    gone[: given.coming] = gone[fitting] = False
    return BitMap(bitmaps.row_array(rows)[gone].tolist())


def bounded(queue: Queue) -> bool:
    """Whether a queue may refuse messages."""
    properties = queue.properties
    return properties.overflow == "reject-publish" and bool(
        properties.max_length or properties.max_bytes
    )


def queue_full(
    queue: Queue,
    rows: BitMap,
    size: BlockSize,
    refused: BitMap | None = None,
    *,
    leading: int | None = None,
    freed: Room = NO_ROOM,
) -> QueueFullError:
    """The error for rows that a queue refuses in part or whole; its figures exclude these rows.

    `leading` is the number of first rows of the frame that may be sent again by themselves; None:
    as many as fit.
    """
    properties = queue.properties
    bounds = [
        f"{queue.messages + queue.staged} of at most {plural(properties.max_length, 'message')}"
        if properties.max_length
        else "",
        f"{queue.payload_bytes + queue.staged_bytes} of at most"
        f" {plural(properties.max_bytes, 'byte')}"
        if properties.max_bytes
        else "",
    ]
    came = f"{plural(len(rows), 'message')} with {plural(size.of(rows), 'byte')}"
    if refused is None:
        refused = overflowing(queue, rows, size, freed=freed)
    fitting = len(rows) - len(refused)
    return QueueFullError(
        f"The queue '{queue.name}' {f'has room for {fitting} only' if fitting else 'is full'}: it "
        f"holds {' and '.join(b for b in bounds if b)}, staged ones included, and {came} came "
        f"together.{_staged(queue)} Its overflow is reject-publish: consume from it, purge it, or "
        "publish again later.",
        queue=queue.name,
        fitting=fitting if leading is None else leading,
    )


def _staged(queue: Queue) -> str:
    """Text on the room of a queue that staged rows hold, and how an operator frees it (K3)."""
    if not queue.staged:
        return ""
    held = f"{plural(queue.staged, 'message')} with {plural(queue.staged_bytes, 'byte')}"
    if not queue.staged_by:
        return f" It keeps room for {held} in open transactions."
    writer, batch_id = next(iter(queue.staged_by))
    return (
        f" Of the messages it holds, {held} are staged by writes that have not committed, first "
        f"by batch {batch_id} of writer '{writer}': they leave the queue when such a write "
        f"commits, aborts or is run again, or {limits.STAGE_RETENTION_S // 86_400} days after it "
        "ended (1 day if it has no txnAppId). If the write is dead: `ackq batch list --queue "
        f"{queue.name}`, then `ackq batch drop`."
    )


def head_drops(queue: Queue, coming: Int64s, ready: BitMap64 | None = None) -> Drop | None:
    """Messages that a drop-head queue drops when others arrive, which may be among them.

    Its bounds are on ready messages: only ready messages can be dropped (S7), and unacked messages
    of a slow consumer must not cause every new message to be dropped at once.

    Args:
        queue: The queue.
        coming: Payload bytes of each message that arrives, in order.
        ready: The messages ready when they arrive, if other than now.
    """
    properties = queue.properties
    if properties.overflow != "drop-head":
        return None
    ready = queue.ready if ready is None else ready
    if not _excess(queue, ready, coming):
        return None
    given = _given(ready, queue.demand().messages, len(coming))
    stay = bitmaps.ranked(ready, given.ready, len(ready))
    dropped = _excess(queue, stay, coming[given.coming :])
    return Drop(queue.queue_id, dropped, sum(given)) if dropped else None


def room(queue: Queue, given: BitMap64 | None = None, freed: Room = NO_ROOM) -> Room:
    """Free room of a reject-publish queue; any other queue takes everything.

    Its messages in `given`, which reach consumers at once, do not count, nor does what is `freed`.
    """
    properties = queue.properties
    messages = payload_bytes = _UNBOUNDED
    if properties.overflow == "reject-publish" and properties.max_length:
        messages = properties.max_length - queue.messages - queue.staged
        messages += len(given or ()) + freed.messages
    if properties.overflow == "reject-publish" and properties.max_bytes:
        payload_bytes = properties.max_bytes - queue.payload_bytes - queue.staged_bytes
        payload_bytes += (queue.placements.size(given) if given else 0) + freed.payload_bytes
    return Room(max(messages, 0), max(payload_bytes, 0))


def _given(ready: BitMap64, room: int, coming: int) -> _Given:
    """Numbers of ready and of new messages that consumers take at once."""
    first = min(room, len(ready))
    return _Given(first, min(room - first, coming))


def _excess(queue: Queue, ready: BitMap64, coming: Int64s) -> int:
    """Number of messages over the queue's bounds, the ready ones and then the new ones counted."""
    properties = queue.properties
    found = 0
    if properties.max_length:
        found = max(len(ready) + len(coming) - properties.max_length, 0)
    if properties.max_bytes:
        payload_bytes = _ready_bytes(queue, ready) + int(coming.sum()) - properties.max_bytes
        found = max(found, _messages_of(queue, ready, payload_bytes, coming))
    return found


def _fitting(sizes: Int64s, left: Room) -> Int64s:
    """Indices of the messages that fit; one that does not fit leaves its room to later ones.

    Columnar up to the first message that does not fit; after it one comparison for each message,
    while any could fit.
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
    return np.array(found[: left.messages], np.int64)


def _ready_bytes(queue: Queue, ready: BitMap64) -> int:
    """Payload bytes of the messages that will be ready, most of which are ready already."""
    gone, more = queue.ready - ready, ready - queue.ready
    return queue.ready_bytes + queue.placements.size(more) - queue.placements.size(gone)


def _messages_of(queue: Queue, ready: BitMap64, excess: int, coming: Int64s) -> int:
    """The fewest messages that have `excess` bytes: from the head on, the new ones last."""
    if excess <= 0:
        return 0
    count, size = queue.placements.fit(ready, len(ready), excess - 1)
    if count < len(ready):
        return count + 1
    # Not enough ready bytes: the rest comes from the new ones.
    rest = int(np.searchsorted(np.cumsum(coming), excess - size)) + 1
    return len(ready) + min(rest, len(coming))
