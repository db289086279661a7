"""Prepares a publisher's or writer's frame for the core and the journal.

Invariant: every row of a frame is in exactly one part or one refusal; a part's block can be stored
as it is, and its routes cover each of its rows exactly once. A part has a bounded number of routes,
because the core decides it in one step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from ackq import limits
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns, frame, one_row
from ackq.wire.frame import Bytes
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.deadlines import rounded
from ackq_broker.core.commands import Expiry, Routes
from ackq_broker.journal import Bulk
from ackq_broker.service.blocks import validation
from ackq_broker.service.blocks.merge import is_persistent
from ackq_broker.service.blocks.row_sizes import row_sizes
from ackq_broker.service.blocks.validation import Refusal, Rows, refusals_of

_MODES: Final = {
    pb.DELIVERY_MODE_UNSPECIFIED: None,
    pb.DELIVERY_MODE_PERSISTENT: True,
    pb.DELIVERY_MODE_NON_PERSISTENT: False,
}


# Maximum distinct routing keys of a part, by the kind of the exchange: the decision of a part holds
# the event loop. Where each key may have a queue of its own, it takes some 15 us a key; many topics
# have few queues. A fanout exchange does not use the keys.
PART_KEYS: Final = {"direct": 500, "topic": limits.FRAME_TARGET_ROWS, "fanout": 0}

# A block with so many bytes, and so many in its header, is within the limits of a message.
_SMALL_BYTES: Final = 64 * limits.KIB
_HEADER_BYTES: Final = limits.KIB
_EXPIRING: Final = columns.bits(("expires_at", "ttl_ms"))


class PreparedPart(NamedTuple):
    """The rows of a frame that are published by one command.

    `rows` are row indices of the frame, None for all; `block` is a list of buffers to be joined.
    `persistent` is true if any row is persistent; `transient` are the other rows, if only some are.
    `sizes` are the payload bytes of each row, None if all rows have the same size. `row`, if it
    is the only one and can share a block (`of_rows`), is the block's header and the row's values.
    """

    rows: Rows | None
    block: Bulk
    routes: Routes
    row_count: int
    payload_bytes: int
    persistent: bool
    expiries: tuple[Expiry, ...] = ()
    transient: BitMap | None = None
    sizes: Int64s | None = None
    row: tuple[pb.BlockHeader, list[Any]] | None = None


class Prepared(NamedTuple):
    """A validated frame: the rows to publish, usually in one part, and the refused rows."""

    parts: tuple[PreparedPart, ...]
    refusals: tuple[Refusal, ...]


def prepare(
    data: Bytes,
    announced: int,
    now_us: int,
    *,
    by_mode: bool = True,
    part_keys: int = PART_KEYS["direct"],
) -> Prepared:
    """Validate a block, stamp its times, and find its routes, refusals and delivery modes.

    An ordinary frame (no refused row, no time to live) is stored with the Arrow bytes it came
    with. Other frames are encoded again.

    Args:
        data: A block as a client sent it.
        announced: The number of rows that its frame announces.
        now_us: `published_at_us` of rows for which the client set none, and the start of a time to
            live (Q3).
        by_mode: Whether the rows' delivery modes are used.
        part_keys: Maximum distinct routing keys of a part; 0: no key is used.

    Raises:
        LimitError: The block announces more rows than a frame may hold.
        MalformedBlockError: The bytes are not a valid block of the announced number of rows.
    """
    if announced == 1 and len(data) <= _SMALL_BYTES:
        part = _one_row(data, now_us, by_mode=by_mode, keyed=part_keys > 0)
        if part is not None:
            return Prepared((part,), ())
    decoded = validation.decode(data, announced)
    stamped = _stamp(data, decoded, now_us)
    refusals = refusals_of(decoded)
    if decoded.header.columns >> pb.COLUMN_TTL_MS & 1:
        stamped, decoded = _expiring(decoded, now_us)
    rows = _accepted(decoded.header.rows, refusals)
    if rows is not None:
        if not len(rows):
            return Prepared((), refusals)
        data = _encode(decoded.header, decoded.batch.take(pa.array(rows)))
        stamped, decoded = (data,), block.decode(data)
    if part_keys and _has_more_keys(decoded, part_keys):
        parts = _slices(rows, decoded, now_us, part_keys, by_mode=by_mode)
        return Prepared(tuple(parts), refusals)
    part = _part(rows, stamped, decoded, now_us, by_mode=by_mode, keyed=part_keys > 0)
    return Prepared((part,), refusals)


def _one_row(data: Bytes, now_us: int, *, by_mode: bool, keyed: bool) -> PreparedPart | None:
    """The part of a small block of one row, made at less cost; None: take the general way.

    The general way takes blocks that are refused, expire, or are not written as `one_row` writes.
    """
    header, arrow = block.split(data)
    plain = header.rows == 1 and not header.columns & _EXPIRING
    found = one_row.decode(header.columns, arrow) if plain else None
    if found is None:
        return None
    values = dict(zip(columns.names(header.columns, columns.STORED), found[0], strict=True))
    key = values.get("routing_key", header.routing_key)
    times = (header.published_at_us, values.get("published_at", 0))
    if (
        header.payload_bytes != found[1] + len(header.routing_key.encode())
        or len(key.encode()) > limits.MAX_ROUTING_KEY_BYTES
        or len(data) - len(arrow) > _HEADER_BYTES
        or not limits.MIN_PUBLISHED_AT_US <= min(times) <= max(times) <= limits.MAX_PUBLISHED_AT_US
    ):
        return None
    stamped: Bulk = (data,)
    persistent = not by_mode or values.get("persistent", is_persistent(header))
    row = (header, found[0]) if persistent and not header.published_at_us else None
    if not header.published_at_us and "published_at" not in values:
        header.published_at_us = now_us
        stamped = block.parts_of(header, arrow)
    routes = Routes((key if keyed else "",))
    return PreparedPart(None, stamped, routes, 1, header.payload_bytes, persistent, row=row)


def of_rows(parts: Sequence[PreparedPart]) -> Bulk:
    """The block of the `row` of each part, whose columns and constant routing key are the same."""
    rows = [part.row for part in parts if part.row is not None]
    header = pb.BlockHeader()
    header.CopyFrom(rows[0][0])
    header.rows = len(rows)
    header.payload_bytes = sum(part.payload_bytes for part in parts)
    schema = columns.stored_schema(header.columns)
    values = zip(*(each for _, each in rows), strict=True)
    arrays = [pa.array(each, field.type) for each, field in zip(values, schema, strict=True)]
    return block.parts_of(header, pa.RecordBatch.from_arrays(arrays, schema=schema).serialize())


def _accepted(rows: int, refusals: tuple[Refusal, ...]) -> Rows | None:
    """The indices of the rows that are not refused; None for all rows."""
    if not refusals:
        return None
    accepted = np.ones(rows, np.bool_)
    for refusal in refusals:
        accepted[refusal.rows] = False
    return np.flatnonzero(accepted)


def _has_more_keys(decoded: block.Block, most: int) -> bool:
    """Whether a block has more distinct routing keys than `most`."""
    if decoded.header.rows <= most or not decoded.header.columns >> pb.COLUMN_ROUTING_KEY & 1:
        return False
    distinct: int = pc.count_distinct(decoded.batch.column("routing_key"), mode="all").as_py()
    return distinct > most


def _slices(
    rows: Rows | None, decoded: block.Block, now_us: int, size: int, *, by_mode: bool
) -> Iterator[PreparedPart]:
    """Splits a stored block into parts of `size` rows."""
    if rows is None:
        rows = np.arange(decoded.header.rows)
    for start in range(0, len(rows), size):
        data = _encode(decoded.header, decoded.batch.slice(start, size))
        part = rows[start : start + size]
        yield _part(part, (data,), block.decode(data), now_us, by_mode=by_mode)


def from_messages(messages: Sequence[pb.Message], now_us: int) -> bytes:
    """Encodes at least one message as a block, for publishers that build no Arrow batches."""
    values: dict[str, list[Any]] = {
        "body": [message.body for message in messages],
        "routing_key": [message.routing_key for message in messages],
        "message_id": [message.message_id or None for message in messages],
        "correlation_id": [message.correlation_id or None for message in messages],
        "reply_to": [message.reply_to or None for message in messages],
        "content_type": [message.content_type or None for message in messages],
        "headers": [list(message.headers.items()) for message in messages],
        "published_at": [message.published_at_us or now_us for message in messages],
        "persistent": [_MODES.get(message.delivery_mode) for message in messages],
        "ttl_ms": [message.ttl_ms or None for message in messages],
    }
    always = {"body", "routing_key", "published_at"}
    kept = {name: column for name, column in values.items() if name in always or any(column)}
    if any(mode is False for mode in values["persistent"]):
        kept["persistent"] = values["persistent"]
    schema = columns.stored_schema(columns.bits(tuple(kept)))
    arrays = [pa.array(kept[field.name], field.type) for field in schema]
    return block.encode(pa.RecordBatch.from_arrays(arrays, schema=schema))


def routes_of(decoded: block.Block) -> Routes:
    """The routing keys of a block; a null key counts as empty."""
    if not decoded.header.columns >> pb.COLUMN_ROUTING_KEY & 1:
        return Routes((decoded.header.routing_key,))
    encoded = decoded.batch.column("routing_key").fill_null("").dictionary_encode()
    keys = tuple(encoded.dictionary.to_pylist())
    return Routes(keys, encoded.indices.to_numpy() if len(keys) > 1 else None)


def expiries_of(decoded: block.Block, now_us: int) -> tuple[Expiry, ...]:
    """The expiry times of a stored block's expiring rows (Q3), at the core's precision."""
    if not decoded.header.columns >> pb.COLUMN_EXPIRES_AT & 1:
        return ()
    times = decoded.batch.column("expires_at").cast(pa.int64()).fill_null(0).to_numpy()
    times = np.where(times, rounded(times, now_us), 0)
    distinct, codes = np.unique(times, return_inverse=True)
    if len(distinct) == 1:
        return (Expiry(int(distinct[0])),)
    every = np.arange(len(codes), dtype=np.uint32)
    found = map(Expiry, distinct.tolist(), bitmaps.by_code(every, codes, len(distinct)))
    return tuple(expiry for expiry in found if expiry.expires_us)


def take(data: Bulk, rows: Rows) -> bytes:
    """Encodes the given rows of a stored block as a block of their own, for a return (P7)."""
    decoded = block.decode(b"".join(data))
    return _encode(decoded.header, decoded.batch.take(pa.array(rows)))


def _stamp(data: Bytes, decoded: block.Block, now_us: int) -> Bulk:
    """Sets a publish time in the block's header unless it or its rows have one; no copy."""
    header, batch = decoded
    own_times = (
        header.columns >> pb.COLUMN_PUBLISHED_AT & 1 and not batch.column("published_at").null_count
    )
    if header.published_at_us or own_times:
        return (data,)
    header.published_at_us = now_us
    _, arrow = frame.split(data)
    return frame.encode_parts(header.SerializeToString(), arrow)


