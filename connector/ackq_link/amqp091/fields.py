"""Field tables of AMQP 0-9-1 as JSON values, and back, with the type of each field.

A text is a JSON text, a number a JSON number, and a type that JSON does not have is an object of
one key: `!bytes`, `!longstr` (a text that is not UTF-8), `!timestamp`, `!decimal`, `!double`,
`!float` (numbers that are not finite). The types of numbers are kept separately from the value, a
letter each, in the order of the numbers in the value: so a reader of the JSON finds `{"count": 1}`
without the width of its field.

Invariant: `encode(decode(field))` is the field, except for the order of the fields of nested
tables, which are sorted by name, since a broker may order them otherwise (L3).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

_NUMBERS: Final = {
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "f": ">f",
    "d": ">d",
}
_NONFINITE: Final = {"f": "!float", "d": "!double"}
_SIZES: Final = {
    **{ord(tag): struct.calcsize(each) for tag, each in _NUMBERS.items()},
    ord("t"): 1,
    ord("D"): 5,
    ord("T"): 8,
    ord("V"): 0,
}
_SIZED: Final = frozenset(b"SxAF")
# The letter of a number whose type is the one that `encode` chooses by default.
_CHOSEN: Final = "."
_INT_32: Final = range(-(2**31), 2**31)
_NAME_BYTES: Final = 255


def split(table: bytes) -> list[tuple[bytes, bytes]]:
    """Splits a table, given without its length, into names, and values with their type tag.

    Raises:
        ValueError: The table is cut short, or has a type that AMQP does not know.
    """
    found, at = [], 0
    while at < len(table):
        begin = at + 1 + table[at]
        end = _end(table, begin)
        found.append((table[at + 1 : begin], table[begin:end]))
        at = end
    return found


def join(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Encodes a table, with its length, from names and values with their type tag."""
    parts = [bytes((len(name),)) + name + value for name, value in fields]
    return _sized(b"".join(parts))


def canonical(table: bytes) -> bytes:
    """A table, with its length, with the fields of it and of nested tables sorted by name.

    Two fields of one name keep their order; a table that cannot be split stays as it is. If tables
    are nested too deep, only the fields of the outermost one are sorted.
    """
    try:
        return _sorted_table(table)
    except RecursionError:
        return join(sorted(split(table), key=_by_name))
    except ValueError:
        return _sized(table)


def decode(field: bytes) -> tuple[Any, str]:
    """Decodes a value with its type tag to (JSON value, letters of its numbers).

    A letter is "." where `encode` chooses the type without it; the letters are "" if all are ".".

    Raises:
        ValueError: It has no JSON form: a name is not UTF-8 or occurs twice, or the nesting is too
            deep.
    """
    letters: list[str] = []
    try:
        value = _decode(field, letters)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a field that has no JSON form: {error}") from error
    text = "".join(letters)
    return value, text if text.strip(_CHOSEN) else ""


def encode(value: Any, letters: str = "") -> bytes:
    """Encodes the result of `decode` as a value with its type tag.

    Raises:
        Exception: `decode` never gives this value, or it is out of its type's range.
    """
    return _encode(value, iter(letters))


# --- decoding ---


def _end(data: bytes, at: int) -> int:
    """The end offset of the value whose type tag is at `at`."""
    tag = data[at : at + 1]
    if tag and tag[0] in _SIZED:
        size = 4 + int.from_bytes(data[at + 1 : at + 5])
    else:
        size = _SIZES.get(tag[0], -1) if tag else -1
    if size < 0 or at + 1 + size > len(data):
        raise ValueError(f"a field of type {tag!r} that is cut, or unknown")
    return at + 1 + size


def _items(array: bytes) -> Iterator[bytes]:
    """The values, with their type tag, of an array given without its length."""
    at = 0
    while at < len(array):
        end = _end(array, at)
        yield array[at:end]
        at = end


def _sorted_table(table: bytes) -> bytes:
    return join([(name, _sorted_inside(each)) for name, each in sorted(split(table), key=_by_name)])


def _sorted_inside(field: bytes) -> bytes:
    if field[:1] == b"F":
        return b"F" + _sorted_table(field[5:])
    if field[:1] == b"A":
        return b"A" + _sized(b"".join(map(_sorted_inside, _items(field[5:]))))
    return field


def _by_name(field: tuple[bytes, bytes]) -> bytes:
    return field[0]


