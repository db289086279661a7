"""Encodes published messages into blocks that pass the broker's validation.

Arrow batches are checked, converted and sliced; single messages are collected into columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackq import limits
from ackq.client.blocks.small_arrays import empty_maps
from ackq.errors import InvalidArgumentError, MessageTooLargeError, SchemaError
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns, one_row

_BODIES = columns.stored_schema(columns.bits(("body",)))

# Other Arrow types that hold the values of a column without loss; columns not named are text.
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_LAYOUTS = {
    "body": (
        *_TEXT,
        pa.types.is_null,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    ),
    "headers": (pa.types.is_map,),
    "ttl_ms": (pa.types.is_integer,),
    "persistent": (),
}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT: Final = _EPOCH + timedelta(microseconds=limits.MIN_PUBLISHED_AT_US)
_LAST_INSTANT: Final = _EPOCH + timedelta(microseconds=limits.MAX_PUBLISHED_AT_US)

# The fields of a message that are plain text, in the order of `Row`.
TEXTS = ("message_id", "correlation_id", "reply_to", "content_type")


class Row(NamedTuple):
    """One message with the arguments of `Publisher.publish`.

    The fields after `routing_key` are None when absent.
    """

    body: bytes
    routing_key: str
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    content_type: str | None
    headers: list[tuple[str, str | None]] | None
    published_at: datetime | None
    persistent: bool | None
    ttl_ms: int | None = None


# The fields after body and routing key, all absent.
_NOTHING: Final = (None,) * (len(Row._fields) - 2)
# A row, or the body of a message that has no other field.
Message = Row | bytes


def delivery_mode(*, persistent: bool) -> pb.DeliveryMode:
    """The delivery mode of a block, for rows without a mode of their own (P12)."""
    return pb.DELIVERY_MODE_PERSISTENT if persistent else pb.DELIVERY_MODE_NON_PERSISTENT


# --- single messages ---


def text_bytes(name: str, value: str) -> int:
    """The number of bytes of a string in UTF-8.

    Raises InvalidArgumentError if the value is not a string or cannot be encoded.
    """
    if not isinstance(value, str):
        raise InvalidArgumentError(
            f"'{name}' is a {type(value).__name__}; it must be a str.", argument=name
        )
    if value.isascii():
        return len(value)
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"'{name}' cannot be written as UTF-8: {error.reason}.", argument=name
        ) from error


def check_routing_key(routing_key: str) -> int:
    """The size of a routing key in bytes; raises InvalidArgumentError over the limit."""
    size = text_bytes("routing_key", routing_key)
    if size > limits.MAX_ROUTING_KEY_BYTES:
        raise InvalidArgumentError(
            f"The routing key has {size} bytes; the limit is {limits.MAX_ROUTING_KEY_BYTES}.",
            routing_key=routing_key[:64],
        )
    return size


def check_exchange(exchange: str) -> None:
    """Raises InvalidArgumentError for an invalid exchange name."""
    size = text_bytes("exchange", exchange)
    if size > limits.MAX_NAME_BYTES:
        raise InvalidArgumentError(
            f"The exchange's name has {size} bytes; the limit is {limits.MAX_NAME_BYTES}.",
            exchange=exchange[:64],
        )


def check_queue(queue: str) -> None:
    """Raises InvalidArgumentError for an invalid queue name."""
    size = text_bytes("queue", queue)
    if not 0 < size <= limits.MAX_NAME_BYTES:
        raise InvalidArgumentError(
            f"A queue's name has 1 to {limits.MAX_NAME_BYTES} bytes, not {size}.",
            argument="queue",
        )


def check_flag(name: str, value: object) -> None:
    """Raises InvalidArgumentError unless a value is a bool or None."""
    if value is not None and not isinstance(value, bool):
        raise InvalidArgumentError(
            f"'{name}' is a {type(value).__name__}; it must be True or False.", argument=name
        )


def check_published_at(published_at: datetime) -> None:
    """Raises InvalidArgumentError unless a value is a datetime with a time zone, in range."""
    if not isinstance(published_at, datetime):
        raise InvalidArgumentError(
            f"'published_at' is a {type(published_at).__name__}; it must be a datetime.",
            argument="published_at",
        )
    if published_at.utcoffset() is None:
        raise InvalidArgumentError(
            "'published_at' has no time zone; without one it names no instant.",
            argument="published_at",
        )
    if not _FIRST_INSTANT <= published_at <= _LAST_INSTANT:
        raise InvalidArgumentError(
            f"'published_at' is {published_at.isoformat()}; it must be between 0001-01-03 and"
            " 9999-12-30, which can be shown in every time zone.",
            argument="published_at",
        )


def check_ttl(ttl_ms: int) -> None:
    """Raises InvalidArgumentError for an invalid time to live (Q3)."""
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int):
        raise InvalidArgumentError(
            f"'ttl_ms' is a {type(ttl_ms).__name__}; it must be an int.", argument="ttl_ms"
        )
    if not 1 <= ttl_ms <= limits.MAX_TTL_MS:
        raise InvalidArgumentError(
            f"'ttl_ms' is {ttl_ms}; it must be 1 to {limits.MAX_TTL_MS} (a hundred years). Leave it"
            " out for a message that does not expire.",
            argument="ttl_ms",
        )


def body_bytes(body: bytes | str) -> bytes:
    """A body as bytes; raises InvalidArgumentError for another type or invalid text."""
    if isinstance(body, bytes):
        return body
    if not isinstance(body, str):
        raise InvalidArgumentError(
            f"'body' is a {type(body).__name__}; it must be bytes or str.", argument="body"
        )
    try:
        return body.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"'body' cannot be written as UTF-8: {error.reason}. Give it as bytes.",
            argument="body",
        ) from error


def header_pairs(headers: Mapping[str, str | None]) -> tuple[list[tuple[str, str | None]], int]:
    """Headers as pairs for Arrow, and their size in bytes; raises for invalid headers.

    A value may be null, as in a message that Spark wrote.
    """
    if not isinstance(headers, Mapping):
        raise InvalidArgumentError(
            f"'headers' is a {type(headers).__name__}; it must be a mapping of str to str or None.",
            argument="headers",
        )
    pairs = list(headers.items())
    size = sum(
        text_bytes("headers", key) + (0 if value is None else text_bytes("headers", value))
        for key, value in pairs
    )
    if size > limits.MAX_HEADER_BYTES:
        raise MessageTooLargeError(
            f"The headers have {size} bytes; the limit is {limits.MAX_HEADER_BYTES}.", size=size
        )
    return pairs, size


def check_message_size(size: int, limit: int = limits.MAX_MESSAGE_BYTES) -> None:
    """Raises MessageTooLargeError, which names size and limit, for a message over the limit."""
    if size > limit:
        raise MessageTooLargeError(
            f"The message has {size} bytes; the limit is {limit}. "
            "Store the payload elsewhere and publish a reference.",
            size=size,
            limit=limit,
        )


def encode_messages(messages: Sequence[Message], *, routing_key: str, persistent: bool) -> bytes:
    """A block of single messages; `routing_key` applies to messages given as bodies."""
    if len(messages) == 1:
        (only,) = messages
        row = only if isinstance(only, Row) else Row(only, routing_key, *_NOTHING)
        return _encode_row(row, persistent=persistent) or encode_rows([row], persistent=persistent)
    if set(map(type, messages)) == {bytes}:
        bodies = pa.RecordBatch.from_arrays([pa.array(messages, pa.binary())], schema=_BODIES)
        return encode_batch(bodies, routing_key=routing_key, persistent=persistent)
    rows = [
        each if isinstance(each, Row) else Row(each, routing_key, *_NOTHING) for each in messages
    ]
    return encode_rows(rows, persistent=persistent)


def _encode_row(row: Row, *, persistent: bool) -> bytes | None:
    """The block that `encode_rows` makes of one row, at less cost; None if Arrow has to make it."""
    if row.headers and None in dict(row.headers).values():
        return None
    fields = zip(Row._fields, row, strict=True)
    values: dict[str, Any] = {name: value for name, value in fields if value is not None}
    del values["routing_key"]
    if row.published_at is not None:
        values["published_at"] = (row.published_at - _EPOCH) // timedelta(microseconds=1)
    mask = columns.bits(tuple(values))
    made = one_row.encode(mask, tuple(values.values()))
    if made is None:
        return None
    arrow, payload_bytes = made
    header = pb.BlockHeader(
        columns=mask,
        rows=1,
        payload_bytes=payload_bytes + len(row.routing_key.encode()),
        routing_key=row.routing_key,
        delivery_mode=delivery_mode(persistent=persistent),
    )
    return block.join(header, arrow)


def encode_rows(rows: Sequence[Row], *, persistent: bool) -> bytes:
    """A block of single messages; columns that no message uses are left out.

    Args:
        rows: The messages, at least one.
        persistent: Delivery mode of rows without one of their own.
    """
    values: dict[str, Sequence[Any]] = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
    keys = values["routing_key"]
    constant_key = ""
    if keys.count(keys[0]) == len(keys):
        constant_key = keys[0]
        del values["routing_key"]
    arrays: dict[str, pa.Array] = {}
    for name, (_, kind) in columns.STORED.items():
        column = values.get(name)
        if column is None or column.count(None) == len(column):
            continue
        if name == "headers":
            column = [pairs or () for pairs in column]
        arrays[name] = pa.array(column, kind)
    return block.encode(
        _batch(arrays), routing_key=constant_key, delivery_mode=delivery_mode(persistent=persistent)
    )


# --- Arrow batches ---


def encode_batches(
    batches: Sequence[pa.RecordBatch], *, routing_key: str, persistent: bool
) -> bytes:
    """A block of the rows of several publishable batches of one schema, in order."""
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return encode_batch(joined, routing_key=routing_key, persistent=persistent)


def encode_batch(batch: pa.RecordBatch, *, routing_key: str, persistent: bool) -> bytes:
    """A block of a publishable batch; `routing_key` applies to a batch without that column."""
    keyed = "routing_key" in batch.schema.names
    return block.encode(
        batch,
        routing_key="" if keyed else routing_key,
        delivery_mode=delivery_mode(persistent=persistent),
    )


def publishable(batch: pa.RecordBatch, *, routing_key: str = "") -> pa.RecordBatch:
    """The batch with the column order and exactly the types of the wire.

    A body of strings becomes binary, other string layouts become plain strings, null headers become
    empty maps, a null routing key becomes `routing_key`; columns without any value are dropped.

    Raises:
        SchemaError: A column is unknown, missing (`body`) or of a type that cannot be converted
            without loss.
        InvalidArgumentError: A routing key is over the limit, or a text is not UTF-8.
    """
    _check_names(batch.schema.names)
    arrays: dict[str, pa.Array] = {}
    for name in columns.PUBLISHABLE:
        if name not in batch.schema.names:
            continue
        column = batch.column(name)
        if name != "body" and column.null_count == len(column):
            continue
        column = _conform(name, column, columns.STORED[name][1])
        check_text(name, column)
        if name == "headers" and column.null_count:
            column = pc.coalesce(column, empty_maps(1)[0])
        elif name == "routing_key":
            column = _checked_keys(column, routing_key)
        arrays[name] = column
    return _batch(arrays)


def cut(
    batch: pa.RecordBatch,
    *,
    target_bytes: int = limits.FRAME_TARGET_BYTES,
    target_rows: int = limits.FRAME_TARGET_ROWS,
    max_message_bytes: int = limits.MAX_MESSAGE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into slices for one frame each.

    A slice has about `target_bytes` of payload and 1 to `target_rows` rows.

    Raises:
        MessageTooLargeError: A row is over `max_message_bytes`; no slice is yielded then.
    """
    rows = batch.num_rows
    total = block.payload_bytes(batch)
    if rows and total <= min(target_bytes, max_message_bytes) and rows <= target_rows:
        # All rows together are within the limit of one message.
        yield batch
        return
    sizes = block.row_bytes(batch)
    _check_row_sizes(sizes, max_message_bytes)
    ends = pc.cumulative_sum(sizes)
    begin = done = 0
    while begin < rows:
        end = bisect_right(ends, done + target_bytes, lo=begin, key=pa.Int64Scalar.as_py)
        end = min(max(end, begin + 1), begin + target_rows)
        yield batch.slice(begin, end - begin)
        begin, done = end, ends[end - 1].as_py()


