"""Builds small Arrow arrays directly from buffers, without importing pandas.

`pa.array`, `pa.scalar` and a Python number as the argument of a kernel import pandas on first use:
0.2 s of CPU in each of Spark's Python processes, which do not need pandas to read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

_CODES = {32: "i", 64: "q"}


def integers(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    """An array of type `kind`, whose values are signed integers of 32 or 64 bits."""
    held = pa.py_buffer(array(_CODES[kind.bit_width], values))
    return pa.Array.from_buffers(kind, len(values), [None, held])


def texts(values: Sequence[str]) -> pa.Array:
    """An array of strings."""
    encoded = [value.encode() for value in values]
    offsets = array("i", accumulate(map(len, encoded), initial=0))
    held = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), held)


def flag(*, value: bool) -> pa.Scalar:
    """A boolean scalar."""
    return pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(bytes([value]))])[0]


def empty_maps(rows: int) -> pa.Array:
    """An array of empty maps of strings to strings, none of them null."""
    none = texts([])
    offsets = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(bytes(4 * rows + 4))])
    return pa.MapArray.from_arrays(offsets, none, none)
