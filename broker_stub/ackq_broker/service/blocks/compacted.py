"""Stored blocks: whole, or compacted to the rows that are still referred to.

A block is first stored whole, as received. A compacted block is

    +------------------+-----------------+----------------+-----------------------+
    | magic, 7 bytes   | length, u32 LE  | rows, roaring  | a block of those rows |
    +------------------+-----------------+----------------+-----------------------+

where `rows` are the numbers that its rows have in the whole block. Invariant: a row keeps its
number, so the core's pieces mean the same before and after. The magic is not valid protobuf: a
version that does not know this form refuses the block instead of reading other rows.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from ackq.errors import BlockNotFoundError
from ackq.wire import block
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Piece, Run

_MAGIC: Final = b"\x07ackqCB"
_LENGTH: Final = struct.Struct("<I")
_HEAD_BYTES: Final = len(_MAGIC) + _LENGTH.size

_Found = npt.NDArray[np.bool_]


class Stored(NamedTuple):
    """A stored block: `data` is a block of the remaining rows, `rows` are their numbers.

    `rows` is None for a whole block.
    """

    data: bytes
    rows: npt.NDArray[np.uint32] | None

    def find(self, piece: Piece, *, settled_ok: bool) -> Piece | None:
        """Translates a piece of the whole block to one of `data`; None if no row of it is left.

        Args:
            piece: The piece given to a reader; some of its rows may have been removed since.
            settled_ok: Leave out removed rows; otherwise they are an error.

        Raises:
            BlockNotFoundError: Rows were removed.
        """
        if self.rows is None:
            return piece
        wanted = _numbers(piece)
        at = np.searchsorted(self.rows, wanted)
        found = at < len(self.rows)
        found[found] = self.rows[at[found]] == wanted[found]
        if not found.all():
            if not settled_ok:
                raise BlockNotFoundError(
                    f"rows of block {piece.block_id} were removed", block=piece.block_id
                )
            if not found.any():
                return None
            piece, at = _only(piece, found), at[found]
        return piece._replace(rows=_selection(at))


def unpack(data: bytes) -> Stored:
    """Unpacks a stored block, whole or compacted, from its bytes."""
    if not data.startswith(_MAGIC):
        return Stored(data, None)
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    end = _HEAD_BYTES + length
    rows = BitMap.deserialize(data[_HEAD_BYTES:end])
    return Stored(data[end:], bitmaps.row_array(rows))


def compact(data: bytes, rows: BitMap) -> bytes:
    """Compacts a stored block to the given rows, which are numbers of the whole block."""
    stored = unpack(data)
    at = bitmaps.row_array(rows)
    if stored.rows is not None:
        at = np.searchsorted(stored.rows, at).astype(np.uint32)
    header, batch = block.decode(stored.data)
    left = block.encode(
        batch.take(pa.array(at)),
        routing_key=header.routing_key,
        published_at_us=header.published_at_us,
        delivery_mode=header.delivery_mode,
    )
    numbers = bitmaps.encode_hook(rows)
    return b"".join((_MAGIC, _LENGTH.pack(len(numbers)), numbers, left))


def cut(piece: Piece, most: int) -> list[Piece]:
    """Cuts a piece of a whole block into pieces of at most `most` rows."""
    numbers = _numbers(piece)
    pieces = []
    for first in range(0, len(numbers), most):
        chosen = np.zeros(len(numbers), np.bool_)
        chosen[first : first + most] = True
        pieces.append(_only(piece, chosen)._replace(rows=_selection(numbers[chosen])))
    return pieces


def _numbers(piece: Piece) -> npt.NDArray[Any]:
    """The row numbers of a piece in its block."""
    if not isinstance(piece.rows, tuple):
        return piece.rows
    first, count = piece.rows
    return np.arange(first, first + count)


def _selection(at: npt.NDArray[Any]) -> tuple[int, int] | npt.NDArray[np.uint32]:
    """Ascending row numbers in the form that a piece has: a range, or an array."""
    first, last = int(at[0]), int(at[-1])
    return (first, len(at)) if last - first + 1 == len(at) else at.astype(np.uint32)


def _only(piece: Piece, found: _Found) -> Piece:
    """Reduces a piece to the rows that were found."""
    runs: list[Run] = []
    begin = 0
    for run in piece.runs:
        there = np.flatnonzero(found[begin : begin + run.rows])
        starts = np.flatnonzero(np.diff(there, prepend=-2) != 1)
        counts = np.diff(starts, append=len(there))
        for start, count in zip(there[starts].tolist(), counts.tolist(), strict=True):
            runs.append(run._replace(first_tag=run.first_tag + start, rows=count))
        begin += run.rows
    origin = piece.origin and piece.origin._replace(
        positions=piece.origin.positions[found],
        delivery_counts=piece.origin.delivery_counts[found],
    )
    identity = piece.identity and piece.identity._replace(positions=piece.identity.positions[found])
    return piece._replace(runs=tuple(runs), origin=origin, identity=identity)