def _check_names(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in columns.PUBLISHABLE]
    if unknown:
        raise SchemaError(
            f"Column '{unknown[0]}' is not one a publisher can send. "
            f"Columns: {', '.join(columns.PUBLISHABLE)}.",
            column=unknown[0],
        )
    if "body" not in names:
        raise SchemaError(
            f"The column 'body' is missing; found {', '.join(names) or 'no columns'}.",
            column="body",
        )
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise SchemaError(f"Column '{twice[0]}' is given twice.", column=twice[0])


def _conform(name: str, column: pa.Array, expected: pa.DataType) -> pa.Array:
    found = column.type
    if found == expected:
        return column
    if _converts(name, found):
        try:
            return column.cast(expected)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"Column '{name}' is {found} and cannot become {expected}: {error}.",
                column=name,
                expected=expected,
                found=found,
            ) from error
    raise SchemaError(
        f"Column '{name}' is {found}; it must be {expected}. Cast it before publishing.",
        column=name,
        expected=expected,
        found=found,
    )


def check_text(name: str, column: pa.Array) -> None:
    """Raises InvalidArgumentError for text that is not UTF-8; names the column and the first row.

    Spark makes such text by casting bytes to strings. The broker would refuse its whole frame.

    Args:
        name: The column's name, as the caller knows it.
        column: Text, headers, or a column of another type, which passes.
    """
    if name == "headers":
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        texts = [column.keys[first:last], column.items[first:last]]
    else:
        texts = [column] if pa.types.is_string(column.type) else []
    try:
        for text in texts:
            text.validate(full=True)
    except pa.ArrowInvalid:
        row = next(row for row in range(len(column)) if not _is_text(column.slice(row, 1)))
        raise InvalidArgumentError(
            f"Column '{name}' has text that is not UTF-8 in row {row}, as a cast of bytes to a"
            " string makes it. Encode it before publishing, for instance as base64.",
            column=name,
            row=row,
        ) from None


