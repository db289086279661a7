"""Parses requests; requests that would expand in memory are refused unparsed (I6).

An empty `Message` is 2 bytes on the wire and 150 or more in memory: 36 million of them fit a frame.
So the fields of a large request are counted before protobuf makes objects of them.

Invariant: a parsed request takes a small multiple of the received bytes, or some 100 MB at most;
only small requests are parsed on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ackq import limits
from ackq.errors import LimitError, MalformedBlockError
from ackq.wire import frame

# A larger request is parsed in a worker thread, after its fields have been counted.
_LARGE_BYTES: Final = 64 * limits.KIB
_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
# A stage's outcomes have a bound of their own, and their tags do not expand in memory (S6).
_LARGE_REQUESTS: Final = ("StageOutcomesRequest",)


class RequestParser:
    """Parses the requests of one method: messages, or data frames without a copy of their block.

    Args:
        message: The method's input type.
    """

    def __init__(self, message: Descriptor) -> None:
        self._name = message.name
        self._is_frame = is_frame(message)
        header = message.fields_by_name["header"].message_type if self._is_frame else message
        assert header is not None
        self._descriptor = header
        self._read: Callable[[bytes], Any] = GetMessageClass(header).FromString
        unbounded = self._is_frame or message.name in _LARGE_REQUESTS
        self._most_bytes = limits.MAX_FRAME_BYTES if unbounded else limits.MAX_REQUEST_BYTES

    async def parse(self, data: bytes) -> Any:
        """Parses a request from its bytes.

        Raises:
            LimitError: It has more bytes or more fields than a request may have.
            MalformedBlockError: The bytes are not a message of the method's input type.
        """
        header, block = frame.split(data) if self._is_frame else (memoryview(data), b"")
        if len(header) > self._most_bytes:
            raise LimitError(
                f"A {self._name} of {len(header)} bytes is over the limit of {self._most_bytes};"
                " ask in parts.",
                limit=self._most_bytes,
            )
        if len(header) <= _LARGE_BYTES:
            parsed = self._parsed(header)
        else:
            loop = asyncio.get_running_loop()
            parsed = await loop.run_in_executor(None, self._counted_and_parsed, header)
        return frame.Frame(parsed, block) if self._is_frame else parsed

    def _counted_and_parsed(self, data: memoryview) -> Any:
        if count_fields(self._descriptor, data, limits.MAX_REQUEST_FIELDS) is None:
            raise LimitError(
                f"The {self._name} holds more than {limits.MAX_REQUEST_FIELDS} fields; send several"
                " smaller ones.",
                limit=limits.MAX_REQUEST_FIELDS,
            )
        return self._parsed(data)

    def _parsed(self, data: memoryview) -> Any:
        try:
            return self._read(bytes(data))
        except DecodeError as error:
            raise MalformedBlockError(
                f"The request is not a valid {self._name}: {error}"
            ) from error


def is_frame(message: Descriptor) -> bool:
    """Whether a message is a data frame (see DATA FRAMES in messages.proto)."""
    return "block" in message.fields_by_name and "header" in message.fields_by_name


def count_fields(message: Descriptor, data: memoryview, most: int) -> int | None:
    """Counts a serialised message's fields, including nested messages'; None if above `most`.

    A packed list counts as one. Counting stops where the bytes are not protobuf: parsing them
    reports the error.
    """
    count = 0
    nested: list[tuple[Descriptor, int, int]] = [(message, 0, len(data))]
    while nested:
        within, at, end = nested.pop()
        known = within.fields_by_number
        while at < end:
            count += 1
            if count > most:
                return None
            tag, at = frame.read_varint(data, at)
            kind = tag & 7
            if kind == _LENGTH_DELIMITED:
                size, at = frame.read_varint(data, at)
                field = known.get(tag >> 3)
                if field is not None and field.message_type is not None and at + size <= end:
                    nested.append((field.message_type, at, at + size))
                at += size
            elif kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
            elif kind == 0:
                _, at = frame.read_varint(data, at)
            # Group tags have no content: the group's fields follow.
    return count
