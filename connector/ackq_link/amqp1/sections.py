"""Splits an encoded AMQP 1.0 message into its sections.

Proton's own `Message` keeps only the last of several data sections and no footer, so the parts that
it would drop must be found before. Invariant: bytes that are no message raise an error, and nothing
outside the message is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_DESCRIBED: Final = 0x00
_SMALL_ULONG: Final = 0x53
_ULONG: Final = 0x80
# The upper half of a type's code gives the size of its values: fixed, or a prefix of 1 or 4 bytes.
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZED: Final = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_BINARY: Final = {0xA0: 2, 0xB0: 5}
# The width in bytes of a map's size, and of its count.
_MAP32: Final = 0xD1
_MAPS: Final = {0xC1: 1, _MAP32: 4}


class Section(NamedTuple):
    """A section: its code, and the offsets of its start, its value and its end."""

    code: int
    start: int
    value: int
    end: int


def split(message: bytes) -> Iterator[Section]:
    """The sections of a message, in order.

    Raises:
        ValueError: The bytes that follow are no section, or have an unknown part.
    """
    at = 0
    try:
        while at < len(message):
            if message[at] != _DESCRIBED:
                raise ValueError("a section without a descriptor")
            code, value = _descriptor(message, at + 1)
            end = _end(message, value)
            if end > len(message):
                raise ValueError("a section that is cut short")
            yield Section(code, at, value, end)
            at = end
    except IndexError:
        raise ValueError("a section that is cut short") from None


def binary(message: bytes, section: Section) -> bytes:
    """The bytes in a data section. Raises ValueError when it holds another type."""
    head = _BINARY.get(message[section.value])
    if head is None:
        raise ValueError("a data section without binary data")
    return message[section.value + head : section.end]


def with_property(message: bytes, name: str, text: str) -> bytes:
    """Adds an application property to a message; name and text are below 2^32 bytes.

    Raises ValueError for bytes that are no message.
    """
    entry = b"".join(
        b"\xb1" + len(each).to_bytes(4, "big") + each for each in (name.encode(), text.encode())
    )
    found = list(split(message))
    at = next((each.start for each in found if each.code >= APPLICATION_PROPERTIES), len(message))
    end, count, entries = at, 0, b""
    for section in found:
        if section.code == APPLICATION_PROPERTIES:
            width = _MAPS.get(message[section.value])
            if width is None:
                raise ValueError("application properties that are no map")
            first = section.value + 1 + width
            count = int.from_bytes(message[first : first + width], "big")
            entries, end = message[first + width : section.end], section.end
    size = (4 + len(entries) + len(entry)).to_bytes(4, "big")
    head = bytes((_DESCRIBED, _SMALL_ULONG, APPLICATION_PROPERTIES, _MAP32))
    made = head + size + (count + 2).to_bytes(4, "big") + entries + entry
    return message[:at] + made + message[end:]


def _descriptor(message: bytes, at: int) -> tuple[int, int]:
    if message[at] == _SMALL_ULONG:
        return message[at + 1], at + 2
    if message[at] == _ULONG:
        return int.from_bytes(message[at + 1 : at + 9], "big"), at + 9
    raise ValueError("a descriptor that is no number")


def _end(message: bytes, at: int) -> int:
    """The end offset of a value; a described value is its descriptor and the value after it."""
    values = 1
    while values:
        if message[at] == _DESCRIBED:
            at, values = at + 1, values + 1
        else:
            at, values = _plain_end(message, at), values - 1
    return at


def _plain_end(message: bytes, at: int) -> int:
    kind = message[at] >> 4
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return at + 1 + fixed
    width = _SIZED.get(kind)
    if width is None:
        raise ValueError(f"a value of type {message[at]:#04x}")
    return at + 1 + width + int.from_bytes(message[at + 1 : at + 1 + width], "big")
