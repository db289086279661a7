"""Builds the frames of a fetch, a browse or a channel from pieces of the core.

Invariant: a frame's `DeliveryRuns` describe exactly the rows of its block, in order. A block that
is wanted whole leaves as the bytes that are on disk, never decoded (K7); parts and small blocks are
sliced and merged to about `FRAME_TARGET_BYTES` or `FRAME_TARGET_ROWS`. Dead letters have headers
with their origin (C13), rewound messages one with the batch of then (S14); a consumer that asked
for message ids gets one with every message (L23).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackq import limits
from ackq.errors import BlockNotFoundError
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns, frame
from ackq_broker.core.commands import Piece
from ackq_broker.service.blocks.broker_headers import with_broker_headers
from ackq_broker.service.blocks.compacted import Stored, cut, unpack
from ackq_broker.service.blocks.merge import Part, merge
from ackq_broker.service.blocks.message_ids import with_message_ids

DeliveryFrame = frame.Frame[pb.DeliveryRuns]

# The broker replaced ttl_ms by expires_at; a consumer never sees ttl_ms.
_VISIBLE: Final = columns.STORED_MASK & ~(1 << pb.COLUMN_TTL_MS)
# A piece this large is a frame of its own.
_LARGE_BYTES: Final = limits.FRAME_TARGET_BYTES // 2
_LARGE_ROWS: Final = limits.FRAME_TARGET_ROWS // 2
# More than the broker's headers add to a row, without the texts of a dead letter.
_HEADERS_BYTES: Final = 512


class _Loaded(NamedTuple):
    """A loaded piece; `whole` has the bytes of a block that is wanted whole, empty for a part."""

    piece: Piece
    part: Part
    rows: int
    payload_bytes: int
    whole: bytes = b""
    body_bytes: Sequence[int] = ()

    @property
    def large(self) -> bool:
        return self.payload_bytes >= _LARGE_BYTES or self.rows >= _LARGE_ROWS


class FrameBuilder:
    """Turns pieces into frames, one at a time; blocks on reads, so run it in a worker thread.

    Args:
        pieces: The pieces in tag (or position) order.
        read_block: Reads a block's stored bytes by its id.
        wanted: Bit set of `Column` values; 0 means all.
        browse: Mark leased runs (Q5).
        settled_ok: Leave out messages whose block was freed, or compacted without them, because
            they were settled in the meantime; otherwise that is an error.
        max_body_bytes: Truncate bodies to this length and report their full lengths; 0: whole
            bodies.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        read_block: Callable[[int], bytes],
        wanted: int = 0,
        *,
        browse: bool = False,
        settled_ok: bool = False,
        max_body_bytes: int = 0,
    ) -> None:
        self._pieces = list(pieces)
        self._read_block = read_block
        self._browse = browse
        self._settled_ok = settled_ok
        self._max_body_bytes = max_body_bytes
        self._visible = wanted & _VISIBLE if wanted else _VISIBLE
        self._at = 0
        self._last_read: tuple[int, Stored] | None = None
        self._ahead: _Loaded | None = None

    def next_frame(self) -> DeliveryFrame | None:
        """Builds the next frame; None after the last."""
        group: list[_Loaded] = []
        size = rows = 0
        while (loaded := self._ahead or self._load()) is not None:
            self._ahead = None
            if group and loaded.large:
                self._ahead = loaded
                break
            group.append(loaded)
            size += loaded.payload_bytes
            rows += loaded.rows
            if (
                loaded.large
                or size >= limits.FRAME_TARGET_BYTES
                or rows >= limits.FRAME_TARGET_ROWS
            ):
                break
        return self._build(group) if group else None

    def _load(self) -> _Loaded | None:
        while self._at < len(self._pieces):
            found = self._find(self._pieces[self._at])
            self._at += 1
            if found is None:
                continue
            piece, data = found
            header, arrow = block.split(data)
            whole = isinstance(piece.rows, tuple) and piece.rows == (0, header.rows)
            headed = piece.origin is not None or piece.rewound > 0
            whole = whole and not headed and not self._max_body_bytes
            if headed and self._cut_last(piece, len(data) // header.rows):
                continue
            loaded = _Loaded(piece, (header, arrow), header.rows, header.payload_bytes, data)
            if whole and piece.identity is None:
                return loaded
            part = _slice(header, arrow, piece)
            if piece.identity is not None:
                published = part
                part = with_message_ids(published, piece.identity)
                if whole and part is published:
                    return loaded
            if headed:
                part = with_broker_headers(part, piece.origin, piece.rewound)
            lengths: Sequence[int] = ()
            if self._max_body_bytes:
                part, lengths = _cut(part, self._max_body_bytes)
            rows, size = part.batch.num_rows, block.payload_bytes(part.batch)
            return _Loaded(piece, part, rows, size, body_bytes=lengths)
        return None

    def _find(self, piece: Piece) -> tuple[Piece, bytes] | None:
        """The rows of a piece that are left, in the bytes of a block; None if none is."""
        try:
            stored = self._read(piece.block_id)
        except BlockNotFoundError:
            if not self._settled_ok:
                raise
            return None
        found = stored.find(piece, settled_ok=self._settled_ok)
        return None if found is None else (found, stored.data)

    def _cut_last(self, piece: Piece, row_bytes: int) -> bool:
        """Cuts the piece read last if a frame does not hold it with the broker's headers.

        A block that another client published may be as large as a frame without them.
        """
        rows = sum(run.rows for run in piece.runs)
        row_bytes += _header_bytes(piece)
        if rows == 1 or rows * row_bytes <= limits.MAX_FRAME_BYTES:
            return False
        most = max(1, limits.MAX_FRAME_BYTES // 2 // row_bytes)
        self._at -= 1
        self._pieces[self._at : self._at + 1] = cut(self._pieces[self._at], most)
        return True

    def _read(self, block_id: int) -> Stored:
        """Reads a block by its id, once for adjacent pieces of the same block."""
        if self._last_read is None or self._last_read[0] != block_id:
            self._last_read = (block_id, unpack(self._read_block(block_id)))
        return self._last_read[1]

    def _build(self, group: list[_Loaded]) -> DeliveryFrame:
        runs = delivery_runs([loaded.piece for loaded in group], browse=self._browse)
        assert sum(runs.rows) == sum(loaded.rows for loaded in group)
        for loaded in group:
            runs.body_bytes.extend(loaded.body_bytes)
        (header, _), whole = group[0].part, group[0].whole
        if len(group) == 1 and whole and not header.columns & ~self._visible:
            return frame.Frame(runs, whole)
        return frame.Frame(runs, merge([loaded.part for loaded in group], self._visible))


def _header_bytes(piece: Piece) -> int:
    """More than the broker's headers add to a row of a piece."""
    texts: tuple[str, ...] = ()
    if piece.origin is not None:
        dead = piece.origin
        texts = (dead.queue, dead.cause, dead.reason, dead.first_queue, dead.session)
    return _HEADERS_BYTES + sum(len(text.encode()) for text in texts)


def delivery_runs(pieces: Sequence[Piece], *, browse: bool = False) -> pb.DeliveryRuns:
    """Builds the frame header of pieces; adjacent runs are merged."""
    queues: dict[str, int] = {}
    joined: list[list[Any]] = []
    end = None  # of the last run: what the next one has if it is adjacent
    for piece in pieces:
        queue = queues.setdefault(piece.queue, len(queues))
        for first, rows, count, leased in piece.runs:
            if end == (first, queue, count, leased):
                joined[-1][1] += rows
            else:
                joined.append([first, rows, count, queue, int(leased)])
            end = (first + rows, queue, count, leased)
    firsts, lengths, counts, indices, marks = zip(*joined, strict=True)
    return pb.DeliveryRuns(
        first_tag=firsts,
        rows=lengths,
        delivery_count=counts,
        queue_index=indices,
        queues=list(queues),
        leased=marks if browse else (),
    )


def _slice(header: pb.BlockHeader, arrow: memoryview, piece: Piece) -> block.Block:
    """The rows of a block that a piece wants.

    A small part of a large block is copied: a frame may have one row from each of thousands of
    blocks, and must not keep all of them in memory.
    """
    _, batch = block.read(header, arrow)
    if not isinstance(piece.rows, tuple):
        rows = np.ascontiguousarray(piece.rows, dtype=np.uint32)
        return block.Block(header, batch.take(pa.array(rows)))
    first, count = piece.rows
    part = batch.slice(first, count)
    if 2 * block.payload_bytes(part) < header.payload_bytes:
        part = batch.take(pa.array(np.arange(first, first + count)))
    return block.Block(header, part)


def _cut(part: block.Block, most_bytes: int) -> tuple[block.Block, list[int]]:
    """The rows with bodies cut to `most_bytes`, and each body's full length; 0 without a body."""
    header, batch = part
    if not header.columns >> pb.COLUMN_BODY & 1:
        return part, [0] * batch.num_rows
    at = batch.schema.get_field_index("body")
    bodies = batch.column(at)
    lengths = pc.fill_null(pc.binary_length(bodies), 0).to_numpy(zero_copy_only=False)
    cut = pc.binary_slice(bodies, 0, most_bytes)
    return block.Block(header, batch.set_column(at, batch.schema.field(at), cut)), lengths.tolist()
