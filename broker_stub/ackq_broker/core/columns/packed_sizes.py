"""Sizes of the rows of a block as a packed column: the smallest, and what each row has above it.

    +---------+-----------------+------------------------+
    | width u8| smallest i64 LE | width bytes a row, LE  |
    +---------+-----------------+------------------------+

The width is the least that does: 1 byte a row where the sizes differ by up to 255.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ackq_broker.core.columns.bitmaps import Int64s

_HEADER: Final = struct.Struct("<Bq")


def pack(sizes: Int64s) -> bytes:
    """The column of some sizes, one at least; equal sizes give equal bytes (I2)."""
    smallest = int(sizes.min())
    above = sizes - smallest
    width = np.min_scalar_type(int(above.max())).itemsize
    return _HEADER.pack(width, smallest) + above.astype(f"<u{width}").tobytes()


def sizes_at(column: bytes, rows: tuple[int, int] | NDArray[Any]) -> Int64s:
    """The sizes of some rows: of a first row and a count, or of row indices."""
    width, smallest = _HEADER.unpack_from(column)
    above = np.frombuffer(column, f"<u{width}", offset=_HEADER.size)
    part = slice(rows[0], rows[0] + rows[1]) if isinstance(rows, tuple) else rows
    found: Int64s = above[part].astype(np.int64) + smallest
    return found
