"""Sizes of the messages in live blocks (Q3): a packed column for each block in which they differ.

Without a column every message of a run in the block counts an equal share of its bytes: the exact
size where all are equal, and an average in blocks that were written before columns existed.

A column has the smallest size, and for each row how much larger its size is:

    +---------+-----------------+------------------------+
    | width u8| smallest i64 LE | width bytes a row, LE  |
    +---------+-----------------+------------------------+

The width is the smallest that suffices: 1 byte a row where the sizes differ by up to 255.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.pieces import Listed

_HEADER: Final = struct.Struct("<Bq")


class BlockSizes:
    """Packed columns of sizes by block id; a block's column is removed with its last reference."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Iterable[tuple[int, bytes]] = ()) -> None:
        self._columns = dict(columns)

    def __len__(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def add(self, block_id: int, column: bytes) -> None:
        """Adds the column of a new block; an empty column is not stored."""
        if column:
            self._columns[block_id] = column

    def forget(self, block_ids: BitMap64) -> None:
        """Removes the columns of blocks that are no longer referenced."""
        if self._columns:
            for block_id in block_ids.to_array():
                self._columns.pop(block_id, None)

    def column(self, block_id: int) -> bytes:
        """The column of a block; empty when it has none."""
        return self._columns.get(block_id, b"")

    def at(self, block_id: int, rows: tuple[int, int] | NDArray[Any]) -> Int64s:
        """Sizes of the given rows of a block that has a column."""
        return sizes_at(self._columns[block_id], rows)

    def dump(self) -> Listed:
        """The columns by block id; ids are assigned in ascending order."""
        columns = self._columns.copy()
        return Listed(len(columns), columns.items())


def pack(sizes: Int64s) -> bytes:
    """Packs sizes, at least one, into a column; equal sizes give equal bytes (I2)."""
    smallest = int(sizes.min())
    above = sizes - smallest
    width = np.min_scalar_type(int(above.max())).itemsize
    return _HEADER.pack(width, smallest) + above.astype(f"<u{width}").tobytes()


def sizes_at(column: bytes, rows: tuple[int, int] | NDArray[Any]) -> Int64s:
    """Reads sizes from a column: of a first row and a count, or of row indices."""
    width, smallest = _HEADER.unpack_from(column)
    above = np.frombuffer(column, f"<u{width}", offset=_HEADER.size)
    part = slice(rows[0], rows[0] + rows[1]) if isinstance(rows, tuple) else rows
    found: Int64s = above[part].astype(np.int64) + smallest
    return found
