"""Record batches of data frames: the requested columns, in that order, with the wire's types.

Constants in a block's header become columns; absent headers become empty maps, never null (an
all-null map column makes Spark's default Arrow sink quadratic). A publish time out of the range of
`datetime`, which older brokers accepted, becomes the nearest time in that range. Pure Arrow: the
cost depends on runs and columns, not rows. This module does not import pandas (`small_arrays`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackq import limits
from ackq.client.blocks.small_arrays import empty_maps, flag, integers, texts
from ackq.errors import MalformedBlockError, SchemaError
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns

_Known = dict[str, tuple[int, pa.DataType]]
# A constant of a block's header or of all runs; (): no headers.
_Value = str | int | tuple[()] | None

# The largest tag of a broker, and the largest value of the column of counts.
_LARGEST_TAG: Final = 1 << 62
_LARGEST_COUNT: Final = (1 << 31) - 1
# Text of which no column is cached.
_LONG_TEXT: Final = 64
_KNOWN: Final = {**columns.DELIVERED, **columns.BROWSED}
_BODY: Final = pa.field("body", pa.binary())


@cache
def schema(names: tuple[str, ...], *, browse: bool = False) -> pa.Schema:
    """The Arrow schema of the columns `names`, delivered or browsed.

    Raises:
        SchemaError: No column is named, or an unknown one, or one twice.
    """
    known: _Known = columns.BROWSED if browse else columns.DELIVERED
    if not names:
        raise SchemaError(f"At least one column must be read. Columns: {', '.join(known)}.")
    for name in names:
        if name not in known:
            raise SchemaError(
                f"There is no message column '{name}' to read. Columns: {', '.join(known)}.",
                column=name,
            )
        if names.count(name) > 1:
            raise SchemaError(f"Column '{name}' is asked for twice.", column=name)
    return pa.schema([pa.field(name, known[name][1]) for name in names])


def delivered(
    runs: pb.DeliveryRuns, data: bytes | memoryview, names: Sequence[str]
) -> pa.RecordBatch:
    """The rows of a delivery frame; zero-copy for columns that the block holds.

    Args:
        runs: The runs in the frame's header; their rows add up to the block's.
        data: The frame's block.
        names: Names of columns in `columns.DELIVERED`.
    """
    return assemble(runs, decode(runs, data), schema(tuple(names)))


def browsed(
    runs: pb.DeliveryRuns, data: bytes | memoryview, names: Sequence[str]
) -> pa.RecordBatch:
    """The rows of a BrowseResponse; like `delivered`, with columns of `columns.BROWSED`."""
    return assemble(runs, decode(runs, data), schema(tuple(names), browse=True))


def previewed(
    runs: pb.DeliveryRuns, data: bytes | memoryview, names: Sequence[str]
) -> pa.RecordBatch:
    """The rows of a browse with `max_body_bytes`, with `body_bytes` as the last column (Q5)."""
    held = decode(runs, data)
    rows = assemble(runs, held, schema(tuple(names), browse=True))
    # A broker that does not support the request sends whole bodies and no lengths.
    lengths = runs.body_bytes or pc.binary_length(_stored(held, _BODY))
    return rows.append_column("body_bytes", pa.array(lengths, pa.int64()))


def stored(data: bytes | memoryview, names: Sequence[str]) -> pa.RecordBatch:
    """The rows of a block without a frame, with stored columns only."""
    wanted = schema(tuple(names))
    held = block.decode(data, validate=True)
    return pa.RecordBatch.from_arrays([_stored(held, field) for field in wanted], schema=wanted)


def last_tag(runs: pb.DeliveryRuns) -> int:
    """The highest tag or position of a frame, whose runs ascend."""
    return runs.first_tag[-1] + runs.rows[-1] - 1


def decode(runs: pb.DeliveryRuns, data: bytes | memoryview) -> block.Block:
    """The validated block of a frame: any program may answer at the broker's address.

    Raises:
        MalformedBlockError: The block is not valid, or the runs do not describe its rows.
    """
    held = block.decode(data, validate=True)
    _check_runs(runs, held.header.rows)
    return held


def _check_runs(runs: pb.DeliveryRuns, rows: int) -> None:
    announced = sum(runs.rows)
    if announced != rows:
        raise MalformedBlockError(
            f"The frame's runs announce {announced} rows and its block holds {rows}."
        )
    count = len(runs.rows)
    parallel = (runs.first_tag, runs.delivery_count, runs.queue_index, runs.leased or runs.rows)
    if any(len(each) != count for each in parallel) or len(runs.body_bytes) not in (0, rows):
        raise MalformedBlockError("The frame's runs are lists of different lengths.")
    if (
        min(runs.rows) < 1
        or max(runs.first_tag) > _LARGEST_TAG
        or max(*runs.delivery_count, *runs.leased, 0) > _LARGEST_COUNT
        or max(runs.queue_index) >= len(runs.queues)
    ):
        raise MalformedBlockError(
            "The frame's runs have no rows, name no queue, or tags or counts that are too large."
        )


def assemble(runs: pb.DeliveryRuns, held: block.Block, wanted: pa.Schema) -> pa.RecordBatch:
    """The rows of a decoded frame with the columns of the schema `wanted`; see `schema`."""
    return pa.RecordBatch.from_arrays(
        [
            _FROM_RUNS[field.name](runs) if field.name in _FROM_RUNS else _stored(held, field)
            for field in wanted
        ],
        schema=wanted,
    )


# --- stored columns ---


def _stored(held: block.Block, field: pa.Field) -> pa.Array:
    name, rows = field.name, held.batch.num_rows
    column = held.batch.column(name) if name in held.batch.schema.names else None
    if column is not None and pa.types.is_timestamp(column.type):
        column = _showable(column)
    if column is not None and not column.null_count:
        return column
    default = _default(name, held.header)
    if column is None:
        return _repeated(name, default, rows)
    return column if default is None else pc.coalesce(column, _column(name, default, 1)[0])


def _default(name: str, header: pb.BlockHeader) -> _Value:
    """The value that replaces a missing value of a column; None: it stays null."""
    if name == "routing_key":
        return header.routing_key
    if name == "published_at" and header.published_at_us:
        return _nearest_us(header.published_at_us)
    if name == "persistent":
        return header.delivery_mode != pb.DELIVERY_MODE_NON_PERSISTENT
    return () if name == "headers" else None


def _nearest_us(us: int) -> int:
    return min(max(us, limits.MIN_PUBLISHED_AT_US), limits.MAX_PUBLISHED_AT_US)


def _showable(times: pa.Array) -> pa.Array:
    """The times clamped to the range of `datetime`; the same array if none is out of range."""
    us = times.cast(pa.int64())
    ends = pc.min_max(us)
    if all(end is None or end == _nearest_us(end) for end in (e.as_py() for e in ends.values())):
        return times
    us = pc.max_element_wise(us, limits.MIN_PUBLISHED_AT_US, skip_nulls=False)
    us = pc.min_element_wise(us, limits.MAX_PUBLISHED_AT_US, skip_nulls=False)
    return us.cast(columns.TIMESTAMP)


# --- constant columns ---


def _repeated(name: str, value: _Value, rows: int) -> pa.Array:
    """A column with the same value in all rows.

    Frames share its memory, of at most 1 MiB, unless each of them has another value.
    """
    long = isinstance(value, str) and len(value) > _LONG_TEXT
    if long or name == "published_at" or rows > limits.FRAME_TARGET_ROWS:
        return _column(name, value, rows)
    return _long_column(name, value, rows.bit_length()).slice(0, rows)


@lru_cache(maxsize=32)
def _long_column(name: str, value: _Value, bits: int) -> pa.Array:
    """The cached column for frames of fewer than 2 to the power of `bits` rows."""
    return _column(name, value, 1 << bits)


def _column(name: str, value: _Value, rows: int) -> pa.Array:
    _, kind = _KNOWN[name]
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, tuple):
        return empty_maps(rows)
    if isinstance(value, bool):
        return pa.repeat(flag(value=value), rows)
    held = texts([value]) if isinstance(value, str) else integers([value], kind)
    return pa.repeat(held[0], rows)


# --- columns made from runs ---


def _spread(runs: pb.DeliveryRuns, values: pa.Array) -> pa.Array:
    """Repeats the value of each run for each row of the run."""
    ends = pc.cumulative_sum(integers(runs.rows, pa.int32()))
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values))


def _tags(runs: pb.DeliveryRuns) -> pa.Array:
    """The tag of each row: first_tag of its run, plus its index in the run.

    Computed as the row's index in the frame, plus the offset of the run's tags from that index.
    """
    before = 0
    lacks = []
    for first, rows in zip(runs.first_tag, runs.rows, strict=True):
        lacks.append(first - before)
        before += rows
    distances = integers(lacks, pa.int64())
    return pc.add(_index(before), distances[0] if len(lacks) == 1 else _spread(runs, distances))


def _index(rows: int) -> pa.Array:
    """The integers 0 to `rows` - 1."""
    return _long_index(rows.bit_length()).slice(0, rows)


@lru_cache(maxsize=2)
def _long_index(bits: int) -> pa.Array:
    """The cached index for frames of fewer than 2 to the power of `bits` rows."""
    return integers(range(1 << bits), pa.int64())


def _counts(runs: pb.DeliveryRuns) -> pa.Array:
    if len(set(runs.delivery_count)) == 1:
        return _repeated("delivery_count", runs.delivery_count[0], sum(runs.rows))
    return _spread(runs, integers(runs.delivery_count, pa.int32()))


def _redelivered(runs: pb.DeliveryRuns) -> pa.Array:
    """The column `redelivered`: false for the first delivery, true after it (C7)."""
    marks = {count > 1 for count in runs.delivery_count}
    if len(marks) == 1:
        return _repeated("redelivered", marks.pop(), sum(runs.rows))
    return pc.greater(_counts(runs), integers([1], pa.int32())[0])


def _queues(runs: pb.DeliveryRuns) -> pa.Array:
    if len(runs.queues) == 1:
        return _repeated("queue", runs.queues[0], sum(runs.rows))
    return texts(runs.queues).take(_spread(runs, integers(runs.queue_index, pa.int32())))


def _leased(runs: pb.DeliveryRuns) -> pa.Array:
    marks = integers(runs.leased or [0] * len(runs.rows), pa.int32())
    return _spread(runs, pc.not_equal(marks, integers([0], pa.int32())[0]))


_FROM_RUNS: dict[str, Callable[[pb.DeliveryRuns], pa.Array]] = {
    "delivery_tag": _tags,
    "position": _tags,
    "delivery_count": _counts,
    "redelivered": _redelivered,
    "queue": _queues,
    "leased": _leased,
}
