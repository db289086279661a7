"""Merges small blocks into one block with the same rows, of a good size for wire and disk.

Invariant: every row reads the same before and after, whether a value was in a column or in the
block's header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackq import limits
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns

_ROUTING_KEY = 1 << pb.COLUMN_ROUTING_KEY
_PUBLISHED_AT = 1 << pb.COLUMN_PUBLISHED_AT
_PERSISTENT = 1 << pb.COLUMN_PERSISTENT
_EMPTY_HEADERS = pa.scalar([], columns.HEADERS)

# A larger block is cheaper to read than to copy once more.
_SMALL_BYTES = 8 * limits.KIB

# Rows of a block; or a whole block, as `block.split` returns it.
Part = tuple[pb.BlockHeader, pa.RecordBatch | memoryview]


def is_persistent(header: pb.BlockHeader) -> bool:
    """Whether a block's header makes its rows persistent; so does an unspecified mode."""
    return header.delivery_mode != pb.DELIVERY_MODE_NON_PERSISTENT


def merge(parts: Sequence[Part], visible: int = columns.STORED_MASK) -> bytes:
    """Encodes the rows of all parts, in order, as one block.

    Args:
        parts: At least one part. Batches may be slices: of their headers only the constants are
            used, not the row counts.
        visible: Bit set of the stored columns to keep. If none of them is stored, the delivery mode
            (one bit a row) is kept instead, because a block has at least one column.
    """
    headers = [header for header, _ in parts]
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
    of_row = pa.array(np.repeat(np.arange(len(parts)), list(map(_rows, parts))))
    batches = list(_batches(parts))
    arrays: list[pa.Array] = []
    schema = columns.stored_schema(kept)
    for name in schema.names:
        constants = {
            "routing_key": lambda: pa.array(routing_keys, pa.string()),
            "published_at": lambda: pa.array(published, pa.int64()).cast(columns.TIMESTAMP),
            "persistent": lambda: pa.array(persistent, pa.bool_()),
        }.get(name)
        if constants is None:
            arrays.append(_with_absent(batches, name))
        else:
            arrays.append(_with_constants(batches, name, constants().take(of_row)))
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


def _rows(part: Part) -> int:
    header, content = part
    return header.rows if isinstance(content, memoryview) else content.num_rows


def _batches(parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of all parts; adjacent small blocks of the same columns as one batch."""
    for mask, group in groupby(parts, _small):
        if mask:
            yield block.read_all(list(group))
            continue
        for header, content in group:
            whole = isinstance(content, memoryview)
            yield block.read(header, content).batch if whole else content


def _small(part: Part) -> int:
    """The columns of a small whole block; 0 for other parts."""
    header, content = part
    small = isinstance(content, memoryview) and len(content) <= _SMALL_BYTES
    return header.columns if small else 0


def _with_constants(batches: Sequence[pa.RecordBatch], name: str, constants: pa.Array) -> pa.Array:
    """Builds a column; absent or null values come from the constants, one per row."""
    if not any(name in batch.schema.names for batch in batches):
        return constants
    arrays = []
    for batch in batches:
        part, constants = constants[: batch.num_rows], constants[batch.num_rows :]
        known = name in batch.schema.names
        arrays.append(pc.coalesce(batch.column(name), part) if known else part)
    return pa.concat_arrays(arrays)


def _with_absent(batches: Sequence[pa.RecordBatch], name: str) -> pa.Array:
    """Builds a column that is null, or without headers, for batches that lack it."""
    kind = columns.STORED[name][1]
    absent = _EMPTY_HEADERS if name == "headers" else pa.scalar(None, kind)
    return pa.concat_arrays(
        [
            batch.column(name) if name in batch.schema.names else pa.repeat(absent, batch.num_rows)
            for batch in batches
        ]
    )
