"""Merges small blocks into one block with the same rows, of a good size for wire and disk.

Invariant: every row reads the same before and after, whether a value was in a column or in the
block's header.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns

_ROUTING_KEY = 1 << pb.COLUMN_ROUTING_KEY
_PUBLISHED_AT = 1 << pb.COLUMN_PUBLISHED_AT
_PERSISTENT = 1 << pb.COLUMN_PERSISTENT
_EMPTY_HEADERS = pa.scalar([], columns.HEADERS)


def is_persistent(header: pb.BlockHeader) -> bool:
    """Whether a block's header makes its rows persistent; so does an unspecified mode."""
    return header.delivery_mode != pb.DELIVERY_MODE_NON_PERSISTENT


def merge(parts: Sequence[block.Block], visible: int = columns.STORED_MASK) -> bytes:
    """Encodes the rows of all parts, in order, as one block.

    Args:
        parts: At least one part. Batches may be slices: of the headers only the constants are used,
            not the row counts.
        visible: Bit set of the stored columns to keep. If none of them is stored, the delivery mode
            (one bit a row) is kept instead, because a block has at least one column.
    """
    headers = [part.header for part in parts]
    routing_keys = [header.routing_key for header in headers]
    published = [header.published_at_us for header in headers]
    persistent = [is_persistent(header) for header in headers]
    stored = 0
    for header in headers:
        stored |= header.columns
    # A constant that differs between the parts becomes a column.
    stored |= 0 if _same(routing_keys) else _ROUTING_KEY
    stored |= 0 if _same(published) else _PUBLISHED_AT
    stored |= 0 if _same(persistent) else _PERSISTENT
    kept = stored & visible or _PERSISTENT
    rows = np.array([part.batch.num_rows for part in parts])
    arrays: list[pa.Array] = []
    schema = columns.stored_schema(kept)
    for name in schema.names:
        bit = 1 << columns.STORED[name][0]
        constants = {
            _ROUTING_KEY: lambda: pa.array(routing_keys, pa.string()),
            _PUBLISHED_AT: lambda: pa.array(published, pa.int64()).cast(columns.TIMESTAMP),
            _PERSISTENT: lambda: pa.array(persistent, pa.bool_()),
        }.get(bit)
        if constants is None:
            arrays.append(_with_absent(parts, bit, name))
        else:
            arrays.append(_with_constants(parts, bit, name, constants(), rows))
    return block.encode(
        pa.RecordBatch.from_arrays(arrays, schema=schema),
        routing_key="" if stored & _ROUTING_KEY else routing_keys[0],
        published_at_us=0 if kept & _PUBLISHED_AT or not _same(published) else published[0],
        delivery_mode=(
            pb.DELIVERY_MODE_UNSPECIFIED if kept & _PERSISTENT else headers[0].delivery_mode
        ),
    )


def _same(constants: Sequence[object]) -> bool:
    """Whether all parts have the same value."""
    return constants.count(constants[0]) == len(constants)


def _with_constants(
    parts: Sequence[block.Block], bit: int, name: str, constants: pa.Array, rows: np.ndarray
) -> pa.Array:
    """Builds a column; absent or null values come from the headers' constants, one per part."""
    if not any(part.header.columns & bit for part in parts):
        return constants.take(pa.array(np.repeat(np.arange(len(parts)), rows)))
    return pa.concat_arrays(
        [
            part.batch.column(name).fill_null(constants[at])
            if part.header.columns & bit
            else pa.repeat(constants[at], part.batch.num_rows)
            for at, part in enumerate(parts)
        ]
    )


def _with_absent(parts: Sequence[block.Block], bit: int, name: str) -> pa.Array:
    """Builds a column that is null, or without headers, for parts that lack it."""
    kind = columns.STORED[name][1]
    absent = _EMPTY_HEADERS if name == "headers" else pa.scalar(None, kind)
    return pa.concat_arrays(
        [
            part.batch.column(name)
            if part.header.columns & bit
            else pa.repeat(absent, part.batch.num_rows)
            for part in parts
        ]
    )
