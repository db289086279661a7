"""Unread messages of a consumer or a pull: frames with their tags.

Invariant: rows are delivered once, in the order of their tags; a column is built when it is first
read. No I/O, no clock, no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from ackq.client.blocks import decoding
from ackq.client.ranges import Range
from ackq.errors import AckqError
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block


class Content:
    """The rows of a frame, as Arrow or as Python values; each column is built once."""

    __slots__ = ("_batch", "_held", "_runs", "_values")

    def __init__(self, runs: pb.DeliveryRuns, data: bytes | memoryview) -> None:
        self._runs = runs
        self._held: block.Block = decoding.decode(runs, data)
        self._values: dict[str, list[Any]] = {}
        self._batch: pa.RecordBatch | None = None

    def value(self, name: str, row: int) -> Any:
        """The value of a column in a row."""
        values = self._values.get(name)
        if values is None:
            column = decoding.assemble(self._runs, self._held, decoding.schema((name,))).column(0)
            values = self._values[name] = column.to_pylist()
        return values[row]

    def batch(self, names: tuple[str, ...], row: int, rows: int) -> pa.RecordBatch:
        """The named columns of consecutive rows, as an Arrow batch."""
        whole = self._batch
        if whole is None or tuple(whole.schema.names) != names:
            whole = self._batch = decoding.assemble(self._runs, self._held, decoding.schema(names))
        return whole if rows == whole.num_rows else whole.slice(row, rows)


class Span(NamedTuple):
    """Consecutive rows of a frame with consecutive tags."""

    row: int
    tags: Range


class RowSlice(NamedTuple):
    """Consecutive rows of a frame that are delivered together, and their tags."""

    content: Content
    row: int
    rows: int
    runs: list[Range]

    def split(self, rows: int) -> tuple[RowSlice, RowSlice]:
        """Splits off the first `rows` rows; returns them and the rest, neither of them empty."""
        head: list[Range] = []
        tail: list[Range] = []
        left = rows
        for first, last in self.runs:
            end = min(last, first + left - 1)
            if end >= first:
                head.append(Range(first, end))
                left -= end - first + 1
            if end < last:
                tail.append(Range(max(first, end + 1), last))
        return (
            RowSlice(self.content, self.row, rows, head),
            RowSlice(self.content, self.row + rows, self.rows - rows, tail),
        )


class Inbox:
    """Unread deliveries of one consumer or pull.

    Attributes:
        no_ack: Whether the broker removes the messages when it sends them (C10, NONE).
        rows: Number of unread rows.
        closed: Whether the application closed the consumer or pull.
        ended: Why the broker stopped sending messages; None before.
        wake: Wake-up callback of the consumer, called when the inbox changed.
    """

    def __init__(self, *, no_ack: bool) -> None:
        self.no_ack = no_ack
        self.rows = 0
        self.closed = False
        self.ended: AckqError | None = None
        self.wake: Callable[[], None] = _no_wake
        self._unread: deque[_Unread] = deque()

    def put(self, content: Content, spans: list[Span]) -> None:
        """Adds a frame; `spans` are its rows that had not arrived before."""
        for row, (first, last) in spans:
            self._unread.append(_Unread(content, row, first, last))
            self.rows += last - first + 1

    def take(self, limit: int) -> RowSlice | None:
        """Takes up to `limit` consecutive rows of the oldest frame; None if the inbox is empty."""
        if not self.rows:
            return None
        content, row = self._unread[0].content, self._unread[0].row
        rows = 0
        runs: list[Range] = []
        while rows < limit and self._unread:
            unread = self._unread[0]
            if unread.content is not content or unread.row != row + rows:
                break
            runs.append(unread.take(limit - rows))
            if unread.first > unread.last:
                self._unread.popleft()
            rows = unread.row - row
        self.rows -= rows
        return RowSlice(content, row, rows, runs)

    def take_one(self) -> tuple[Content, int, int] | None:
        """Takes the oldest message; returns its frame, its row in the frame, its tag."""
        if not self.rows:
            return None
        unread = self._unread[0]
        row, tag = unread.row, unread.first
        if tag == unread.last:
            self._unread.popleft()
        else:
            unread.row, unread.first = row + 1, tag + 1
        self.rows -= 1
        return unread.content, row, tag

    def void(self) -> None:
        """Removes rows of void tags; keeps rows without acks, which the broker no longer has."""
        if not self.no_ack:
            self.drain()

    def drain(self) -> list[Range]:
        """Removes all unread rows; returns their tags."""
        left = [Range(unread.first, unread.last) for unread in self._unread]
        self._unread.clear()
        self.rows = 0
        return left


class _Unread:
    """Consecutive unread rows of a frame with consecutive tags."""

    __slots__ = ("content", "first", "last", "row")

    def __init__(self, content: Content, row: int, first: int, last: int) -> None:
        self.content = content
        self.row = row
        self.first = first
        self.last = last

    def take(self, limit: int) -> Range:
        """Takes up to `limit` rows from the front; returns their tags."""
        first = self.first
        last = min(self.last, first + limit - 1)
        self.row += last - first + 1
        self.first = last + 1
        return Range(first, last)


def _no_wake() -> None:
    """Default wake-up callback: does nothing."""
