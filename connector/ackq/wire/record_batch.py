"""Arrow record batches of an untrusted sender, checked before and after Arrow reads them.

    +----------+-------------+---------------------+---------------------------------------+
    | ffffffff | length, i32 | Message, flatbuffer | body: the buffers, each at an 8-byte  |
    |          |             | (`Message.fbs`)     | boundary, one after the other         |
    +----------+-------------+---------------------+---------------------------------------+

Arrow verifies that the flatbuffer's offsets lie inside it, and `validate(full=True)` checks the
contents of the buffers: validity, offsets, UTF-8. Neither detects data that takes more memory than
was received: compressed buffers, including ones named by a custom key of metadata version 4, and
buffers that several columns share. Neither refuses bytes that no reader uses but all would store.

Invariant: a batch that `read` returns is laid out in the received bytes, each of them used once,
and can be read by any Arrow implementation without touching memory outside them.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa

from ackq.errors import MalformedBlockError

_CONTINUATION: Final = 0xFFFFFFFF
_PREFIX_BYTES: Final = 8
# Maximum gap that a writer may leave between two buffers: Arrow aligns them to 8 bytes or to 64.
_MOST_PADDING: Final = 63
_ALIGNMENT: Final = 8

# Message.fbs: enum values and field counts, by their order in the schema.
_VERSION_5: Final = 4
_RECORD_BATCH: Final = 3
_MESSAGE: Final = 5
_BATCH: Final = 5

_UNSIGNED: Final = struct.Struct("<I")
# The wording of Arrow's error.
_NOT_UTF8: Final = "Invalid UTF8"
_SHORT: Final = struct.Struct("<H")
_LONG: Final = struct.Struct("<q")


class _Layout(NamedTuple):
    """Layout of a schema's batch: for each node, whether it has a value per row; buffer count."""

    nodes: tuple[bool, ...]
    buffers: int


