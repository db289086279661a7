"""Decodes and validates the deliveries of a link: columns of keys, and a block to be stored.

Invariant: deliveries handed to the core have one key and one check for each row of their block, and
the block can be stored as it is: it is persistent, and no row expires by itself (L13).
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap

from ackq import limits
from ackq.errors import InvalidArgumentError, SchemaError
from ackq.v1 import links_pb2 as pb
from ackq.v1 import messages_pb2
from ackq.wire import block, frame
from ackq.wire.answers import copied
from ackq_broker.core import commands
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.journal import Bulk
from ackq_broker.service.blocks import ingest, validation

Request = frame.Frame[pb.LinkHeader]

_KEY_BYTES: Final = 16
_CHECK_BYTES: Final = 8


class PreparedDeliveries(NamedTuple):
    """Deliveries in the core's form, without the link's name, epoch and stream; and their block."""

    subscription: int
    first_number: int
    rows: int
    payload_bytes: int
    keys: commands.Uint64s
    checks: commands.Uint64s
    content: BitMap
    redelivered: BitMap
    at_once: BitMap
    lowest_unanswered: int
    proven: int
    proven_number: int
    repeats_end: bool
    sizes: Int64s | None
    block: Bulk

    def command(self, link: str, epoch: int, stream: int) -> commands.StoreLinked:
        """The command that stores them."""
        return copied(commands.StoreLinked, self, link=link, epoch=epoch, stream=stream)


def decode(request: Request, now_us: int) -> PreparedDeliveries:
    """Decodes a link's deliveries; large ones take long enough for a worker thread.

    Args:
        request: A frame whose kind is `deliveries`.
        now_us: Publish time of rows for which the link set none.

    Raises:
        InvalidArgumentError: Numbers, keys or flags do not describe the frame's rows, a row is
            over a limit, or the block is malformed.
        LimitError: The frame has more rows than a frame may hold.
    """
    sent = request.header.deliveries
    _check_numbers(sent)
    too_many = validation.too_many_rows(sent.rows)
    if too_many is not None:
        raise too_many
    _check_length("keys", sent.keys, _KEY_BYTES * sent.rows, "16 bytes for each row")
    _check_length("checks", sent.checks, _CHECK_BYTES * sent.rows, "8 bytes for each row")
    content = _flags("content", sent.content, sent.rows)
    redelivered = _flags("redelivered", sent.redelivered, sent.rows)
    at_once = _flags("at_once", sent.at_once, sent.rows)
    _check_columns(request.block)
    prepared = ingest.prepare(request.block, sent.rows, now_us, by_mode=False, part_keys=0)
    if prepared.refusals:
        raise prepared.refusals[0].reason
    (part,) = prepared.parts
    return copied(
        PreparedDeliveries,
        sent,
        payload_bytes=part.payload_bytes,
        keys=np.frombuffer(sent.keys, "<u8").reshape(-1, 2),
        checks=np.frombuffer(sent.checks, "<u8"),
        content=content,
        redelivered=redelivered,
        at_once=at_once,
        sizes=part.sizes,
        block=part.block,
    )


def _check_numbers(sent: pb.LinkDeliveries) -> None:
    last = sent.first_number + sent.rows - 1
    if not (sent.rows and 1 <= sent.lowest_unanswered <= sent.first_number <= last):
        raise InvalidArgumentError(
            f"Deliveries {sent.first_number} to {last}, the lowest unanswered of which is "
            f"{sent.lowest_unanswered}, are invalid: they count from 1, and have at least one row."
        )
    if (
        last > limits.LARGEST_NUMBER
        or max(sent.proven, sent.proven_number) > last
        or sent.subscription > limits.LARGEST_NUMBER
    ):
        raise InvalidArgumentError(
            f"Deliveries {sent.first_number} to {last} of subscription {sent.subscription}, with "
            f"{sent.proven} proven, are invalid: no more can be proven than were delivered, and "
            "numbers end at 2^62."
        )


def _check_length(name: str, data: bytes, expected: int, what: str) -> None:
    if len(data) != expected:
        raise InvalidArgumentError(
            f"The field '{name}' of deliveries has {len(data)} bytes and not {expected}, which is"
            f" {what}.",
            field=name,
        )


def _flags(name: str, data: bytes, rows: int) -> BitMap:
    """The rows whose bit is set; no rows for an empty field."""
    if not data:
        return BitMap()
    _check_length(name, data, (rows + 7) // 8, "a bit for each row")
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    found = np.flatnonzero(bits).astype(np.uint32)
    if len(found) and found[-1] >= rows:
        raise InvalidArgumentError(
            f"The field '{name}' of deliveries names row {found[-1]} of {rows}.", field=name
        )
    return BitMap(array("I", found.tobytes()))


def _check_columns(data: frame.Bytes) -> None:
    """Refuses a time to live: the remote broker's expiration has no effect in the local broker."""
    header, _ = block.split(data)
    if header.columns >> messages_pb2.COLUMN_TTL_MS & 1:
        raise SchemaError(
            "A link does not store the column 'ttl_ms': an expiration of the remote broker has no "
            "effect in this broker. Send it as a header.",
            column="ttl_ms",
        )
