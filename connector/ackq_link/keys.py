"""The origin key of each message of a link: its id, or a fingerprint of its content. Rules L2 - L4.

Invariant: the key of a message is the same at each delivery, in each version and on each machine;
another delivery of it must not change the rows that are given (L3), which is the adapters' part.

A fingerprint is blake2b with 16 bytes over all columns of a row, each with its length before it, so
that no two rows have the same text. The texts are joined by Arrow, a column at a time; the hash is
a call of C for each row. Measured at 100 bytes, keys and checks together, on a quiet core: 1.1 us a
row with an id, 1.3 with two headers as well, 0.6 without an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackq.errors import InvalidArgumentError
from ackq.wire.columns import PUBLISHABLE
from ackq_link.adapter import Positions

_KEY_BYTES: Final = 16
_CHECK_BYTES: Final = 8
_HEADER: Final = "header:"
_HEADERS: Final = "headers"
# The length of a missing column; no real length has this text.
_ABSENT: Final = "-"


class MessageKeys(NamedTuple):
    """Origin keys and fingerprint checks of rows.

    Attributes:
        keys: 16 bytes a row; zeros: none.
        checks: 8 bytes a row, of its fingerprint (L4).
        content: Per row, whether its key is of its content; None: no row's is.
        without_id: The number of rows without an id, keyed by fingerprint although ids were
            configured.
    """

    keys: bytes
    checks: bytes
    content: list[bool] | None
    without_id: int


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The rule that chooses the origin key of a message (L2).

    Args:
        text: `auto` and `message_id`: its id, and for a message without one its fingerprint;
            `header:NAME`: that header, likewise; `fingerprint`; `none`; `position` (L30).
    """

    text: str = "auto"

    POSITION: ClassVar[str] = "position"

    def __post_init__(self) -> None:
        plain = {"auto", "message_id", "fingerprint", "none", self.POSITION}
        if self.text not in plain and not (self.text.startswith(_HEADER) and self.header):
            raise InvalidArgumentError(
                f"key is {self.text!r}; it is auto, message_id, header:NAME, fingerprint, none or"
                " position."
            )

    @property
    def header(self) -> str:
        """The name of the header that has the id; empty: the rule uses no header."""
        return self.text.removeprefix(_HEADER) if self.text.startswith(_HEADER) else ""

    @property
    def name(self) -> str:
        """The name of the rule; `auto` and `message_id` are one rule."""
        return "message_id" if self.text == "auto" else self.text

    @property
    def is_none(self) -> bool:
        """Whether the rule gives no message a key."""
        return self.text == "none"

    @property
    def is_content(self) -> bool:
        """Whether the rule keys all messages by their fingerprints."""
        return self.text == "fingerprint"

    @property
    def is_position(self) -> bool:
        """Whether the rule keys all messages by their positions at the remote broker (L30)."""
        return self.text == self.POSITION

    def of(self, rows: pa.RecordBatch, positions: Positions | None = None) -> MessageKeys:
        """The keys of rows with columns of `PUBLISHABLE`, and their positions, if they have any."""
        if self.is_position:
            assert positions is not None, "the source numbers its messages"
            return MessageKeys(*positions, None, 0)
        count = rows.num_rows
        prints = fingerprints(rows)
        checks = b"".join([each[:_CHECK_BYTES] for each in prints])
        if self.is_none:
            return MessageKeys(bytes(_KEY_BYTES * count), checks, None, 0)
        if self.is_content:
            return MessageKeys(b"".join(prints), checks, [True] * count, 0)
        ids = self._ids(rows)
        if ids is None:
            return MessageKeys(b"".join(prints), checks, [True] * count, count)
        if all(ids):
            return MessageKeys(b"".join(map(_id_key, ids)), checks, None, 0)
        keys = [_id_key(each) if each else of_row for each, of_row in zip(ids, prints, strict=True)]
        content = [not each for each in ids]
        return MessageKeys(b"".join(keys), checks, content, sum(content))

    def _ids(self, rows: pa.RecordBatch) -> list[bytes | None] | None:
        """The id of each row; None: no row has one."""
        if self.header:
            if _HEADERS not in rows.schema.names:
                return None
            column = pc.map_lookup(rows.column(_HEADERS), self.header, "first")
        elif "message_id" in rows.schema.names:
            column = rows.column("message_id")
        else:
            return None
        if column.null_count == len(column):
            return None
        ids: list[bytes | None] = column.cast(pa.binary()).to_pylist()
        return ids


def fingerprints(rows: pa.RecordBatch) -> list[bytes]:
    """The fingerprint of each row: a hash of 16 bytes over all its columns."""
    return [blake2b(each, digest_size=_KEY_BYTES).digest() for each in _texts(rows).to_pylist()]


def _id_key(text: bytes | None) -> bytes:
    assert text
    # Another hash function than for content: an id with the text of a row never has the row's key.
    return blake2b(text, digest_size=_KEY_BYTES, person=b"id").digest()


def _texts(rows: pa.RecordBatch) -> pa.Array:
    """Each row as one text that is unique to its content.

    The lengths of its columns, in the order of `PUBLISHABLE`, then their values.
    """
    lengths, parts = [], []
    for name in PUBLISHABLE:
        if name not in rows.schema.names:
            lengths.append(pa.array(repeat(_ABSENT, rows.num_rows), pa.string()))
            continue
        column = rows.column(name)
        if name == _HEADERS:
            column = _joined_headers(column)
        part = _as_binary(column)
        parts.append(part)
        lengths.append(_length(part))
    head = pc.binary_join_element_wise(*lengths, ";", ",").cast(pa.binary())
    return pc.binary_join_element_wise(
        head, *parts, b"", null_handling="replace", null_replacement=b""
    )


def _as_binary(column: pa.Array) -> pa.Array:
    """A column cast to binary texts."""
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _joined_headers(column: pa.MapArray) -> pa.Array:
    """The headers of each row as a text, sorted by name; null where the row has none.

    A row without headers has an empty map or null, depending on the other rows of its batch.
    """
    if column.offset:
        column = pa.concat_arrays([column])
    counts = np.diff(np.asarray(column.offsets))
    names, values = column.keys, column.items
    if (counts > 1).any():
        rows = pa.array(np.repeat(np.arange(len(counts)), counts))
        order = pc.sort_indices(
            pa.table({"row": rows, "name": names}),
            sort_keys=[("row", "ascending"), ("name", "ascending")],
        )
        names, values = names.take(order), values.take(order)
    entries = pc.binary_join_element_wise(
        _length(names),
        _length(values),
        names,
        values,
        ",",
        null_handling="replace",
        null_replacement="",
    )
    lists = pa.ListArray.from_arrays(column.offsets, entries)
    return pc.if_else(pa.array(counts > 0), pc.binary_join(lists, ";"), None)


def _length(texts: pa.Array) -> pa.Array:
    """The length of each text in bytes, as a text; `_ABSENT` for null."""
    return pc.fill_null(pc.binary_length(texts).cast(pa.string()), _ABSENT)