def _is_text(cell: pa.Array) -> bool:
    try:
        cell.to_pylist()
    except UnicodeDecodeError:
        return False
    return True


def _converts(name: str, found: pa.DataType) -> bool:
    """Whether a type holds the same values as the wire's in another layout."""
    if pa.types.is_dictionary(found):
        return found.value_type == columns.STORED[name][1] or _converts(name, found.value_type)
    if name == "published_at":
        # A timestamp without a time zone does not identify an instant.
        return bool(pa.types.is_timestamp(found)) and found.tz is not None
    return any(is_layout(found) for is_layout in _LAYOUTS.get(name, _TEXT))


def _checked_keys(column: pa.Array, default: str) -> pa.Array:
    if column.null_count:
        column = pc.fill_null(column, default)
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > limits.MAX_ROUTING_KEY_BYTES:
        raise InvalidArgumentError(
            f"A routing key has {longest} bytes; the limit is {limits.MAX_ROUTING_KEY_BYTES}.",
            column="routing_key",
        )
    return column


def _check_row_sizes(sizes: pa.Array, limit: int) -> None:
    largest = pc.max(sizes).as_py() or 0
    if largest > limit:
        row = pc.index(sizes, largest).as_py()
        raise MessageTooLargeError(
            f"The message in row {row} has {largest} bytes; the limit is {limit}. "
            "Store the payload elsewhere and publish a reference.",
            row=row,
            size=largest,
            limit=limit,
        )


def _batch(arrays: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        list(arrays.values()),
        schema=columns.stored_schema(columns.bits(list(arrays))),
    )
