"""Blocks of messages for the tests of this folder."""

import pyarrow as pa

from ackq.wire import block, columns


def batch(**values):
    """A record batch of stored columns, in their order."""
    schema = columns.stored_schema(columns.bits(tuple(values)))
    return pa.record_batch([pa.array(values[f.name], f.type) for f in schema], schema=schema)


def encoded(*, routing_key="", published_at_us=0, delivery_mode=0, **values):
    """A block as bytes; a list of routing keys is a column."""
    if isinstance(routing_key, list):
        values["routing_key"], routing_key = routing_key, ""
    return block.encode(
        batch(**values),
        routing_key=routing_key,
        published_at_us=published_at_us,
        delivery_mode=delivery_mode,
    )


def decoded(**values):
    """A block, decoded."""
    return block.decode(encoded(**values))


def rows(data):
    """The columns of a block's bytes as lists, checked as a hostile reader would."""
    return block.decode(data, validate=True).batch.to_pydict()
