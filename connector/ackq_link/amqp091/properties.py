"""AMQP properties and headers as the product's message columns, and back, byte for byte.

| AMQP | column |
|---|---|
| message_id, correlation_id, reply_to, content_type | the same; one that is not UTF-8 in base64, one that is empty in `amqp-properties` |
| timestamp (seconds) | published_at; one that no calendar has, also in `amqp-properties` |
| a header that is a text | the header |
| headers of the delivery: x-delivery-count, x-acquired-count | none |
| a header of another type | the header, as JSON; its name, and the types of its numbers, are in `amqp-properties` |
| content_encoding, expiration, priority, type, user_id, app_id, cluster_id | in the header `amqp-properties` |
| headers with two of one name, a name that is not UTF-8, or too deep for JSON | also whole in `amqp-properties` |
| delivery_mode | none: all are stored persistent, and go out so |

`amqp-properties` is a JSON object, and absent where it would be empty. An expiration is kept as data
and has no effect at the edge. An empty table of headers counts as none: a quorum queue adds
`x-delivery-count` to either.
"""  # noqa: E501 - a table

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pamqp.header import ContentHeader

from ackq.limits import MAX_PUBLISHED_AT_US, MIN_PUBLISHED_AT_US
from ackq.wire.columns import HEADERS, TIMESTAMP
from ackq_link.adapter import BROKER_HEADERS
from ackq_link.amqp091 import fields

EXTRA_HEADER: Final = "amqp-properties"
_JSON_HEADERS: Final = "json-headers"
_TYPES: Final = "field-types"
_TABLE: Final = "table"
_MALFORMED: Final = "malformed"
_TEXTS: Final = ("message_id", "correlation_id", "reply_to", "content_type")
_TEXT: Final = "text"
# In the order of their flags, from the highest.
_KINDS: Final = {
    "content_type": _TEXT, "content_encoding": _TEXT, "headers": _TABLE, "delivery_mode": ">B",
    "priority": ">B", "correlation_id": _TEXT, "reply_to": _TEXT, "expiration": _TEXT,
    "message_id": _TEXT, "timestamp": ">q", "type": _TEXT, "user_id": _TEXT, "app_id": _TEXT,
    "cluster_id": _TEXT,
}  # fmt: skip
# The properties without a column.
_EXTRAS: Final = _KINDS.keys() - {*_TEXTS, "headers", "delivery_mode", "timestamp"}
_FLAGS: Final = [(name, kind, 1 << (15 - at)) for at, (name, kind) in enumerate(_KINDS.items())]
_MORE_FLAGS: Final = 1
_SIZES: Final = {">B": 1, ">q": 8, _TEXT: 1, _TABLE: 4}  # of texts and tables: of their length
_SIZED: Final = {_TEXT, _TABLE}
_PERSISTENT: Final = 2
# Never sent: a broker refuses a message that names another user.
_NOT_SENT: Final = "user_id"
# Headers of the delivery, not of the message: a quorum queue adds them.
_DELIVERY_COUNT: Final = b"x-delivery-count"
_OF_DELIVERY: Final = frozenset({_DELIVERY_COUNT, b"x-acquired-count"})

_SHORT_BYTES: Final = 255
_MAX_EXPIRATION_MS: Final = 2**32 - 1
# Headers by which RabbitMQ routes.
_LISTS: Final = frozenset({b"CC", b"BCC"})
# The prefix of the base64 of a text that is not UTF-8.
_MARK: Final = "!bytes:"

# The start of a content header: class, weight, size of the body.
_HEADER_START: Final = struct.Struct(">HHQ")


class Properties:
    """Flags and properties as they are on the wire, in place of the library's class.

    The library changes some values when it decodes them, and treats a value that it cannot decode
    as a broken connection.
    """

    __slots__ = ("_message_id", "wire")

    def __init__(self, wire: bytes, message_id: str | None = None) -> None:
        self.wire = wire
        self._message_id = message_id

    @property
    def message_id(self) -> str | None:
        """The message id as in its column; the library reads it of sent and returned messages."""
        if self._message_id is None:
            raw = _unpacked(self.wire).get("message_id")
            self._message_id = _shown(raw) if raw else None
        return self._message_id

    def marshal(self) -> bytes:
        """The bytes that the library sends."""
        return self.wire


