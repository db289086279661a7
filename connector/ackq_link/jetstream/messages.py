"""NATS messages as the product's message columns, and back.

| NATS | column |
|---|---|
| subject | routing_key; one over its limit is in the header `nats-subject` |
| headers Nats-Msg-Id, Content-Type, Correlation-Id, Reply-To | message_id, content_type, correlation_id, reply_to |
| another header | the header |
| headers with two of one name, that are not UTF-8, or written in another way than here | also whole in `nats-headers`, in base64 |
| the time at which the stream stored it | published_at; the stream that it goes out to has its own |

Headers that begin with `Nats-` are orders to a server (`Nats-Rollup` empties a stream): they are
kept, and but for the id not sent.
"""  # noqa: E501 - a table

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from ackq import limits
from ackq.wire.columns import HEADERS, TIMESTAMP
from ackq_link.adapter import BROKER_HEADERS

MESSAGE_ID: Final = "Nats-Msg-Id"
_COLUMNS: Final = {
    MESSAGE_ID: "message_id",
    "Content-Type": "content_type",
    "Correlation-Id": "correlation_id",
    "Reply-To": "reply_to",
}
_WHOLE: Final = "nats-headers"
_SUBJECT: Final = "nats-subject"
_ORDER: Final = "nats-"
_START: Final = b"NATS/1.0\r\n"
_END: Final = "\r\n"
# What a header's name, its value and a subject cannot have.
_NAME: Final = re.compile(r"[^\x21-\x39\x3b-\x7e]")
_VALUE: Final = re.compile(r"[\r\n]")
_PLACE: Final = re.compile(r"[\s*>]|^\.|\.\.|\.$")
# With it and the address of the answer a line has the 4,096 bytes that a server takes by default.
_MOST_BYTES: Final = 4_000
# The servers' own subjects: by a request to one of them ($JS.API.) a stream is deleted.
_RESERVED: Final = re.compile(r"\$|_INBOX(\.|$)")


