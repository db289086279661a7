"""Validates frames: refuses rows over the limits of messages (P8, I6).

Invariant: a frame that could take much more memory than its bytes is not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackq import limits
from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    LimitError,
    MalformedBlockError,
    MessageTooLargeError,
    SchemaError,
)
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq.wire.frame import Bytes

# Two offsets and three bits.
_ENTRY_BYTES: Final = 9
# Padding after a buffer, including the one offset more than there are rows.
_PADDING_BYTES: Final = 72
# The headers of block and Arrow message.
_METADATA_BYTES: Final = 4 * limits.KIB

Rows = np.ndarray[Any, np.dtype[np.int64]]


class Refusal(NamedTuple):
    """Rows of a frame, as ascending row indices, that are refused for one reason."""

    rows: Rows
    reason: AckqError


def too_many_rows(rows: int) -> LimitError | None:
    """The refusal of a frame with too many rows, before it is decoded; None if accepted."""
    if rows <= limits.MAX_FRAME_ROWS:
        return None
    return LimitError(
        f"The frame holds {rows} rows; the broker takes {limits.MAX_FRAME_ROWS}. Send smaller"
        " frames.",
        limit=limits.MAX_FRAME_ROWS,
    )


def decode(data: Bytes, announced: int) -> block.Block:
    """Decodes and validates a client's block; one that would expand in memory is not decoded.

    A null boolean takes a bit, and 33 KB of zstd can hold a body of 1 GiB (`wire.record_batch`).

    Args:
        data: The block.
        announced: The number of rows that its frame announces.

    Raises:
        LimitError: The block has more rows than a frame may hold.
        MalformedBlockError: It is not a valid block, has another number of rows than announced, or
            has bytes that no message uses.
    """
    header, arrow = block.split(data)
    refusal = too_many_rows(header.rows)
    if refusal is not None:
        raise refusal
    if header.rows != announced or not header.rows:
        raise MalformedBlockError(
            f"The frame announces {announced} rows and its block {header.rows}; it must hold at"
            " least one."
        )
    decoded = block.read(header, arrow, validate=True)
    most = _most_bytes(decoded)
    if len(data) > most:
        raise MalformedBlockError(
            f"The block has {len(data)} bytes, but its {announced} messages use {most} at most; "
            "send no other bytes."
        )
    return decoded


def _most_bytes(decoded: block.Block) -> int:
    """Maximum size of a block of these messages in the layout of any Arrow writer.

    Limits and quotas count payload bytes: other stored bytes must be in proportion to them.
    """
    header, batch = decoded
    row_bytes, most_padding = _overhead(header.columns)
    entries = len(batch.column("headers").keys) if header.columns >> pb.COLUMN_HEADERS & 1 else 0
    return header.payload_bytes + header.rows * row_bytes + entries * _ENTRY_BYTES + most_padding


@cache
def _overhead(mask: int) -> tuple[int, int]:
    """Non-payload bytes of a block with these columns: for each row, and once per block."""
    row_bytes, padding = 0, _METADATA_BYTES
    for field in columns.stored_schema(mask):
        fixed = pa.types.is_primitive(field.type)
        # A validity bit, and a value or an offset.
        row_bytes += 1 + (field.type.bit_width + 7) // 8 if fixed else 5
        padding += _PADDING_BYTES * (9 if pa.types.is_map(field.type) else 3)
    return row_bytes, padding


def refusals_of(decoded: block.Block) -> tuple[Refusal, ...]:
    """The refusals of rows over a limit or with an invalid value; each row at most once."""
    whole_frame = _frame_refusal(decoded)
    if whole_frame is not None:
        return (Refusal(np.arange(decoded.header.rows), whole_frame),)
    found: list[Refusal] = []
    before: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    for mask, reason in (
        *_too_large(decoded),
        *_long_routing_keys(decoded),
        *_odd_ttls(decoded),
        *_odd_publish_times(decoded),
    ):
        refused = mask.to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(refused if before is None else refused & ~before)
        before = refused if before is None else refused | before
        if len(rows):
            found.append(Refusal(rows, reason))
    return tuple(found)


def _frame_refusal(decoded: block.Block) -> AckqError | None:
    """The reason to refuse the frame as a whole; None if there is none."""
    header, batch = decoded
    if header.columns >> pb.COLUMN_EXPIRES_AT & 1:
        return SchemaError(
            "The column 'expires_at' is set by the broker alone; leave it out.", column="expires_at"
        )
    if not limits.MIN_PUBLISHED_AT_US <= header.published_at_us <= limits.MAX_PUBLISHED_AT_US:
        return _odd_publish_time(header.published_at_us)
    if header.columns >> pb.COLUMN_ROUTING_KEY & 1 and (
        header.rows > limits.MAX_DISTINCT_ROUTES_PER_FRAME
    ):
        distinct = pc.count_distinct(batch.column("routing_key")).as_py()
        if distinct > limits.MAX_DISTINCT_ROUTES_PER_FRAME:
            return LimitError(
                f"The frame holds {distinct} distinct routing keys; the broker takes"
                f" {limits.MAX_DISTINCT_ROUTES_PER_FRAME}. Send smaller frames.",
                limit=limits.MAX_DISTINCT_ROUTES_PER_FRAME,
            )
    return None


def _too_large(decoded: block.Block) -> Iterator[tuple[pa.Array, AckqError]]:
    """Rows over the size limit of a message or of its headers."""
    header, batch = decoded
    if header.payload_bytes > limits.MAX_MESSAGE_BYTES:
        sizes = pc.add(block.row_bytes(batch), len(header.routing_key.encode()))
        yield _over(sizes, limits.MAX_MESSAGE_BYTES, "message", "bytes; split its body")
    if header.columns >> pb.COLUMN_HEADERS & 1:
        headers = batch.select(["headers"])
        if block.payload_bytes(headers) > limits.MAX_HEADER_BYTES:
            yield _over(
                block.row_bytes(headers),
                limits.MAX_HEADER_BYTES,
                "message's headers",
                "bytes; put large values in the body",
            )


def _long_routing_keys(decoded: block.Block) -> Iterator[tuple[pa.Array, AckqError]]:
    """Rows whose routing key is over the size limit."""
    header, batch = decoded
    if header.columns >> pb.COLUMN_ROUTING_KEY & 1:
        sizes = pc.fill_null(pc.binary_length(batch.column("routing_key")), 0)
    elif len(header.routing_key.encode()) > limits.MAX_ROUTING_KEY_BYTES:
        sizes = pa.repeat(pa.scalar(len(header.routing_key.encode())), header.rows)
    else:
        return
    if pc.max(sizes).as_py() > limits.MAX_ROUTING_KEY_BYTES:
        yield _over(sizes, limits.MAX_ROUTING_KEY_BYTES, "routing key", "bytes; use a shorter one")


def _odd_ttls(decoded: block.Block) -> Iterator[tuple[pa.Array, AckqError]]:
    """Rows with an invalid time to live."""
    if decoded.header.columns >> pb.COLUMN_TTL_MS & 1:
        ttls = pc.fill_null(decoded.batch.column("ttl_ms"), 0)
        odd = pc.or_(pc.less(ttls, 0), pc.greater(ttls, limits.MAX_TTL_MS))
        if pc.any(odd).as_py():
            value = ttls.filter(odd)[0].as_py()
            yield (
                odd,
                InvalidArgumentError(
                    f"A time to live of {value} ms is not between 0 (none) and"
                    f" {limits.MAX_TTL_MS} ms; change 'ttl_ms'.",
                    column="ttl_ms",
                    limit=limits.MAX_TTL_MS,
                ),
            )


def _odd_publish_times(decoded: block.Block) -> Iterator[tuple[pa.Array, AckqError]]:
    """Rows with a publish time that readers cannot represent."""
    if decoded.header.columns >> pb.COLUMN_PUBLISHED_AT & 1:
        times = decoded.batch.column("published_at").cast(pa.int64())
        ends = pc.min_max(times)
        for end in (ends["min"].as_py(), ends["max"].as_py()):
            if end is None or limits.MIN_PUBLISHED_AT_US <= end <= limits.MAX_PUBLISHED_AT_US:
                continue
            odd = pc.less(times, limits.MIN_PUBLISHED_AT_US)
            if end > limits.MAX_PUBLISHED_AT_US:
                odd = pc.greater(times, limits.MAX_PUBLISHED_AT_US)
            yield pc.fill_null(odd, False), _odd_publish_time(end)


def _odd_publish_time(us: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"A publish time of {us} us since 1970 is not between 0001-01-03 and 9999-12-30; change"
        " 'published_at', or leave it out for the broker's clock.",
        column="published_at",
    )


def _over(sizes: pa.Array, limit: int, what: str, remedy: str) -> tuple[pa.Array, AckqError]:
    """The rows whose size is over a limit, and the refusal that names the largest."""
    largest = pc.max(sizes).as_py()
    return (
        pc.greater(sizes, limit),
        MessageTooLargeError(
            f"A {what} of {largest} bytes is over the limit of {limit} {remedy}.",
            size=largest,
            limit=limit,
        ),
    )
