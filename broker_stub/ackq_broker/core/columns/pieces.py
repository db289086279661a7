"""msgpack encoding in pieces, each made in a moment, however long the whole is.

Joined, the pieces are the bytes of one encoding. A value must not change before its piece is made:
arrays are shared with columns that never write where they were filled, or that copy first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from numpy.typing import NDArray

from ackq_broker.core.columns.bitmaps import canonical_hook

_PIECE_BYTES: Final = 1 << 18
# The headers of msgpack: the longest length that fits, the lead byte, the bytes of the length.
_Header = tuple[tuple[int, int, int], ...]
_BINARY: Final[_Header] = ((0xFF, 0xC4, 1), (0xFFFF, 0xC5, 2), (0xFFFF_FFFF, 0xC6, 4))
_ARRAY: Final[_Header] = ((0xF, 0x90, 0), (0xFFFF, 0xDC, 2), (0xFFFF_FFFF, 0xDD, 4))
_MAP: Final[_Header] = ((0xF, 0x80, 0), (0xFFFF, 0xDE, 2), (0xFFFF_FFFF, 0xDF, 4))


class Encoded(NamedTuple):
    """A value that is encoded already."""

    data: bytes


class Parts:
    """Bytes given as consecutive arrays; `size` is their total, -1 when it is not known yet."""

    __slots__ = ("arrays", "size")

    def __init__(self, arrays: Callable[[], Iterable[NDArray[Any]]], size: int = -1) -> None:
        self.arrays = arrays
        self.size = size

    def __bytes__(self) -> bytes:
        return b"".join(array.tobytes() for array in self.arrays())


class Listed:
    """A list of known length whose items are made one by one; an empty `Encoded` is no item."""

    __slots__ = ("items", "length")

    def __init__(self, length: int, items: Iterable[object]) -> None:
        self.length = length
        self.items = items


def _hook(value: object) -> object:
    if isinstance(value, Parts):
        return bytes(value)
    if isinstance(value, Listed):
        return list(value.items)
    return canonical_hook(value)


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_hook)


def encoded(value: object) -> Encoded:
    """Encodes a short value at once: it may change from then on."""
    return Encoded(_ENCODER.encode(value))


def pieces(value: object) -> Iterator[bytes]:
    """Encodes a value as msgpack; empty pieces come while the length of a part is counted."""
    if isinstance(value, Encoded):
        yield value.data
    elif isinstance(value, Parts):
        yield from _binary(value)
    elif isinstance(value, Listed):
        yield _header(_ARRAY, value.length)
        for item in value.items:
            yield from pieces(item)
    elif isinstance(value, dict):
        yield _header(_MAP, len(value))
        for key, item in value.items():
            yield _ENCODER.encode(key)
            yield from pieces(item)
    elif isinstance(value, tuple | list):
        yield from pieces(Listed(len(value), value))
    elif isinstance(value, msgspec.Struct) and not value.__struct_config__.array_like:
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        yield from pieces({name: getattr(value, field) for name, field in names})
    else:
        yield _ENCODER.encode(value)


def _binary(parts: Parts) -> Iterator[bytes]:
    size, arrays = parts.size, parts.arrays()
    if size < 0:
        counted = []
        for array in arrays:
            counted.append(array)
            yield b""
        size, arrays = sum(array.nbytes for array in counted), counted
    yield _header(_BINARY, size)
    for array in arrays:
        step = _PIECE_BYTES // array.itemsize
        for begin in range(0, len(array), step):
            yield array[begin : begin + step].tobytes()


def _header(kinds: _Header, length: int) -> bytes:
    for most, lead, width in kinds:
        if length <= most:
            if not width:
                return bytes((lead | length,))
            return bytes((lead,)) + length.to_bytes(width, "big")
    raise OverflowError(f"msgpack has no header for a length of {length}")