def _expiring(decoded: block.Block, now_us: int) -> tuple[Bulk, block.Block]:
    """Replaces a block's times to live by a column of expiry times, if any row expires."""
    ttls = decoded.batch.column("ttl_ms").fill_null(0).to_numpy()
    arrays = dict(zip(decoded.batch.schema.names, decoded.batch.columns, strict=True))
    del arrays["ttl_ms"]
    if ttls.any():
        # Rows outside this range are refused.
        times = now_us + np.clip(ttls, 0, limits.MAX_TTL_MS) * 1000
        arrays["expires_at"] = pa.array(times, pa.int64(), mask=ttls == 0).cast(columns.TIMESTAMP)
    if not arrays:
        persistent = pa.repeat(pa.scalar(is_persistent(decoded.header)), decoded.header.rows)
        arrays["persistent"] = persistent
    schema = columns.stored_schema(columns.bits(tuple(arrays)))
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    data = _encode(decoded.header, batch)
    return (data,), block.decode(data)


def _modes(decoded: block.Block, *, by_mode: bool) -> tuple[bool, BitMap | None]:
    """Whether any row is persistent, and the transient rows if only some are persistent (P12)."""
    constant = not by_mode or is_persistent(decoded.header)
    if not by_mode or not decoded.header.columns >> pb.COLUMN_PERSISTENT & 1:
        return constant, None
    column = decoded.batch.column("persistent").fill_null(constant)
    persistent = column.to_numpy(zero_copy_only=False)
    if persistent.all() or not persistent.any():
        return bool(persistent.any()), None
    return True, BitMap(array("I", np.flatnonzero(~persistent).astype(np.uint32).tobytes()))


def _part(
    rows: Rows | None,
    data: Bulk,
    decoded: block.Block,
    now_us: int,
    *,
    by_mode: bool,
    keyed: bool = True,
) -> PreparedPart:
    """Builds the part of a stored block."""
    persistent, transient = _modes(decoded, by_mode=by_mode)
    return PreparedPart(
        rows=rows,
        block=data,
        routes=routes_of(decoded) if keyed else Routes(("",)),
        row_count=decoded.header.rows,
        payload_bytes=decoded.header.payload_bytes,
        persistent=persistent,
        expiries=expiries_of(decoded, now_us),
        transient=transient,
        sizes=row_sizes(decoded),
    )


def _encode(constants: pb.BlockHeader, batch: pa.RecordBatch) -> bytes:
    """Encodes a block with the header constants of the block its rows came from."""
    return block.encode(
        batch,
        routing_key=constants.routing_key,
        published_at_us=constants.published_at_us,
        delivery_mode=constants.delivery_mode,
    )
