"""From a publisher's or writer's frame to what the core and the journal take.

Invariant: every row of a frame is in exactly one part or one refusal; a part's block can be stored
as it is, and its routes cover each of its rows exactly once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns, frame
from ackq.wire.frame import Bytes
from ackq_broker.core.commands import Route
from ackq_broker.journal import Bulk
from ackq_broker.service import admission
from ackq_broker.service.admission import Refusal, Rows, refusals_of
from ackq_broker.service.merge import is_persistent

_Mask = np.ndarray[Any, np.dtype[np.bool_]]

_MODES: Final = {
    pb.DELIVERY_MODE_UNSPECIFIED: None,
    pb.DELIVERY_MODE_PERSISTENT: True,
    pb.DELIVERY_MODE_NON_PERSISTENT: False,
}


class Part(NamedTuple):
    """Rows that are published by one command.

    `rows` are row indices of the frame, None means all of them; `block` is buffers to be joined.
    """

    rows: Rows | None
    block: Bulk
    routes: tuple[Route, ...]
    row_count: int
    payload_bytes: int
    persistent: bool


class Prepared(NamedTuple):
    """A frame, taken apart."""

    parts: tuple[Part, ...]
    refusals: tuple[Refusal, ...]


def prepare(data: Bytes, now_us: int, *, by_mode: bool = True) -> Prepared:
    """Validate a block, stamp its publish time, and find its routes, refusals and delivery modes.

    The ordinary frame (one delivery mode, nothing refused) is stored with the Arrow bytes it came
    with. Others are cut into parts and encoded again.

    Args:
        data: A block as a client sent it.
        now_us: What `published_at_us` becomes where the client set none.
        by_mode: Whether rows of different delivery modes make different parts.

    Raises:
        LimitError: The block announces more rows than a frame may hold.
        MalformedBlockError: The bytes are not a valid block.
    """
    stamped, decoded = _stamp(data, now_us)
    refusals = refusals_of(decoded)
    persistent = _persistent_rows(decoded) if by_mode else np.ones(decoded.header.rows, np.bool_)
    if not refusals and (persistent.all() or not persistent.any()):
        part = Part(
            rows=None,
            block=stamped,
            routes=routes_of(decoded),
            row_count=decoded.header.rows,
            payload_bytes=decoded.header.payload_bytes,
            persistent=bool(persistent[0]),
        )
        return Prepared((part,), ())
    accepted = np.ones(decoded.header.rows, np.bool_)
    for refusal in refusals:
        accepted[refusal.rows] = False
    chosen = (np.flatnonzero(accepted & persistent), np.flatnonzero(accepted & ~persistent))
    return Prepared(tuple(_cut(decoded, rows) for rows in chosen if len(rows)), refusals)


def from_messages(messages: Sequence[pb.Message], now_us: int) -> bytes:
    """A block of single messages, for publishers that build no Arrow batches; at least one."""
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


def routes_of(decoded: block.Block) -> tuple[Route, ...]:
    """The distinct routing keys of a block with their rows; a null key is the empty one."""
    if not decoded.header.columns >> pb.COLUMN_ROUTING_KEY & 1:
        return (Route(decoded.header.routing_key),)
    encoded = decoded.batch.column("routing_key").fill_null("").dictionary_encode()
    keys = encoded.dictionary.to_pylist()
    if len(keys) == 1:
        return (Route(keys[0]),)
    codes = encoded.indices.to_numpy()
    by_key = np.argsort(codes, kind="stable").astype(np.uint32)
    ends = np.cumsum(np.bincount(codes, minlength=len(keys)))
    routes = []
    start = 0
    for key, end in zip(keys, ends.tolist(), strict=True):
        # A buffer of the right type is taken 5 times faster than a numpy array.
        routes.append(Route(key, BitMap(array("I", by_key[start:end].tobytes()))))
        start = end
    return tuple(routes)


def take(data: Bulk, rows: Rows) -> bytes:
    """A block of some rows of a stored block: what a return carries (P7)."""
    decoded = block.decode(b"".join(data))
    return _encode(decoded.header, decoded.batch.take(pa.array(rows)))


def _stamp(data: Bytes, now_us: int) -> tuple[Bulk, block.Block]:
    """The block with a publish time in its header, unless its rows carry their own; no copy."""
    decoded = admission.decode(data)
    header, batch = decoded
    own_times = (
        header.columns >> pb.COLUMN_PUBLISHED_AT & 1 and not batch.column("published_at").null_count
    )
    if header.published_at_us or own_times:
        return (data,), decoded
    header.published_at_us = now_us
    _, arrow = block.split(data)
    return frame.encode_parts(header.SerializeToString(), arrow), decoded


def _persistent_rows(decoded: block.Block) -> _Mask:
    """Which rows are persistent (P12)."""
    constant = is_persistent(decoded.header)
    if not decoded.header.columns >> pb.COLUMN_PERSISTENT & 1:
        return np.full(decoded.header.rows, constant)
    modes: _Mask = (
        decoded.batch.column("persistent").fill_null(constant).to_numpy(zero_copy_only=False)
    )
    return modes


def _cut(decoded: block.Block, rows: Rows) -> Part:
    """Some rows of a block as a part of their own."""
    data = _encode(decoded.header, decoded.batch.take(pa.array(rows)))
    part = block.decode(data)
    return Part(
        rows=rows,
        block=(data,),
        routes=routes_of(part),
        row_count=part.header.rows,
        payload_bytes=part.header.payload_bytes,
        persistent=bool(_persistent_rows(part)[0]),
    )


def _encode(constants: pb.BlockHeader, batch: pa.RecordBatch) -> bytes:
    """A block with the constants of the one its rows came from."""
    return block.encode(
        batch,
        routing_key=constants.routing_key,
        published_at_us=constants.published_at_us,
        delivery_mode=constants.delivery_mode,
    )
