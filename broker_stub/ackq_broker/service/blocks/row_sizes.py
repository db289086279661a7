"""Sizes of the rows of a block, read from the offsets of its columns (Q3).

Invariant: the sizes add up to the payload bytes that the block's header announces.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ackq.wire import block
from ackq_broker.core.columns.bitmaps import Int64s

_COUNTED: Final = (
    "body",
    "routing_key",
    "message_id",
    "correlation_id",
    "reply_to",
    "content_type",
)
_OFFSET_BYTES: Final = 4


def row_sizes(decoded: block.Block) -> Int64s | None:
    """Payload bytes of each row of a validated block; None if all rows have the same size."""
    header, batch = decoded
    if header.rows == 1:
        return None
    sizes: Int64s = np.full(header.rows, len(header.routing_key.encode()))
    for name in batch.schema.names:
        column = batch.column(name)
        if name in _COUNTED:
            sizes += np.diff(_offsets(column))
        elif name == "headers" and len(column.keys):
            ends = column.offsets.to_numpy()
            for part in (column.keys, column.items):
                sizes += np.diff(_offsets(part)[ends])
    return sizes if (sizes != sizes[0]).any() else None


def _offsets(column: pa.Array) -> npt.NDArray[Any]:
    """The begin of each value of a binary or string column, and the end of the last one."""
    _, offsets, _ = column.buffers()
    if not len(column) or offsets is None:
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(offsets, "<i4", len(column) + 1, _OFFSET_BYTES * column.offset)