def _keep(header: ContentHeader, data: bytes) -> None:
    """Reads a content header; keeps its properties undecoded."""
    header.class_id, header.weight, header.body_size = _HEADER_START.unpack_from(data)
    header.properties = Properties(data[_HEADER_START.size :])  # type: ignore[assignment]


ContentHeader.unmarshal = _keep  # type: ignore[method-assign, assignment]


def to_rows(bodies: Sequence[bytes], properties: Sequence[Properties]) -> pa.RecordBatch:
    """Messages as the columns to publish; columns that no message uses are left out."""
    columns: dict[str, pa.Array] = {"body": pa.array(bodies, pa.binary())}
    unpacked = [_unpacked(each.wire) for each in properties]
    extras: dict[int, dict[str, Any]] = {}
    for name in _TEXTS:
        texts = [each.get(name) for each in unpacked]
        if any(texts) or b"" in texts:
            columns[name] = _column(name, texts, extras)
    pairs = [_pairs(each, extras.get(row, {})) for row, each in enumerate(unpacked)]
    if any(pairs):
        columns["headers"] = pa.array(pairs, HEADERS)
    times = [each.get("timestamp") for each in unpacked]
    if any(time is not None for time in times):
        columns["published_at"] = pa.array(
            [None if time is None else _time_us(time) for time in times], pa.int64()
        ).cast(TIMESTAMP)
    return pa.RecordBatch.from_pydict({name: columns[name] for name in _ORDER if name in columns})


_ORDER: Final = ("body", *_TEXTS, "headers", "published_at")


def delivery_counts(properties: Sequence[Properties]) -> Sequence[int]:
    """The header x-delivery-count of each message, else 0; empty where no message has it."""
    counts = [_delivery_count(_table_of(each)) for each in properties]
    if all(count is None for count in counts):
        return ()
    return [count or 0 for count in counts]


def from_rows(
    rows: pa.RecordBatch, message_ids: Sequence[str]
) -> Iterable[Properties | ValueError]:
    """The properties of delivered rows, each with the message id that it is published under.

    A row that AMQP cannot carry gives an error instead of properties, before any of it is sent.
    """
    columns = [_values(rows, name) for name in ("headers", "published_at", *_TEXTS[1:])]
    for message_id, pairs, time, *texts in zip(message_ids, *columns, strict=True):
        try:
            table, extra = _table(pairs) if pairs else (None, {})
            values = {name: _sent(extra[name]) for name in _EXTRAS & extra.keys()}
            for name, text in zip(_TEXTS, (message_id, *texts), strict=True):
                values[name] = _raw(name, text, extra)
            values |= {"headers": table, "timestamp": _seconds(time, extra)}
            values["delivery_mode"] = _PERSISTENT
            _check_expiration(values.get("expiration"))
            made = Properties(_pack(values), _shown(values["message_id"]))
        except Exception as error:  # noqa: BLE001 - whatever a value is, it is this row's alone
            yield ValueError(f"{type(error).__name__}: {error}")
        else:
            yield made