def to_rows(
    subjects: Sequence[bytes], headers: Sequence[bytes], bodies: Sequence[bytes], ns: Sequence[int]
) -> pa.RecordBatch:
    """Messages as the columns to publish; columns that no message uses are left out.

    Args:
        subjects: The subject of each.
        headers: The header block of each; empty: none.
        bodies: The body of each.
        ns: The time at which the stream stored each, in ns since 1970.
    """
    columns: dict[str, list[str | None]] = {}
    tables: list[list[tuple[str, str]]] = []
    for row, block in enumerate(headers):
        pairs = [] if not block else list(_pairs(block))
        table = [pair for pair in pairs if pair[0] not in _COLUMNS]
        if len(table) < len(pairs):
            for name, value in pairs:
                if name in _COLUMNS:
                    column = columns.setdefault(_COLUMNS[name], [None] * len(headers))
                    column[row] = value
        tables.append(table)
    keys = []
    for subject, table in zip(subjects, tables, strict=True):
        key = subject.decode(errors="replace")
        if len(subject) > limits.MAX_ROUTING_KEY_BYTES:
            table.append((_SUBJECT, key))
            key = ""
        keys.append(key)
    arrays = {"body": pa.array(bodies, pa.binary()), "routing_key": pa.array(keys, pa.string())}
    arrays |= {name: pa.array(column, pa.string()) for name, column in columns.items()}
    if any(tables):
        arrays["headers"] = pa.array(tables, HEADERS)
    times = pa.array([each // 1_000 for each in ns], pa.int64()).cast(TIMESTAMP)
    return pa.RecordBatch.from_pydict({**arrays, "published_at": times})


def _pairs(block: bytes) -> Iterator[tuple[str, str]]:
    """The headers of a block; also whole, where they are not all that it says."""
    text = block.decode(errors="replace")
    pairs: dict[str, str] = {}
    for line in text.split(_END)[1:]:
        name, colon, value = line.partition(":")
        if colon:
            pairs.setdefault(name, value.strip(" \t"))
    yield from pairs.items()
    if encoded(pairs.items()) != block:
        yield _WHOLE, base64.b64encode(block).decode()


def encoded(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Headers as a block."""
    lines = "".join(f"{name}: {value}{_END}" for name, value in pairs)
    return _START + (lines + _END).encode(errors="surrogateescape")


def subjects(rows: pa.RecordBatch, subject: str) -> list[str]:
    """The subject of each row: the given one, or that which it has itself."""
    if subject:
        return [subject] * rows.num_rows
    keys: list[str] = rows.column("routing_key").to_pylist()
    if "headers" in rows.schema.names and not all(keys):
        tables = rows.column("headers").to_pylist()
        keys = [
            key or dict(table or ()).get(_SUBJECT, "")
            for key, table in zip(keys, tables, strict=True)
        ]
    return keys


def from_rows(rows: pa.RecordBatch, ids: Sequence[str]) -> Iterator[bytes | ValueError]:
    """The header block of each row, with its id; an error for one that NATS cannot carry."""
    fields = {
        header: rows.column(name).to_pylist()
        for header, name in _COLUMNS.items()
        if header != MESSAGE_ID and name in rows.schema.names
    }
    tables = [None] * rows.num_rows
    if "headers" in rows.schema.names:
        tables = rows.column("headers").to_pylist()
    for row, (message_id, table) in enumerate(zip(ids, tables, strict=True)):
        pairs = [(MESSAGE_ID, message_id)]
        pairs += [(name, column[row]) for name, column in fields.items() if column[row] is not None]
        try:
            yield _checked(pairs + _sent(table or ()))
        except ValueError as error:
            yield error


def _sent(table: Sequence[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """The headers of a row that are sent: where they are those that came, in the kept block.

    Those of the local broker come last.
    """
    kept = {_WHOLE, _SUBJECT}
    pairs = [(name, value or "") for name, value in table if name not in kept]
    own = [pair for pair in pairs if not pair[0].startswith(BROKER_HEADERS)]
    more = [pair for pair in pairs if pair[0].startswith(BROKER_HEADERS)]
    whole = next((value for name, value in table if name == _WHOLE), None)
    if whole:
        block = base64.b64decode(whole, validate=True)
        left_out = kept | _COLUMNS.keys()
        came = [
            pair
            for pair in _pairs(block)
            if pair[0] not in left_out and not pair[0].startswith(BROKER_HEADERS)
        ]
        if sorted(came) == sorted(own):  # else an application has changed them since
            lines = block.decode(errors="surrogateescape").split(_END)[1:]
            parts = [line.partition(":") for line in lines if line]
            own = [
                (name, value.removeprefix(" "))
                for name, _, value in parts
                if name not in _COLUMNS and not name.startswith(BROKER_HEADERS)
            ]
    return [pair for pair in own + more if not pair[0].lower().startswith(_ORDER)]


def _checked(pairs: list[tuple[str, str]]) -> bytes:
    for name, value in pairs:
        if not name or _NAME.search(name):
            raise ValueError(f"a header's name is {name!r}")
        if _VALUE.search(value):
            raise ValueError(f"the header {name!r} has a line break")
    return encoded(pairs)


def subject_flaw(subject: str, own: Iterable[str]) -> str:
    """Why a text is no subject to publish to; empty: it is one.

    Args:
        subject: The text.
        own: The subjects of the stream: one of the servers' own must be among them, by its name, as
            `$KV.orders.>` is of the bucket `orders`.
    """
    if not subject or _PLACE.search(subject):
        return f"its subject is {subject!r}, which cannot be published to"
    if (size := len(subject.encode())) > _MOST_BYTES:
        return f"its subject has {size} bytes; a server takes about {_MOST_BYTES}"
    if _RESERVED.match(subject):
        name = subject.partition(".")[0]
        if not any(each.partition(".")[0] == name and takes(each, subject) for each in own):
            return f"its subject is {subject!r}, one of the servers' own, not of the stream"
    return ""


def takes(pattern: str, subject: str) -> bool:
    """Whether a stream's subject, which may have wildcards, is that of a message."""
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == ">" and len(words) >= len(wanted):
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    return len(wanted) == len(words) and all(
        each in ("*", word) for each, word in zip(wanted, words, strict=True)
    )
