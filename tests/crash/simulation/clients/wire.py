"""Frames of the protocol, made and read for virtual clients."""

import zlib
from typing import NamedTuple

import pyarrow as pa

from ackq.wire import block, columns

_ROW_COLUMNS = columns.bits(("body",))
_SCHEMA = columns.stored_schema(_ROW_COLUMNS)


class Row(NamedTuple):
    """A message as a consumer reads it; `tag` is a position in a browse."""

    tag: int
    queue: str
    count: int
    name: str
    body: bytes
    headers: dict
    leased: bool = False


class Encoded(NamedTuple):
    """A frame that the product's client has encoded, as a request."""

    data: bytes

    def SerializeToString(self):  # noqa: N802 - protobuf's name
        return self.data


def body_of(name, padding):
    """A body that begins with the message's name and cannot be that of another message."""
    fill = zlib.crc32(name.encode()).to_bytes(4, "little")
    return name.encode() + b"|" + fill * (padding // 4)


def encoded(bodies, routing_key):
    """A block of bodies, as bytes."""
    batch = pa.record_batch([pa.array(bodies, _SCHEMA.field(0).type)], schema=_SCHEMA)
    return block.encode(batch, routing_key=routing_key)


def payload_bytes(bodies, routing_key):
    """What size limits count of a block of `encoded`."""
    return sum(map(len, bodies)) + len(bodies) * len(routing_key)


def rows_of(runs, data):
    """The rows of a delivery, a fetch or a browse."""
    content = block.decode(data)
    batch = content.batch
    bodies = batch.column("body").to_pylist()
    names = batch.schema.names
    headers = batch.column("headers").to_pylist() if "headers" in names else None
    found = []
    at = 0
    for index, first in enumerate(runs.first_tag):
        count = runs.delivery_count[index] if runs.delivery_count else 0
        leased = bool(runs.leased and runs.leased[index])
        queue = runs.queues[runs.queue_index[index]] if runs.queue_index else ""
        for tag in range(first, first + runs.rows[index]):
            body = bodies[at]
            named = dict(headers[at] or ()) if headers is not None else {}
            name = body.split(b"|", 1)[0].decode()
            found.append(Row(tag, queue, count, name, body, named, leased))
            at += 1
    assert at == len(bodies), "a row that no run names"
    return found
