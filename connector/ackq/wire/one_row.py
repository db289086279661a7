"""Writes Arrow messages of one row without null values, by templates.

Only the lengths and values in such a message depend on its row. Arrow takes 30 to 180 us to write
one; filling them into bytes that Arrow wrote before takes 3 to 10.

Invariant: `encode` returns the bytes that Arrow's writer returns.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ackq.wire import columns

_LONG: Final = struct.Struct("<q")
_ENDS: Final = struct.Struct("<2i")
_PADDING: Final = [bytes(-size % 8) for size in range(8)]
# Length of the texts in the row from which a template is made: its numbers occur nowhere else in
# the message. And of those in rows of which the template must make what Arrow makes of them.
_SAMPLE: Final = 4661
_CHECKED: Final = (0, 9)


class _Template(NamedTuple):
    """The fixed bytes of a message's metadata; the numbers between them depend on the row.

    `kinds` are the columns' types: "text", "binary", "headers", or a format of `struct`.
    """

    kinds: list[str]
    metadata: struct.Struct
    fixed: tuple[bytes, ...]


def encode(mask: int, row: Sequence[Any]) -> tuple[bytes, int] | None:
    """The Arrow message of a row and its payload bytes; None if only Arrow can write it.

    Args:
        mask: The bits of its columns.
        row: Their values, in the order of `columns.STORED`: times in microseconds, headers as
            pairs.
    """
    template = _template(mask)
    return None if template is None else _filled(template, row)


def _filled(template: _Template, row: Sequence[Any]) -> tuple[bytes, int]:
    """The message of a row, and its payload bytes."""
    start, middle, between, after = template.fixed
    end, numbers, nodes, body, payload_bytes = _body(template.kinds, row)
    metadata = template.metadata.pack(start, end, middle, *numbers, between, *nodes, after)
    return b"".join((metadata, *body)), payload_bytes


def _body(
    kinds: Sequence[str], row: Sequence[Any]
) -> tuple[int, list[int], list[int], list[bytes], int]:
    """The body of a message: size, offsets and lengths of the buffers, nodes, parts, payload."""
    end = payload_bytes = 0
    numbers: list[int] = []
    nodes: list[int] = []
    parts: list[bytes] = []
    for kind, value in zip(kinds, row, strict=True):
        nodes += (1, 0)
        if kind == "headers":
            nodes += (len(value), 0) * 3
        buffers = _buffers(kind, value)
        payload_bytes += sum(map(len, buffers[2::3]))  # bytes, after validity and offsets
        for buffer in buffers:
            size = len(buffer)
            numbers += (end, size)
            if size:
                padding = _PADDING[size % 8]
                parts += (buffer, padding)
                end += size + len(padding)
    return end, numbers, nodes, parts, payload_bytes


def _buffers(kind: str, value: Any) -> tuple[bytes, ...]:
    """The buffers of a column."""
    if kind == "headers":
        keys, items = zip(*value, strict=True) if value else ((), ())
        return b"", _ENDS.pack(0, len(value)), b"", *_texts(keys), *_texts(items)
    if kind in ("<q", "?"):
        return b"", struct.pack(kind, value)
    data = value.encode() if kind == "text" else value
    return b"", _ENDS.pack(0, len(data)), data


def _texts(values: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    encoded = [value.encode() for value in values]
    ends = accumulate(map(len, encoded), initial=0)
    return b"", struct.pack(f"<{len(values) + 1}i", *ends), b"".join(encoded)


@cache
def _template(mask: int) -> _Template | None:
    """The template for some columns; None if it does not make what Arrow makes.

    Raises MalformedBlockError for unknown bits.
    """
    schema = columns.stored_schema(mask)
    kinds = list(map(_kind, schema.types))
    row, written = _sample(schema, kinds, _SAMPLE)
    size, numbers, nodes, _, _ = _body(kinds, row)
    try:
        start, rest = written.split(_LONG.pack(size))
        middle, rest = rest.split(struct.pack(f"<{len(numbers)}q", *numbers))
        between, rest = rest.split(struct.pack(f"<{len(nodes)}q", *nodes))
    except ValueError:
        return None
    fixed = start, middle, between, rest[: len(rest) - size]
    form = "<{}sq{}s_{}s_{}s".format(*map(len, fixed))
    for count in (len(numbers), len(nodes)):
        form = form.replace("_", f"{count}q", 1)
    template = _Template(kinds, struct.Struct(form), fixed)
    checked = [_sample(schema, kinds, length) for length in _CHECKED]
    return template if all(_filled(template, row)[0] == made for row, made in checked) else None


def _kind(arrow: pa.DataType) -> str:
    if pa.types.is_map(arrow):
        return "headers"
    if pa.types.is_primitive(arrow):
        return "?" if pa.types.is_boolean(arrow) else "<q"
    return "text" if pa.types.is_string(arrow) else "binary"


def _sample(schema: pa.Schema, kinds: Sequence[str], length: int) -> tuple[list[Any], bytes]:
    """A row with texts of a length, and its message as Arrow writes it."""
    text = "x" * length
    values = {"text": text, "binary": text.encode(), "headers": [(text, text)] * (length % 7)}
    row = [values.get(kind, kind == "?" or length) for kind in kinds]
    arrays = map(pa.array, ([value] for value in row), schema.types)
    return row, bytes(pa.record_batch(list(arrays), schema=schema).serialize())