def read(arrow: memoryview, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Reads the batch in an encapsulated message, zero-copy, fully validated.

    Args:
        arrow: The message; no bytes may follow it.
        schema: Its columns, of types that `columns.STORED` has.
        rows: Number of rows that it must have.

    Raises:
        MalformedBlockError: The bytes are not such a batch; the text says why. Its field `column`
            names a column with text that is not UTF-8, if no other error was found.
    """
    try:
        message = pa.ipc.read_message(pa.py_buffer(arrow))
        _check(message, arrow, _layout(schema), rows)
        batch = pa.ipc.read_record_batch(message, schema)
        _check_text(batch)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, EOFError, TypeError, struct.error) as error:
        # pyarrow raises EOFError for a truncated batch; struct.error is raised below for a table
        # that is shorter than in Message.fbs.
        raise MalformedBlockError(f"The block's Arrow batch is not valid: {error}") from error
    return batch


def _check_text(batch: pa.RecordBatch) -> None:
    """Raises MalformedBlockError, naming the column, for text that is not UTF-8."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if _NOT_UTF8 not in str(error):
                raise
            raise MalformedBlockError(
                f"The block's Arrow batch is not valid: column '{name}' has text that is not"
                " UTF-8.",
                column=name,
            ) from error


@cache
def _layout(schema: pa.Schema) -> _Layout:
    nodes: list[bool] = []
    buffers = 0
    for field in schema:
        if pa.types.is_map(field.type):  # the map, its entries, their keys and their items
            nodes += (True, False, False, False)
            buffers += 2 + 1 + 3 + 3
        else:
            nodes.append(True)
            buffers += 2 if pa.types.is_primitive(field.type) else 3
    return _Layout(tuple(nodes), buffers)


def _check(message: pa.ipc.Message, arrow: memoryview, layout: _Layout, rows: int) -> None:
    """Checks the metadata against the schema, and the buffers against the body."""
    metadata, body = memoryview(message.metadata), message.body
    body_bytes = body.size if body is not None else 0
    whole = _PREFIX_BYTES + metadata.nbytes + body_bytes
    if _UNSIGNED.unpack_from(arrow)[0] != _CONTINUATION or whole != len(arrow):
        raise _wrong(f"it takes {whole} bytes of {len(arrow)}")
    (root,) = _UNSIGNED.unpack_from(metadata)
    version, kind, header, _, custom = _fields(metadata, root, _MESSAGE)
    if not kind or metadata[kind] != _RECORD_BATCH or not header:
        raise _wrong("it is no record batch")
    if not version or _SHORT.unpack_from(metadata, version)[0] != _VERSION_5:
        raise _wrong("its metadata version is not 5")
    if _count(metadata, custom):
        raise _wrong("it has metadata of its own")
    length, nodes, buffers, compression, variadic = _fields(
        metadata, _target(metadata, header), _BATCH
    )
    if compression:
        raise _wrong("it is compressed; send it uncompressed")
    if _count(metadata, variadic):
        raise _wrong("it has views")
    if not length or _LONG.unpack_from(metadata, length)[0] != rows:
        raise _wrong(f"it has not the {rows} rows that the block announces")
    _check_nodes(_pairs(metadata, nodes, len(layout.nodes), "columns"), layout, rows)
    _check_buffers(_pairs(metadata, buffers, layout.buffers, "buffers"), body_bytes)


def _check_nodes(pairs: tuple[int, ...], layout: _Layout, rows: int) -> None:
    """Checks the nodes of all columns: alternating lengths and null counts."""
    for row_each, length, nulls in zip(layout.nodes, pairs[::2], pairs[1::2], strict=True):
        if not 0 <= nulls <= length or (row_each and length != rows):
            raise _wrong(f"a column of {rows} rows has {length} values, of them {nulls} nulls")


def _check_buffers(pairs: tuple[int, ...], body_bytes: int) -> None:
    """Checks alternating buffer offsets and lengths: each byte of the body is used once."""
    end = 0
    for offset, length in zip(pairs[::2], pairs[1::2], strict=True):
        if not length:
            continue
        if offset % _ALIGNMENT or length < 0 or not end <= offset <= end + _MOST_PADDING:
            raise _wrong(f"a buffer has {length} bytes at {offset}; the previous one ends at {end}")
        end = offset + length
    if not end <= body_bytes <= end + _MOST_PADDING:
        raise _wrong(f"its buffers end at {end}, and its body at {body_bytes}")


def _wrong(what: str) -> MalformedBlockError:
    return MalformedBlockError(f"The block's Arrow batch is not valid: {what}.")


# --- flatbuffers; Arrow has verified that all of this lies inside the metadata ---


def _fields(metadata: memoryview, table: int, most: int) -> tuple[int, ...]:
    """Offsets of the first `most` fields of a table; 0 for an absent field."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = _SHORT.unpack_from(metadata, table - back)
    count = min(most, size // 2 - 2)
    entries = struct.unpack_from(f"<{count}H", metadata, table - back + 4)
    return *(table + entry if entry else 0 for entry in entries), *(0,) * (most - count)


def _target(metadata: memoryview, field: int) -> int:
    """The offset of the table or vector to which a field refers."""
    return field + int(_UNSIGNED.unpack_from(metadata, field)[0])


def _count(metadata: memoryview, field: int) -> int:
    """The number of elements of a vector; 0 if it is absent."""
    if not field:
        return 0
    (count,) = _UNSIGNED.unpack_from(metadata, _target(metadata, field))
    return int(count)


def _pairs(metadata: memoryview, field: int, expected: int, what: str) -> tuple[int, ...]:
    """The numbers of a vector of pairs; raises if it does not have `expected` pairs."""
    count = _count(metadata, field)
    if count != expected:
        raise _wrong(f"it has {count} {what} in place of {expected}")
    start = _target(metadata, field) + _UNSIGNED.size
    return struct.unpack_from(f"<{2 * count}q", metadata, start)
