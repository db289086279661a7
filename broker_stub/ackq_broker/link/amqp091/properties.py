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
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pamqp import commands, encode

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

# Of a header's name; the library cuts a longer one.
_NAME_BYTES: Final = 128
# A short string has 255 bytes, and a character has 4 at most.
_SHORT_CHARACTERS: Final = 63
# Headers by which RabbitMQ routes.
_LISTS: Final = frozenset({"CC", "BCC"})

Properties = commands.Basic.Properties


def _table_value(
    value: Any, of_library: Callable[[Any], bytes] = encode.encode_table_value
) -> bytes:
    """A value of a field table: a float as a double, of which the library keeps 32 bits."""
    return b"d" + encode.double(value) if isinstance(value, float) else of_library(value)


encode.encode_table_value = _table_value


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


def from_rows(
    rows: pa.RecordBatch, message_ids: Sequence[str]
) -> Iterable[Properties | ValueError]:
    """The properties of delivered rows, each with the message id that it is published under.

    A row that AMQP cannot carry gives the error in their place, before anything of it is sent:
    where the library fails to encode a message, it has counted that as published.
    """
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
        texts_of_row = (message_id, correlation_id, reply_to, content_type)
        try:
            table, extra = _table(pairs) if pairs else (None, {})
            made = Properties(
                message_id=message_id,
                correlation_id=correlation_id,
                reply_to=reply_to,
                content_type=content_type,
                headers=table,
                timestamp=time,
                delivery_mode=_PERSISTENT,
                **extra,
            )
            if pairs or time is not None or any(map(_may_be_long, texts_of_row)):
                _check_table(table or {}, extra)
                made.marshal()
        except Exception as error:  # noqa: BLE001 - whatever the library makes of a value
            yield ValueError(f"{type(error).__name__}: {error}")
        else:
            yield made


def _may_be_long(text: str | None) -> bool:
    """Whether a text may have more bytes than a short string takes."""
    return text is not None and len(text) > _SHORT_CHARACTERS


def _check_table(table: dict[str, Any], extra: dict[str, Any]) -> None:
    """Refuses what the library cuts without a word, and what RabbitMQ closes the channel for."""
    for name in table:
        if len(name.encode()) > _NAME_BYTES:
            raise ValueError(f"the header name '{name[:32]}...' has over {_NAME_BYTES} bytes")
    for name in _LISTS & table.keys():
        if not isinstance(table[name], list):
            raise TypeError(f"the header '{name}' is no list of routing keys")
    expiration = extra.get("expiration")
    if expiration is not None and not (isinstance(expiration, str) and expiration.isdecimal()):
        raise ValueError(f"the expiration {expiration!r} is no number of milliseconds")


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
            pairs.append((name, _json(value)))
            coded.append(name)
    if coded or EXTRA_HEADER in table:
        extra = {**extra, _JSON_HEADERS: sorted(coded)}
    if extra:
        # A header of that name, which came through a link before, is replaced.
        pairs = [pair for pair in pairs if pair[0] != EXTRA_HEADER]
        pairs.append((EXTRA_HEADER, _json(extra)))
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


def _json(value: object) -> str:
    """A value as JSON, the same for equal tables: a broker may order the fields otherwise (L3)."""
    return json.dumps(_escaped(value), default=_encoded, sort_keys=True)


def _escaped(value: object) -> object:
    """A value in which no table of one field looks like what `_encoded` gives."""
    if isinstance(value, dict):
        only = next(iter(value)) if len(value) == 1 else ""
        mark = "!" if str(only).startswith("!") else ""
        return {f"{mark}{name}": _escaped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value


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
        if kind.startswith("!!"):
            return {kind[1:]: text}
        if kind == "!bytes":
            return bytearray(base64.b64decode(text))  # the library writes no bytes
        if kind == "!timestamp":
            return datetime.fromtimestamp(text, UTC)
        if kind == "!decimal":
            return Decimal(text)
        if kind == "!text":
            return text
    return value


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
