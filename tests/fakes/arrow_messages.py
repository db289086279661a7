"""Arrow IPC messages built by hand, so that every number in them can be wrong.

`Message.of` takes a sound batch apart; `Message.encode` writes its flatbuffer again.
"""

import struct
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

VERSION_4, VERSION_5 = 3, 4
SCHEMA, DICTIONARY_BATCH, RECORD_BATCH, TENSOR, SPARSE_TENSOR = 1, 2, 3, 4, 5
LZ4, ZSTD = 0, 1


@dataclass
class Message:
    """A record batch message whose attributes are written exactly as they are.

    Attributes:
        rows: Number of rows in the batch.
        nodes: (length, nulls) of each column and of those within it.
        buffers: (offset, length) of each buffer.
        body: The buffers.
        body_length: The body's length in the metadata; None: its true length.
        version: Metadata version.
        kind: The type of the header.
        codec: A compression of the body.
        views: Counts of buffers of views.
        custom: Keys and values.
        prefix: The bytes before the metadata and its length.
        after: The bytes after the message.
    """

    rows: int
    nodes: list[tuple[int, int]]
    buffers: list[tuple[int, int]]
    body: bytes
    body_length: int | None = None
    version: int = VERSION_5
    kind: int = RECORD_BATCH
    codec: int | None = None
    views: list[int] = field(default_factory=list)
    custom: list[tuple[str, str]] = field(default_factory=list)
    prefix: bytes = b"\xff\xff\xff\xff"
    after: bytes = b""

    @classmethod
    def of(cls, batch):
        """The message of a sound batch, whose columns are no slices."""
        made = cls(batch.num_rows, [], [], b"")
        for column in batch.columns:
            made.nodes += _nodes(column)
            for buffer in column.buffers():
                held = buffer.to_pybytes() if buffer is not None else b""
                made.buffers.append((len(made.body), len(held)))
                made.body += held + bytes(-len(held) % 8)
        return made

    def but(self, **changes):
        """The message with some attributes changed."""
        return replace(self, **changes)

    def encode(self):
        """The message as bytes."""
        flat = _flatbuffer(self._table())
        flat += bytes(-len(flat) % 8)
        return self.prefix + struct.pack("<i", len(flat)) + flat + self.body + self.after

    def _table(self):
        batch = Table(
            Number("q", self.rows),
            Vector("qq", self.nodes),
            Vector("qq", self.buffers),
            None if self.codec is None else Table(Number("b", self.codec), Number("b", 0)),
            Vector("q", [(count,) for count in self.views]) if self.views else None,
        )
        # A dictionary batch has the id of its dictionary, and then a record batch.
        header = Table(Number("q", 0), batch) if self.kind == DICTIONARY_BATCH else batch
        length = len(self.body) if self.body_length is None else self.body_length
        return Table(
            Number("h", self.version),
            Number("B", self.kind),
            header,
            Number("q", length),
            Tables([Table(Text(key), Text(value)) for key, value in self.custom])
            if self.custom
            else None,
        )


def _nodes(column):
    found = [(len(column), column.null_count)]
    if pa.types.is_map(column.type):
        entries = len(column.keys)
        found += [(entries, 0), (entries, 0), (entries, column.items.null_count)]
    return found


# --- flatbuffers: an object is written before the ones it refers to, and then filled in ---


@dataclass
class Number:
    """A field that holds its value."""

    code: str
    value: int


@dataclass(init=False)
class Table:
    """A table with these fields, None for one that is absent."""

    fields: tuple[Any, ...]

    def __init__(self, *fields):
        self.fields = fields

    def write(self, out):
        entries, size = [], 4
        for each in self.fields:
            width = struct.calcsize(each.code) if isinstance(each, Number) else 4
            size += 0 if each is None else -size % width
            entries.append(0 if each is None else size)
            size += 0 if each is None else width
        _align(out, 8)
        vtable = len(out)
        out += struct.pack(f"<HH{len(entries)}H", 4 + 2 * len(entries), size, *entries)
        _align(out, 8)
        table = len(out)
        out += struct.pack("<i", table - vtable) + bytes(size - 4)
        for each, entry in zip(self.fields, entries, strict=True):
            if isinstance(each, Number):
                struct.pack_into(f"<{each.code}", out, table + entry, each.value)
            elif each is not None:
                struct.pack_into("<I", out, table + entry, each.write(out) - table - entry)
        return table


@dataclass
class Vector:
    """A vector of structs of 8-byte fields."""

    code: str
    values: list[tuple[int, ...]]

    def write(self, out):
        _align(out, 8)
        out += bytes(4)
        out += struct.pack("<I", len(self.values))
        for each in self.values:
            out += struct.pack(f"<{self.code}", *each)
        return len(out) - 4 - len(self.values) * struct.calcsize(f"<{self.code}")


@dataclass
class Tables:
    """A vector of tables."""

    tables: list[Table]

    def write(self, out):
        _align(out, 4)
        at = len(out)
        out += struct.pack("<I", len(self.tables)) + bytes(4 * len(self.tables))
        for index, each in enumerate(self.tables):
            entry = at + 4 + 4 * index
            struct.pack_into("<I", out, entry, each.write(out) - entry)
        return at


@dataclass
class Text:
    """A string."""

    value: str

    def write(self, out):
        _align(out, 4)
        at, held = len(out), self.value.encode()
        out += struct.pack("<I", len(held)) + held + b"\0"
        return at


def _flatbuffer(root):
    out = bytearray(4)
    struct.pack_into("<I", out, 0, root.write(out))
    return bytes(out)


def _align(out, to):
    out += bytes(-len(out) % to)
