"""The message columns: names, bits and Arrow types, in the one order that is used everywhere.

The types are exactly the types of Spark's `to_arrow_schema(schema, "UTC")`: Spark refuses all
others.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pyarrow as pa

from ackq.errors import MalformedBlockError, SchemaError
from ackq.v1 import messages_pb2 as pb

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.map_(pa.string(), pa.string())

# Stored columns: the columns that a block can hold (bits 1 to 11).
STORED: Final[dict[str, tuple[int, pa.DataType]]] = {
    "body": (pb.COLUMN_BODY, pa.binary()),
    "routing_key": (pb.COLUMN_ROUTING_KEY, pa.string()),
    "message_id": (pb.COLUMN_MESSAGE_ID, pa.string()),
    "correlation_id": (pb.COLUMN_CORRELATION_ID, pa.string()),
    "reply_to": (pb.COLUMN_REPLY_TO, pa.string()),
    "content_type": (pb.COLUMN_CONTENT_TYPE, pa.string()),
    "headers": (pb.COLUMN_HEADERS, HEADERS),
    "published_at": (pb.COLUMN_PUBLISHED_AT, TIMESTAMP),
    "expires_at": (pb.COLUMN_EXPIRES_AT, TIMESTAMP),
    "persistent": (pb.COLUMN_PERSISTENT, pa.bool_()),
    "ttl_ms": (pb.COLUMN_TTL_MS, pa.int64()),
}

# Columns a publisher may send; expires_at is set by the broker alone.
PUBLISHABLE: Final = tuple(name for name in STORED if name != "expires_at")

# Delivery columns: made from a frame's DeliveryRuns, never stored (bits 16 to 21).
DELIVERY: Final[dict[str, tuple[int, pa.DataType]]] = {
    "delivery_tag": (pb.COLUMN_DELIVERY_TAG, pa.int64()),
    "queue": (pb.COLUMN_QUEUE, pa.string()),
    "redelivered": (pb.COLUMN_REDELIVERED, pa.bool_()),
    "delivery_count": (pb.COLUMN_DELIVERY_COUNT, pa.int32()),
}
BROWSE: Final[dict[str, tuple[int, pa.DataType]]] = {
    "position": (pb.COLUMN_POSITION, pa.int64()),
    "queue": (pb.COLUMN_QUEUE, pa.string()),
    "redelivered": (pb.COLUMN_REDELIVERED, pa.bool_()),
    "delivery_count": (pb.COLUMN_DELIVERY_COUNT, pa.int32()),
    "leased": (pb.COLUMN_LEASED, pa.bool_()),
}

# Stored columns of a delivery: the broker replaced ttl_ms by expires_at.
_VISIBLE: Final = {name: spec for name, spec in STORED.items() if name != "ttl_ms"}

DELIVERED: Final[dict[str, tuple[int, pa.DataType]]] = {**_VISIBLE, **DELIVERY}
BROWSED: Final[dict[str, tuple[int, pa.DataType]]] = {**_VISIBLE, **BROWSE}

_ALL: Final = {**STORED, **DELIVERY, **BROWSE}
STORED_MASK: Final = sum(1 << bit for bit, _ in STORED.values())


def bits(names: list[str] | tuple[str, ...]) -> int:
    """The bit set of some column names; raises SchemaError for an unknown name."""
    mask = 0
    for name in names:
        if name not in _ALL:
            raise SchemaError(
                f"There is no message column '{name}'. Columns: {', '.join(_ALL)}.", column=name
            )
        mask |= 1 << _ALL[name][0]
    return mask


@cache
def stored_schema(mask: int) -> pa.Schema:
    """The Arrow schema of a block with the stored columns in `mask`.

    Raises MalformedBlockError for unknown bits.
    """
    if mask & ~STORED_MASK or not mask:
        raise MalformedBlockError(
            f"The block announces columns {mask:#x}; known are {STORED_MASK:#x}."
        )
    return pa.schema(
        [pa.field(name, kind) for name, (bit, kind) in STORED.items() if mask >> bit & 1]
    )


def names(mask: int, among: dict[str, tuple[int, pa.DataType]]) -> list[str]:
    """The column names of the bits in `mask`, in the order of `among`; a mask of 0 means all."""
    return [name for name, (bit, _) in among.items() if not mask or mask >> bit & 1]