def _values(rows: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column, a time in microseconds; None for each row of a missing column."""
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    column = rows.column(name)
    found: list[Any] = (column.cast(pa.int64()) if name == "published_at" else column).to_pylist()
    return found


# --- the wire ---


def _unpacked(wire: bytes) -> dict[str, Any]:
    """Properties by name: texts and tables as bytes, others as numbers; malformed ones whole."""
    found: dict[str, Any] = {}
    flags, at = int.from_bytes(wire[:2]), 2
    for name, kind, flag in _FLAGS:
        if not flags & flag:
            continue
        begin = at + _SIZES[kind]
        if kind in _SIZED:
            at = begin + int.from_bytes(wire[at:begin])
            found[name] = wire[begin:at]
        else:
            found[name] = int.from_bytes(wire[at:begin], signed=kind == ">q")
            at = begin
    if at != len(wire) or flags & _MORE_FLAGS:
        return {_MALFORMED: wire}
    return found


def _pack(values: dict[str, Any]) -> bytes:
    """Encodes properties, the reverse of `_unpacked`; a table has its length before it."""
    flags, parts = 0, []
    for name, kind, flag in _FLAGS:
        value = values.get(name)
        if value is None:
            continue
        flags |= flag
        if kind == _TEXT:
            if len(value) > _SHORT_BYTES:
                raise ValueError(f"its {name} has {len(value)} bytes; AMQP takes {_SHORT_BYTES}")
            parts.append(bytes((len(value),)) + value)
        elif kind == _TABLE:
            parts.append(value)
        else:
            parts.append(struct.pack(kind, value))
    return flags.to_bytes(2) + b"".join(parts)


# --- in ---


def _column(name: str, texts: list[bytes | None], extras: dict[int, dict[str, Any]]) -> pa.Array:
    """A column of texts; notes in `extras` the texts that a column cannot hold as they are."""
    try:
        column = pa.array([text or None for text in texts], pa.binary()).cast(pa.string())
        plain = b"" not in texts and not pc.any(pc.starts_with(column, _MARK)).as_py()
    except pa.ArrowInvalid:
        column = pa.array([_shown(text) if text else None for text in texts], pa.string())
        plain = False
    for row, text in enumerate(texts if not plain else ()):
        # A message with an empty id has none, and gets one when it is published.
        if text is not None and (_is_marked(text) if text else name != "message_id"):
            extras.setdefault(row, {})[name] = _json_text(text)
    return column


def _pairs(unpacked: dict[str, Any], extra: dict[str, Any]) -> list[tuple[str, str]]:
    """The headers of a message as texts, with `amqp-properties` for all that has no column."""
    for name in unpacked.keys() & _EXTRAS:
        value = unpacked[name]
        extra[name] = _json_text(value) if isinstance(value, bytes) else value
    time = unpacked.get("timestamp", 0)
    if _time_us(time) != time * 10**6:
        extra["timestamp"] = time
    if _MALFORMED in unpacked:
        extra[_MALFORMED] = _base64(unpacked[_MALFORMED])
    pairs = _headers(unpacked.get("headers", b""), extra)
    return [*pairs, (EXTRA_HEADER, json.dumps(extra, sort_keys=True))] if extra else pairs


def _headers(table: bytes, extra: dict[str, Any]) -> list[tuple[str, str]]:
    """A field table as text headers; notes in `extra` what the texts do not carry."""
    pairs: dict[str, str] = {}
    types = {}
    try:
        found = [field for field in fields.split(table) if field[0] not in _OF_DELIVERY]
    except ValueError:
        extra[_TABLE] = _base64(fields.canonical(table))
        return []
    for raw, value in found:
        try:
            name = raw.decode()
            decoded, letters = fields.decode(value)
            text = decoded if isinstance(decoded, str) else json.dumps(decoded)
        except (ValueError, RecursionError):
            continue
        if name in pairs or name == EXTRA_HEADER:
            continue
        pairs[name] = text
        if text is not decoded:
            extra.setdefault(_JSON_HEADERS, []).append(name)
        if letters:
            types[name] = letters
    if types:
        extra[_TYPES] = types
    if len(pairs) < len(found):
        extra[_TABLE] = _base64(fields.canonical(fields.join(found)[4:]))
    if _JSON_HEADERS in extra:
        extra[_JSON_HEADERS].sort()
    return list(pairs.items())


def _table_of(properties: Properties) -> bytes:
    table: bytes = _unpacked(properties.wire).get("headers", b"")
    return table


def _delivery_count(table: bytes) -> int | None:
    try:
        count = dict(fields.split(table)).get(_DELIVERY_COUNT)
        number = fields.decode(count)[0] if count is not None else None
    except ValueError:
        return None
    return number if isinstance(number, int) else None


def _time_us(time: int) -> int:
    """Microseconds of a timestamp in seconds; some senders use milliseconds or finer units."""
    time_us = time * 10**6
    while not MIN_PUBLISHED_AT_US <= time_us <= MAX_PUBLISHED_AT_US:
        time_us //= 1000
    return time_us


def _shown(text: bytes) -> str:
    """A text as its column shows it: itself, or its base64 after the mark if it needs one."""
    return _MARK + _base64(text) if _is_marked(text) else text.decode()


def _is_marked(text: bytes) -> bool:
    """Whether a text needs the mark: it is not UTF-8, or begins with the mark itself."""
    try:
        return text.decode().startswith(_MARK)
    except UnicodeDecodeError:
        return True


def _json_text(text: bytes) -> object:
    """A text as a JSON value: a string, or an object with base64 if it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"!bytes": _base64(text)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# --- out ---


def _table(pairs: Sequence[tuple[str, str]]) -> tuple[bytes | None, dict[str, Any]]:
    """The field table of text headers, and the properties noted in `amqp-properties`."""
    texts = dict(pairs)
    noted = texts.pop(EXTRA_HEADER, None)
    extra = _noted(noted, texts) if noted is not None else {}
    if not extra:  # none, or an application's own header of that name
        texts = dict(pairs)
    if _MALFORMED in extra:
        raise ValueError("its properties came malformed")
    extra.pop(_NOT_SENT, None)
    kept = base64.b64decode(extra[_TABLE]) if _TABLE in extra else None
    if kept is not None and int.from_bytes(kept[:4]) != len(kept) - 4:
        raise ValueError("its headers came cut")
    own = _without_brokers(texts)
    if kept is not None and _without_brokers(dict(_headers(kept[4:], {}))) == own:
        more = [(n.encode(), fields.encode(texts[n])) for n in texts.keys() - own.keys()]
        table = kept
        if more:
            brokers = tuple(each.encode() for each in BROKER_HEADERS)
            came = [each for each in fields.split(kept[4:]) if not each[0].startswith(brokers)]
            table = fields.join([*came, *sorted(more)])
    elif texts:  # also where an application has changed them since
        coded, types = extra.get(_JSON_HEADERS, ()), extra.get(_TYPES, {})
        table = fields.join(
            [
                (
                    fields.check_name(name.encode()),
                    _decoded(name, text, types) if name in coded else fields.encode(text),
                )
                for name, text in texts.items()
            ]
        )
    else:
        return None, extra
    _check_lists(table)
    return table, extra


def _without_brokers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if not name.startswith(BROKER_HEADERS)}


