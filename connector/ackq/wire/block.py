"""Blocks: one protobuf header and one Arrow record batch of messages.

The unit of data on the wire and on disk.

Invariant: a block that passed `decode(..., validate=True)` can be read by any Arrow implementation
without touching memory outside it, and its header has the true rows, columns and payload bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackq.errors import MalformedBlockError
from ackq.v1 import messages_pb2 as pb
from ackq.wire import columns, frame, record_batch

_BINARY_LIKE = ("body", "routing_key", "message_id", "correlation_id", "reply_to", "content_type")


class Block(NamedTuple):
    """A block in memory: its header and its rows (columns of `columns.STORED`, in that order)."""

    header: pb.BlockHeader
    batch: pa.RecordBatch


def payload_bytes(batch: pa.RecordBatch) -> int:
    """Total bytes of bodies, routing keys, ids and headers of all rows, as size limits count."""
    total = 0
    for name in batch.schema.names:
        column = batch.column(name)
        if name in _BINARY_LIKE:
            total += _binary_bytes(column)
        elif name == "headers":
            first, last = _used(column)
            for part in (column.keys, column.items):
                total += _binary_bytes(part.slice(first, last - first))
    return total


def row_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Payload bytes of each row as an int64 array, to find a message over the limit."""
    total: pa.Array = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    for name in batch.schema.names:
        column = batch.column(name)
        if name in _BINARY_LIKE:
            total = pc.add(total, pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0))
        elif name == "headers":
            total = pc.add(total, _map_bytes(column))
    return total


def header_of(
    batch: pa.RecordBatch,
    *,
    routing_key: str = "",
    published_at_us: int = 0,
    delivery_mode: pb.DeliveryMode = pb.DELIVERY_MODE_UNSPECIFIED,
) -> pb.BlockHeader:
    """The header of a block with the rows of `batch`; for the arguments see `encode`."""
    return pb.BlockHeader(
        columns=columns.bits(batch.schema.names),
        rows=batch.num_rows,
        payload_bytes=payload_bytes(batch) + len(routing_key.encode()) * batch.num_rows,
        routing_key=routing_key,
        published_at_us=published_at_us,
        delivery_mode=delivery_mode,
    )


def encode(
    batch: pa.RecordBatch,
    *,
    routing_key: str = "",
    published_at_us: int = 0,
    delivery_mode: pb.DeliveryMode = pb.DELIVERY_MODE_UNSPECIFIED,
) -> bytes:
    """Encodes a batch as the bytes of a block.

    Args:
        batch: At least one row; columns of `columns.STORED` with their types, in their order.
        routing_key: The routing key of every row if the batch has no such column.
        published_at_us: Publish time of every row in microseconds since the epoch, where the column
            is absent or null.
        delivery_mode: Delivery mode of every row, where the column `persistent` is absent or null.
    """
    header = header_of(
        batch,
        routing_key=routing_key,
        published_at_us=published_at_us,
        delivery_mode=delivery_mode,
    )
    return join(header, batch.serialize())


def join(header: pb.BlockHeader, arrow: pa.Buffer | memoryview | bytes) -> bytes:
    """The bytes of a block, from its header and its Arrow bytes."""
    return b"".join(parts_of(header, arrow))


def parts_of(header: pb.BlockHeader, arrow: pa.Buffer | memoryview | bytes) -> list[frame.Bytes]:
    """The parts of a block from header and Arrow bytes, for the caller to join with other parts."""
    return frame.encode_parts(header.SerializeToString(), memoryview(arrow))


def split(data: bytes | memoryview) -> tuple[pb.BlockHeader, memoryview]:
    """The header of a block and a view of its Arrow bytes, without decoding them."""
    header_bytes, arrow = frame.split(data)
    header = pb.BlockHeader()
    try:
        header.ParseFromString(bytes(header_bytes))
    except Exception as error:
        raise MalformedBlockError(f"The block's header is not valid: {error}") from error
    return header, arrow


def decode(data: bytes | memoryview, *, validate: bool = False) -> Block:
    """Decodes a block from bytes, zero-copy: the batch refers to `data`.

    Args:
        data: The bytes of a block, made by `encode`.
        validate: Check all data of an untrusted sender: layout, row count, payload bytes, every
            offset, UTF-8 (`record_batch`).

    Raises:
        MalformedBlockError: The bytes are not a block, or `validate` found it inconsistent.
    """
    return read(*split(data), validate=validate)


def read(header: pb.BlockHeader, arrow: memoryview, *, validate: bool = False) -> Block:
    """Decodes a block from the header and Arrow bytes that `split` returned; see `decode`."""
    schema = columns.stored_schema(header.columns)
    batch = record_batch.read(arrow, schema, header.rows) if validate else _read(arrow, schema)
    if batch.num_rows != header.rows or not header.rows:
        raise MalformedBlockError(
            f"The block announces {header.rows} rows and holds {batch.num_rows}; "
            "it must hold at least one."
        )
    if validate:
        actual = payload_bytes(batch) + len(header.routing_key.encode()) * batch.num_rows
        if header.payload_bytes != actual:
            raise MalformedBlockError(
                f"The block announces {header.payload_bytes} payload bytes and holds {actual}."
            )
    return Block(header, batch)


def read_all(blocks: Sequence[tuple[pb.BlockHeader, memoryview]]) -> pa.RecordBatch:
    """The rows of trusted blocks with the same columns, as `split` returned them; not zero-copy.

    Read as one Arrow stream: a small block takes 2 us, and 5 as a batch to concatenate with others.
    """
    schema = columns.stored_schema(blocks[0][0].columns)
    stream = b"".join((schema.serialize(), *(arrow for _, arrow in blocks)))
    try:
        table = pa.ipc.open_stream(pa.py_buffer(stream)).read_all()
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise MalformedBlockError(f"The blocks' Arrow batches are not valid: {error}") from error
    rows = sum(header.rows for header, _ in blocks)
    if table.num_rows != rows:
        raise MalformedBlockError(f"Blocks announce {rows} rows and hold {table.num_rows}.")
    return table.combine_chunks().to_batches()[0]


def _read(arrow: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Reads a batch of a trusted sender; raises MalformedBlockError if Arrow cannot read it."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(arrow), schema)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise MalformedBlockError(f"The block's Arrow batch is not valid: {error}") from error


def _used(column: pa.Array) -> tuple[int, int]:
    """The first and last child offset that a list-like or binary-like column uses."""
    if not len(column):
        return 0, 0
    offsets = column.offsets
    return offsets[0].as_py(), offsets[-1].as_py()


def _binary_bytes(column: pa.Array) -> int:
    """Bytes of a binary or string column, read from the first and last offset of its buffer."""
    if not len(column):
        return 0
    _, offsets, _ = column.buffers()
    if offsets is None:
        return 0
    # Cut to whole offsets: a buffer from elsewhere may have any length beyond them.
    end = column.offset + len(column) + 1
    view = memoryview(offsets).cast("B")[: 4 * end].cast("i")
    used: int = view[end - 1] - view[column.offset]
    return used


def _map_bytes(column: pa.Array) -> pa.Array:
    """Key and value bytes of each row of a map column."""
    zero = pa.scalar(0, pa.int64())
    each = pc.add(
        pc.fill_null(pc.binary_length(column.keys).cast(pa.int64()), zero),
        pc.fill_null(pc.binary_length(column.items).cast(pa.int64()), zero),
    )
    running = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    offsets = column.offsets
    return pc.subtract(running.take(offsets.slice(1)), running.take(offsets.slice(0, len(column))))
