"""Frames: a small header and one large byte string, valid protobuf, read without a copy.

    +------+------------+-----------------+------+-----------+-----------------------+
    | 0x0A | varint len | header message  | 0x7A | varint len| block (may be absent) |
    +------+------------+-----------------+------+-----------+-----------------------+
      tag of field 1      serialised        tag of field 15    raw bytes
      (length-delimited)                    (length-delimited)

Passing 1 MiB through a protobuf class costs about 1 ms of construct, serialise, parse and read;
these functions cost one join on write and none on read. Source: `proto/ackq/v1/messages.proto`,
DATA FRAMES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ackq.errors import MalformedBlockError

HEADER_TAG = 0x0A
BLOCK_TAG = 0x7A
_LENGTH_DELIMITED = 2
_SKIP_FIXED = {1: 8, 5: 4}
# The least varint of two bytes. Shorter ones are read in place: a call takes 0.3 us.
_TWO_BYTES = 0x80
# Maximum number of fields of a frame, with room for fields of later versions. Skipping a field
# takes 0.5 us, and 72 MiB would hold 36 million fields.
_MOST_FIELDS = 64

Bytes = bytes | memoryview


class HeaderMessage(Protocol):
    """The part of a generated protobuf class that frames use."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The message as bytes."""
        ...

    def ParseFromString(self, serialized: bytes) -> int:  # noqa: N802
        """Fills the message from bytes."""
        ...


H = TypeVar("H", bound=HeaderMessage)


class Frame(NamedTuple, Generic[H]):
    """A header and its bulk bytes; `block` is empty if the frame carries none."""

    header: H
    block: Bytes = b""


def varint(value: int) -> bytes:
    """Encodes a non-negative integer as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: Bytes, at: int) -> tuple[int, int]:
    """Reads the varint at index `at`; returns its value and the index after it.

    Raises MalformedBlockError if it is truncated or over 64 bits.
    """
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:  # noqa: PLR2004
            raise MalformedBlockError("The frame is cut inside a length; it was not sent whole.")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _TWO_BYTES:
            return value, at
        shift += 7


def encode_parts(header: bytes, *block: Bytes) -> list[Bytes]:
    """The parts of a frame, to be joined or written one after another.

    Without block bytes the frame has no field 15.
    """
    parts: list[Bytes] = [bytes((HEADER_TAG,)), varint(len(header)), header]
    size = sum(len(part) for part in block)
    if size:
        parts += (bytes((BLOCK_TAG,)), varint(size), *block)
    return parts


def encode(header: bytes, *block: Bytes) -> bytes:
    """A frame as one byte string, at the cost of one copy of the block."""
    return b"".join(encode_parts(header, *block))


def split(data: Bytes) -> tuple[memoryview, memoryview]:
    """The header bytes and block bytes of a frame, as views into `data`.

    Skips unknown fields. Raises MalformedBlockError if a length runs past the end, or if the frame
    has more than one header or block, or too many fields.
    """
    view = memoryview(data)
    found: dict[int, memoryview] = {}
    at, end, fields = 0, len(view), 0
    while at < end:
        fields += 1
        if fields > _MOST_FIELDS:
            raise MalformedBlockError(f"The frame holds more than {_MOST_FIELDS} fields.")
        tag, at = (view[at], at + 1) if view[at] < _TWO_BYTES else read_varint(view, at)
        wire_type = tag & 7
        if wire_type == _LENGTH_DELIMITED:
            short = at < end and view[at] < _TWO_BYTES
            size, at = (view[at], at + 1) if short else read_varint(view, at)
            if size > end - at:
                raise MalformedBlockError(
                    f"The frame is cut: a field of {size} bytes has only {end - at} left."
                )
            if tag in found:
                raise MalformedBlockError("The frame holds two headers or two blocks.")
            if tag in (HEADER_TAG, BLOCK_TAG):
                found[tag] = view[at : at + size]
            at += size
        elif wire_type == 0:
            _, at = read_varint(view, at)
        elif wire_type in _SKIP_FIXED:
            at += _SKIP_FIXED[wire_type]
        else:
            raise MalformedBlockError(f"The frame holds wire type {wire_type}; it is not protobuf.")
    if at != end:
        raise MalformedBlockError("The frame is cut inside a fixed-size field.")
    return found.get(HEADER_TAG, view[0:0]), found.get(BLOCK_TAG, view[0:0])


def serializer(frame: Frame[H]) -> bytes:
    """Serializes a data frame, as a gRPC request or response serializer."""
    return encode(frame.header.SerializeToString(), frame.block)


def deserializer(header_class: Callable[[], H]) -> Callable[[bytes], Frame[H]]:
    """Makes a gRPC deserializer for data frames whose header is `header_class`."""

    def read(data: bytes) -> Frame[H]:
        header_bytes, block = split(data)
        header = header_class()
        header.ParseFromString(bytes(header_bytes))
        return Frame(header, block)

    return read