def _decode(field: bytes, letters: list[str]) -> Any:
    tag = chr(field[0])
    if tag in _NUMBERS:
        return _decode_number(tag, field[1:], letters)
    if tag == "F":
        return _decode_table(field[5:], letters)
    if tag == "A":
        return [_decode(each, letters) for each in _items(field[5:])]
    return _PLAIN[tag](field[1:])


def _decode_number(tag: str, data: bytes, letters: list[str]) -> Any:
    number: float
    (number,) = struct.unpack(_NUMBERS[tag], data)
    if tag in _NONFINITE and not math.isfinite(number):
        return {_NONFINITE[tag]: data.hex()}
    letters.append(_CHOSEN if tag == _chosen(number) else tag)
    return number


def _decode_text(data: bytes) -> Any:
    try:
        return data[4:].decode()
    except UnicodeDecodeError:
        return {"!longstr": _base64(data[4:])}


def _decode_decimal(data: bytes) -> Any:
    return {"!decimal": str(Decimal(int.from_bytes(data[1:])).scaleb(-data[0]))}


_PLAIN: Final[dict[str, Callable[[bytes], Any]]] = {
    "S": _decode_text,
    "t": lambda data: data != b"\0",
    "x": lambda data: {"!bytes": _base64(data[4:])},
    "T": lambda data: {"!timestamp": int.from_bytes(data)},
    "D": _decode_decimal,
    "V": lambda _: None,
}


def _decode_table(table: bytes, letters: list[str]) -> dict[str, Any]:
    fields = sorted(split(table))
    values = {name.decode(): _decode(value, letters) for name, value in fields}
    if len(values) < len(fields):
        raise ValueError("two fields of one name")
    if len(values) == 1:
        ((name, value),) = values.items()
        if name.startswith("!"):  # it looks like the mark of a type
            return {f"!{name}": value}
    return values


def _chosen(number: float) -> str:
    """The letter of the type that `encode` chooses for a number by default."""
    if isinstance(number, int):
        return "I" if number in _INT_32 else "l"
    return "d"


def _mark(value: dict[str, Any]) -> str:
    """The mark of the type that a JSON object stands for; "" if it is a table."""
    only = next(iter(value)) if len(value) == 1 else ""
    return only if only.startswith("!") and not only.startswith("!!") else ""


# --- encoding ---


def _encode(value: Any, letters: Iterator[str]) -> bytes:
    if isinstance(value, str):
        return b"S" + _sized(value.encode())
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int | float):
        letter = next(letters, _CHOSEN).replace(_CHOSEN, _chosen(value))
        return letter.encode() + struct.pack(_NUMBERS[letter], value)
    if isinstance(value, list):
        return b"A" + _sized(b"".join([_encode(each, letters) for each in value]))
    return b"V" if value is None else _encode_table(value, letters)


def _encode_table(value: dict[str, Any], letters: Iterator[str]) -> bytes:
    mark = _mark(value)
    if mark in _MARKED:
        return _MARKED[mark](value[mark])
    fields = []
    for name, each in value.items():
        plain = name[1:] if len(value) == 1 and name.startswith("!!") else name
        fields.append((check_name(plain.encode()), _encode(each, letters)))
    return b"F" + join(fields)


def check_name(name: bytes) -> bytes:
    """Returns the name of a field. Raises ValueError if it is too long."""
    if len(name) > _NAME_BYTES:
        shown = name[:32].decode(errors="replace")
        raise ValueError(f"the header name '{shown}...' has over {_NAME_BYTES} bytes")
    return name


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _encode_decimal(text: str) -> bytes:
    number = Decimal(text)
    sign, digits, exponent = number.as_tuple()
    if sign or not isinstance(exponent, int):
        raise ValueError(f"AMQP 0-9-1 cannot carry the decimal {text}")
    if exponent > 0:
        exponent, digits = 0, digits + (0,) * exponent
    return b"D" + struct.pack(">BI", -exponent, int("".join(map(str, digits))))


_MARKED: Final[dict[str, Callable[[Any], bytes]]] = {
    "!bytes": lambda text: b"x" + _sized(base64.b64decode(text)),
    "!longstr": lambda text: b"S" + _sized(base64.b64decode(text)),
    "!timestamp": lambda seconds: b"T" + struct.pack(">Q", int(seconds)),
    "!decimal": _encode_decimal,
    "!float": lambda text: b"f" + bytes.fromhex(text),
    "!double": lambda text: b"d" + bytes.fromhex(text),
    # Types of AMQP 1.0.
    **dict.fromkeys(("!text", "!symbol", "!uuid"), lambda text: b"S" + _sized(text.encode())),
}
