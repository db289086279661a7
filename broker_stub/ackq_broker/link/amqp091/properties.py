"""AMQP properties and headers as the product's message columns, and back, one to one.

| AMQP | column |
|---|---|
| message_id, correlation_id, reply_to, content_type | the same |
| timestamp (seconds) | published_at |
| a header that is a text | the header |
| headers of the delivery: x-delivery-count, x-acquired-count | none |
| a header of another type | the header, as JSON; its name is in `amqp-properties` |
| content_encoding, expiration, priority, type, user_id, app_id | in the header `amqp-properties` |

`amqp-properties` is a JSON object, and absent where it would be empty. Neither delivery_mode nor
expiration rule a message here: all are stored persistent, and none expires by what it says there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pamqp import commands

from ackq.wire.columns import HEADERS, TIMESTAMP

EXTRA_HEADER: Final = "amqp-properties"
_JSON_HEADERS: Final = "json-headers"
_TEXTS: Final = ("message_id", "correlation_id", "reply_to", "content_type")
# Properties without a column: their name in `amqp-properties`, and in the client library.
_EXTRAS: Final = {
    "content_encoding": "content_encoding",
    "expiration": "expiration",
    "priority": "priority",
    "type": "message_type",
    "user_id": "user_id",
    "app_id": "app_id",
}
_PERSISTENT: Final = 2
# Not the sender's to say: a broker refuses a message that names another user.
_NOT_SENT: Final = frozenset({"user_id"})
# Of the delivery, not of the message: a quorum queue adds them.
_DELIVERY_COUNT: Final = "x-delivery-count"
_OF_DELIVERY: Final = frozenset({_DELIVERY_COUNT, "x-acquired-count"})

Properties = commands.Basic.Properties


def to_rows(bodies: Sequence[bytes], properties: Sequence[Properties]) -> pa.RecordBatch:
    """Messages as the columns to publish; those that no message uses are left out."""
    columns: dict[str, pa.Array] = {"body": pa.array(bodies, pa.binary())}
    for name in _TEXTS:
        texts = [getattr(each, name) for each in properties]
        if any(text is not None for text in texts):
            columns[name] = pa.array(texts, pa.string())
    headers = [_of_message(each.headers) for each in properties]
    extras = _extras(properties)
    if extras or any(headers):
        pairs = [_headers(table, extras.get(row, {})) for row, table in enumerate(headers)]
        columns["headers"] = pa.array(pairs, HEADERS)
    times = [each.timestamp for each in properties]
    if any(time is not None for time in times):
        columns["published_at"] = pa.array(list(map(_utc, times)), TIMESTAMP)
    return pa.RecordBatch.from_pydict(columns)


def from_rows(rows: pa.RecordBatch, message_ids: Sequence[str]) -> Iterable[Properties]:
    """The properties of delivered rows, each with the message id that it is published under."""
    names = set(rows.schema.names)
    empty = [None] * rows.num_rows
    texts = [
        rows.column(name).to_pylist() if name in names else empty
        for name in _TEXTS
        if name != "message_id"
    ]
    headers = rows.column("headers").to_pylist() if "headers" in names else empty
    times = rows.column("published_at").to_pylist() if "published_at" in names else empty
    for message_id, correlation_id, reply_to, content_type, pairs, time in zip(
        message_ids, *texts, headers, times, strict=True
    ):
        table, extra = _table(pairs) if pairs else (None, {})
        yield Properties(
            message_id=message_id,
            correlation_id=correlation_id,
            reply_to=reply_to,
            content_type=content_type,
            headers=table,
            timestamp=time,
            delivery_mode=_PERSISTENT,
            **extra,
        )


def delivery_counts(properties: Sequence[Properties]) -> Sequence[int]:
    """How often each was delivered before, which only quorum queues tell; empty: none is told."""
    counts = [(each.headers or {}).get(_DELIVERY_COUNT) for each in properties]
    if all(count is None for count in counts):
        return ()
    return [count if isinstance(count, int) else 0 for count in counts]


def _of_message(table: dict[str, Any] | None) -> dict[str, Any]:
    if not table:
        return {}
    return {name: value for name, value in table.items() if name not in _OF_DELIVERY}


def _extras(properties: Sequence[Properties]) -> dict[int, dict[str, Any]]:
    """The properties without a column, by row; only rows that have one."""
    found: dict[int, dict[str, Any]] = {}
    for name, attribute in _EXTRAS.items():
        for row, each in enumerate(properties):
            value = getattr(each, attribute)
            if value is not None:
                found.setdefault(row, {})[name] = value
    return found


def _headers(table: dict[str, Any], extra: dict[str, Any]) -> list[tuple[str, str]]:
    """A field table as text headers; `extra` gets the names of those that are JSON."""
    pairs = []
    coded = []
    for name, value in table.items():
        if isinstance(value, str):
            pairs.append((name, value))
        else:
            pairs.append((name, json.dumps(value, default=_encoded)))
            coded.append(name)
    if coded or EXTRA_HEADER in table:
        extra = {**extra, _JSON_HEADERS: coded}
    if extra:
        # A header of that name, which came through a link before, is replaced.
        pairs = [pair for pair in pairs if pair[0] != EXTRA_HEADER]
        pairs.append((EXTRA_HEADER, json.dumps(extra, default=_encoded)))
    return pairs


def _table(pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The field table of text headers, and the properties that are among them."""
    table: dict[str, Any] = dict(pairs)
    text = table.pop(EXTRA_HEADER, None)
    if text is None:
        return table, {}
    try:
        extra = dict(json.loads(text))
        coded = {
            name: json.loads(table[name], object_hook=_decoded)
            for name in extra.get(_JSON_HEADERS, ())
        }
        properties = {
            attribute: extra[name]
            for name, attribute in _EXTRAS.items()
            if name in extra and name not in _NOT_SENT
        }
    except (ValueError, KeyError, TypeError):
        return dict(pairs), {}
    if not extra:  # as above, an application's own header of that name
        return dict(pairs), {}
    return {**table, **coded} or None, properties


def _encoded(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, bytes | bytearray):
        return {"!bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return {"!timestamp": int(value.timestamp())}
    if isinstance(value, Decimal):
        return {"!decimal": str(value)}
    return {"!text": str(value)}


def _decoded(value: dict[str, Any]) -> object:
    if len(value) == 1:
        ((kind, text),) = value.items()
        if kind == "!bytes":
            return base64.b64decode(text)
        if kind == "!timestamp":
            return datetime.fromtimestamp(text, UTC)
        if kind == "!decimal":
            return Decimal(text)
        if kind == "!text":
            return text
    return value


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