def _noted(text: str, headers: dict[str, str]) -> dict[str, Any]:
    """The content of `amqp-properties`; empty: it is an application's own text.

    An application may have removed headers that it names since.
    """
    try:
        extra = dict(json.loads(text))
        coded = any(name in headers for name in extra.get(_JSON_HEADERS, ()))
    except (ValueError, TypeError, RecursionError):
        return {}
    return extra if coded or extra.keys() - {_JSON_HEADERS} else {}


def _decoded(name: str, text: str, types: Mapping[str, str]) -> bytes:
    """The field of a header that is no text; a text, if an application has made it one since."""
    try:
        return fields.encode(json.loads(text), types.get(name, ""))
    except Exception:  # noqa: BLE001 - whatever the new text is
        return fields.encode(text)


def _check_lists(table: bytes) -> None:
    """Raises ValueError for a `CC` or `BCC` header that RabbitMQ would close the channel for."""
    for name, value in fields.split(table[4:]):
        if name in _LISTS:
            keys = fields.decode(value)[0]
            if not isinstance(keys, list) or not all(isinstance(each, str) for each in keys):
                raise ValueError(f"the header '{name.decode()}' is no list of routing keys")


def _check_expiration(text: bytes | None) -> None:
    if text is not None and not (text.isdigit() and int(text) <= _MAX_EXPIRATION_MS):
        raise ValueError(f"the expiration {text.decode()!r} is no number of milliseconds")


def _raw(name: str, text: str | None, extra: dict[str, Any]) -> bytes | None:
    """The bytes of a text property: as noted when it came in, or from its column."""
    noted = extra.get(name)
    if noted is None:
        return None if text is None else text.encode()
    raw: bytes = _sent(noted)
    unchanged = (text or "") == (_shown(raw) if raw else "")
    return raw if unchanged else (text or "").encode()  # an application has changed it since


def _sent(noted: Any) -> Any:
    """The value of a noted property: a text as bytes, or a number."""
    if isinstance(noted, dict):
        return base64.b64decode(noted["!bytes"])
    return noted.encode() if isinstance(noted, str) else noted


def _seconds(time_us: int | None, extra: dict[str, Any]) -> int | None:
    noted = extra.get("timestamp")
    if isinstance(noted, int) and _time_us(noted) == time_us:
        return noted
    return None if time_us is None else time_us // 10**6
