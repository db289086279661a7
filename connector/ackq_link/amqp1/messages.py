"""AMQP 1.0 messages as the product's message columns, and back, one to one.

| AMQP 1.0 | column |
|---|---|
| data sections, one after the other | body |
| message-id, correlation-id, reply-to, content-type | the same; the type of an id that is no text is in `amqp-properties` |
| creation-time | published_at |
| an application property that is a text | the header |
| one of another type | the header, as JSON; its type is in `amqp-properties` |
| a body that is a value or a sequence | body: a text or bytes as they are, else JSON; which is in `amqp-properties` |
| ttl, priority, subject, and the other properties | in the header `amqp-properties` |
| message annotations | in `amqp-properties`, but for x-opt- ones that are not of JMS; x-opt-jms-dest is not sent |
| durable, delivery-count, delivery annotations, RabbitMQ's counts among the annotations | none: of the delivery, or the same for all |
| a message with a footer, or with a type that has no form here | body: all of it but the header and these counts, encoded |

`amqp-properties` is a JSON object, with AMQP 0-9-1's names where that has the same property:
`expiration` for ttl, `type` for subject. All messages are stored persistent, and none expires by
its `expiration`.
"""  # noqa: E501 - a table

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import proton
import pyarrow as pa

from ackq import limits
from ackq.wire.columns import HEADERS, TIMESTAMP
from ackq_link.amqp1 import sections, typed
from ackq_link.amqp1.sections import Section

EXTRA_HEADER: Final = "amqp-properties"
# Artemis drops a message whose value of this property it remembers.
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
_JSON_HEADERS: Final = "json-headers"
_TYPES: Final = "types"
_BODY: Final = "body"
_ANNOTATIONS: Final = "annotations"
_EXPIRATION: Final = "expiration"
_EXPIRY: Final = "absolute_expiry_time"
_PRIORITY: Final = "priority"
_SEQUENCE, _VALUE, _TEXT, _BYTES, _WHOLE = "sequence", "value", "text", "bytes", "message"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Indices in the list of the properties section: properties with a column, and without one.
_COLUMNS: Final = {"message_id": 0, "reply_to": 4, "correlation_id": 5, "content_type": 6}
_CREATED: Final = 9
_PLACES: Final = {
    "user_id": 1,
    "to": 2,
    "type": 3,
    "content_encoding": 7,
    _EXPIRY: 8,
    "group_id": 10,
    "group_sequence": 11,
    "reply_to_group_id": 12,
}
_PROPERTIES: Final = 13
# Indices in the list of the header section.
_AT_PRIORITY, _AT_TTL, _AT_COUNT, _HEADER = 1, 2, 4, 5
# The properties that are sent, by the library's names. The user and the destination are the link's
# to set.
_SENT: Final = {
    "type": "subject",
    "content_encoding": "content_encoding",
    "group_id": "group_id",
    "group_sequence": "group_sequence",
    "reply_to_group_id": "reply_to_group_id",
}
_NOT_SENT: Final = ("user_id", "to")
_OF_DELIVERY: Final = (sections.HEADER, sections.DELIVERY_ANNOTATIONS)
# RabbitMQ's annotations that another delivery changes.
_COUNTS: Final = frozenset({"x-delivery-count", "x-acquired-count"})
# Whether a message's destination is a queue or a topic: at one of the other kind Artemis accepts
# and drops it.
_DESTINATION: Final = frozenset({"x-opt-jms-dest", "x-opt-routing-type"})
# Exceptions of the library for a value that it cannot read or write; some are assertions.
_UNREADABLE: Final = (
    proton.ProtonException,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    RecursionError,
)
_DURABLE: Final = b"\x00\x53\x70\xc0\x02\x01\x41"


class Incoming:
    """A received message, decoded into the values of its columns.

    Args:
        raw: The encoded message.

    Attributes:
        body: The value of the body column.
        texts: The values of the text columns, by name.
        headers: Its headers, in order.
        lasting: The headers without its ttl: that counts down at the broker (L3).
        created: Its creation time, if it has one.
        delivery_count: The number of earlier deliveries.
    """

    __slots__ = ("body", "created", "delivery_count", "headers", "lasting", "texts")

    def __init__(self, raw: bytes) -> None:
        self.texts: dict[str, str] = {}
        self.created: datetime | None = None
        self.delivery_count = 0
        try:
            self._read(raw, list(sections.split(raw)))
            self._check_texts()
        except _UNREADABLE:
            self._keep_whole(raw)

    def _read(self, raw: bytes, found: Sequence[Section]) -> None:
        extra: dict[str, Any] = {}
        application: Mapping[str, Any] = {}
        body: list[bytes] = []
        ttl: int | None = None
        for section in found:
            match section.code:
                case sections.DATA:
                    body.append(sections.binary(raw, section))
                case sections.HEADER:
                    ttl = self._read_header(_items(raw, section, _HEADER), extra)
                case sections.PROPERTIES:
                    self._read_properties(_items(raw, section, _PROPERTIES), extra)
                case sections.APPLICATION_PROPERTIES:
                    application = _value(raw, section)
                case sections.MESSAGE_ANNOTATIONS:
                    _read_annotations(_value(raw, section), extra)
                case sections.DELIVERY_ANNOTATIONS:
                    pass
                case sections.VALUE | sections.SEQUENCE if not body:
                    text, extra[_BODY] = _body(_value(raw, section), section.code)
                    body.append(text)
                case _:
                    raise ValueError("a section that has no field at the local broker")
        self.body = body[0] if len(body) == 1 else b"".join(body)
        self.headers = self.lasting = _headers(application, extra)
        if ttl is not None:
            self.headers = _headers(application, {**extra, _EXPIRATION: str(ttl)})

    def _read_header(self, items: Sequence[Any], extra: dict[str, Any]) -> int | None:
        self.delivery_count = int(items[_AT_COUNT] or 0)
        if items[_AT_PRIORITY] is not None:
            extra[_PRIORITY] = int(items[_AT_PRIORITY])
        return None if items[_AT_TTL] is None else int(items[_AT_TTL])

    def _read_properties(self, items: Sequence[Any], extra: dict[str, Any]) -> None:
        for name, place in _COLUMNS.items():
            value = items[place]
            if value is not None:
                self.texts[name], kind = _id_text(value)
                if kind:
                    extra[f"{name}_type"] = kind
        if items[_CREATED] is not None:
            created_us = 1000 * int(items[_CREATED])
            if not limits.MIN_PUBLISHED_AT_US <= created_us <= limits.MAX_PUBLISHED_AT_US:
                raise ValueError("a creation time that the local broker does not take")
            self.created = _EPOCH + timedelta(microseconds=created_us)
        for name, place in _PLACES.items():
            value = items[place]
            if value is not None:
                bare = str(value) if isinstance(value, str) else value
                extra[name] = int(bare) if type(bare) is proton.uint else typed.simple(bare)

    def _check_texts(self) -> None:
        """Raises ValueError if a text is not Unicode: a `char` may be half of a surrogate pair."""
        headers = [text for pair in self.headers for text in pair]
        "".join((*self.texts.values(), *headers)).encode()

    def _keep_whole(self, raw: bytes) -> None:
        """Keeps the message encoded, without the sections that a redelivery would change (L3).

        Its ids stay columns, so that its key is that of its id (L2); but for those without a text.
        """
        self.texts, self.created = {}, None
        start = 0
        with suppress(*_UNREADABLE):
            for section in sections.split(raw):
                if section.code in _OF_DELIVERY:
                    start = section.end
                elif section.code == sections.PROPERTIES:
                    items = _items(raw, section, _PROPERTIES)
                    self.texts = dict(_readable_ids(items))
        self.body = _without(raw[start:], _COUNTS)
        self.headers = self.lasting = [(EXTRA_HEADER, json.dumps({_BODY: _WHOLE}))]


def to_rows(messages: Sequence[Incoming], *, lasting: bool = False) -> pa.RecordBatch:
    """Messages as the columns to publish; columns that no message uses are left out.

    Args:
        messages: The messages.
        lasting: Leave out what another delivery of a message would change (L3).
    """
    columns: dict[str, pa.Array] = {"body": pa.array([each.body for each in messages], pa.binary())}
    for name in _COLUMNS:
        texts = [each.texts.get(name) for each in messages]
        if any(text is not None for text in texts):
            columns[name] = pa.array(texts, pa.string())
    headers = [each.lasting if lasting else each.headers for each in messages]
    if any(headers):
        columns["headers"] = pa.array(headers, HEADERS)
    times = [each.created for each in messages]
    if any(time is not None for time in times):
        columns["published_at"] = pa.array(times, TIMESTAMP)
    return pa.RecordBatch.from_pydict(columns)


class Outgoing:
    """Encodes delivered rows as AMQP 1.0 messages.

    Args:
        rows: The rows.
        ids: The message id of each.
        duplicate_ids: Whether each gets the id by which Artemis recognises a repetition (L23).
    """

    def __init__(self, rows: pa.RecordBatch, ids: Sequence[str], *, duplicate_ids: bool) -> None:
        names = set(rows.schema.names)
        empty = [None] * rows.num_rows

        def values(name: str) -> list[Any]:
            found: list[Any] = rows.column(name).to_pylist() if name in names else empty
            return found

        self._ids = ids
        self._bodies = values("body")
        self._correlation_ids = values("correlation_id")
        self._reply_tos = values("reply_to")
        self._content_types = values("content_type")
        self._headers = values("headers")
        self._times = values("published_at")
        self._duplicate_ids = duplicate_ids
        self._message = proton.Message()
        self._checked = proton.Data()

    def encoded(self, row: int) -> bytes:
        """The encoded message of a row. Raises ValueError for a row AMQP 1.0 cannot carry."""
        body: bytes = self._bodies[row] or b""
        pairs = self._headers[row] or ()
        try:
            application, extra = _application(pairs, self._checked)
        except _UNREADABLE as error:
            raise ValueError(str(error) or type(error).__name__) from error
        if extra == {_BODY: _WHOLE}:
            return _DURABLE + self._whole(row, body, pairs)
        message = self._message
        message.clear()
        try:
            message.durable = True
            message.id = _restored_id(self._ids[row], extra.get("message_id_type"))
            if self._correlation_ids[row] is not None:
                message.correlation_id = _restored_id(
                    self._correlation_ids[row], extra.get("correlation_id_type")
                )
            if self._reply_tos[row] is not None:
                message.reply_to = self._reply_tos[row]
            if self._content_types[row] is not None:
                message.content_type = self._content_types[row]
            if self._times[row] is not None:
                message.creation_time = self._times[row].timestamp()
            _set_extra(message, extra)
            _set_body(message, body, extra.get(_BODY))
            if self._duplicate_ids:
                application[DUPLICATE_ID] = duplicate_id(self._ids[row], body, pairs)
            message.properties = application or None
            return bytes(message.encode())
        except _UNREADABLE as error:
            raise ValueError(str(error) or type(error).__name__) from error

    def _whole(self, row: int, body: bytes, pairs: Sequence[tuple[str, str]]) -> bytes:
        """A message that was kept whole, with the headers that an application has added since."""
        added = [(name, text or "") for name, text in pairs if name != EXTRA_HEADER]
        if self._duplicate_ids:
            added.append((DUPLICATE_ID, duplicate_id(self._ids[row], body, pairs)))
        body = _without(body, _DESTINATION)
        with suppress(ValueError):  # bytes that are no message are sent as they came
            for name, text in added:
                body = sections.with_property(body, name, text)
        return body


def duplicate_id(message_id: str, body: bytes, headers: Sequence[tuple[str, str]]) -> str:
    """The id by which Artemis recognises a repetition: message id and hash of the content.

    Two messages with the same id and different content have different duplicate ids.
    """
    content = blake2b(body, digest_size=8)
    content.update(repr(headers).encode())
    return f"{message_id}:{content.hexdigest()}"


def _items(raw: bytes, section: Section, count: int) -> list[Any]:
    """The items of a list section, with None for those that it omits at its end."""
    found = _value(raw, section)
    if not isinstance(found, list):
        raise TypeError("a section that is no list")
    return found + [None] * (count - len(found))


def _value(raw: bytes, section: Section) -> Any:
    data = proton.Data()
    if data.decode(raw[section.value : section.end]) != section.end - section.value:
        raise ValueError("a value of another length than it says")
    data.rewind()
    data.next()
    return _owned(data.get_object())


def _owned(value: Any) -> Any:
    """A copy of a value without views of the library's memory, which ends with the decoder."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {_owned(key): _owned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_owned(each) for each in value]
    return value


def _read_annotations(annotations: Mapping[Any, Any], extra: dict[str, Any]) -> None:
    """Keeps a message's annotations, but for counts; of x-opt- ones, of brokers, only JMS's."""
    kept = {
        str(name): typed.simple(value)
        for name, value in annotations.items()
        if str(name).startswith("x-opt-jms-") or not str(name).startswith("x-opt-")
        if str(name) not in _COUNTS
    }
    if kept:
        extra[_ANNOTATIONS] = kept


def _without(raw: bytes, names: Container[str]) -> bytes:
    """An encoded message without these annotations; itself where they cannot be read."""
    with suppress(*_UNREADABLE):
        for section in sections.split(raw):
            if section.code == sections.MESSAGE_ANNOTATIONS:
                found = _value(raw, section)
                if not any(str(name) in names for name in found):
                    return raw
                kept = {name: value for name, value in found.items() if str(name) not in names}
                data = proton.Data()
                data.put_object(kept)
                made = raw[section.start : section.value] + data.encode() if kept else b""
                return raw[: section.start] + made + raw[section.end :]
    return raw


def _body(value: object, code: int) -> tuple[bytes, str]:
    if code == sections.SEQUENCE:
        return json.dumps(typed.simple(value)).encode(), _SEQUENCE
    if type(value) is str:
        return value.encode(), _TEXT
    if isinstance(value, bytes):
        return bytes(value), _BYTES
    return json.dumps(typed.simple(value)).encode(), _VALUE


def _id_text(value: object) -> tuple[str, str]:
    """An id as text, and the name of its type; empty: a text."""
    if isinstance(value, str):  # a symbol too
        return str(value), ""
    if isinstance(value, uuid.UUID):
        return str(value), "uuid"
    if isinstance(value, bytes):
        return bytes(value).hex(), "binary"
    if isinstance(value, int):
        return str(int(value)), "ulong"
    raise TypeError(f"an id of type {type(value).__name__}")


def _readable_ids(items: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The properties with a column, by name, of a message whose properties may be unreadable."""
    for name, place in _COLUMNS.items():
        with suppress(*_UNREADABLE):
            text, _ = _id_text(items[place])
            text.encode()
            yield name, text


def _restored_id(text: str, kind: object) -> Any:
    try:
        match kind:
            case "uuid":
                return uuid.UUID(text)
            case "binary":
                return bytes.fromhex(text)
            case "ulong":
                return proton.ulong(int(text))
    except ValueError:
        pass  # its id has changed since it came in
    return text


def _headers(application: Mapping[str, Any], extra: dict[str, Any]) -> list[tuple[str, str]]:
    """Application properties as text headers; `extra` gets the types of those that are no text."""
    pairs = []
    coded = []
    types = {}
    for name, value in application.items():
        text, kind = typed.encode(value)
        pairs.append((str(name), text))
        if kind == typed.TEXT:
            continue
        if typed.is_json(kind):
            coded.append(str(name))
        if kind != typed.JSON:
            types[str(name)] = kind
    if coded:
        extra[_JSON_HEADERS] = sorted(coded)
    if types:
        extra[_TYPES] = dict(sorted(types.items()))
    if EXTRA_HEADER in application:  # it came through a link before
        extra = {**_parsed(str(application[EXTRA_HEADER])), **extra}
        pairs = [pair for pair in pairs if pair[0] != EXTRA_HEADER]
    if extra:
        pairs.append((EXTRA_HEADER, json.dumps(extra)))
    return pairs


def _application(
    pairs: Sequence[tuple[str, str]], checked: proton.Data
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The application properties of text headers, and the noted properties among them.

    A header that an application has changed, and that its type does not have, goes out as a text.
    Noted properties without a field in AMQP 1.0 stay in their header.
    """
    table: dict[str, Any] = dict(pairs)
    text = table.pop(EXTRA_HEADER, None)
    if text is None:
        return table, {}
    extra = _parsed(text)
    types = extra.pop(_TYPES, {})
    coded = extra.pop(_JSON_HEADERS, ())
    try:
        named = {*coded, *types}
    except TypeError:
        return dict(pairs), {}
    ours = bool(extra) or not table.keys().isdisjoint(coded)
    for name in table.keys() & named:
        with suppress(*_UNREADABLE):
            value = typed.decode(table[name], types.get(name, typed.JSON))
            checked.clear()
            checked.put_object(value)
            table[name], ours = value, True
    if not ours:  # an application's own header of that name
        return dict(pairs), {}
    known = {*_SENT, *_NOT_SENT, _BODY, _ANNOTATIONS, _PRIORITY, _EXPIRATION, _EXPIRY}
    known |= {f"{name}_type" for name in _COLUMNS}
    left = {name: value for name, value in extra.items() if name not in known}
    if left:
        table[EXTRA_HEADER] = json.dumps(left)
    return table, extra


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _set_extra(message: proton.Message, extra: Mapping[str, Any]) -> None:
    for name, attribute in _SENT.items():
        if name in extra:
            setattr(message, attribute, typed.restore(extra[name]))
    if _PRIORITY in extra:
        message.priority = extra[_PRIORITY]
    if _EXPIRATION in extra:
        message.ttl = int(extra[_EXPIRATION]) / 1000
    if _EXPIRY in extra:
        message.expiry_time = typed.restore(extra[_EXPIRY]) / 1000
    annotations = {
        proton.symbol(name): typed.restore(value)
        for name, value in extra.get(_ANNOTATIONS, {}).items()
        if name not in _DESTINATION
    }
    if annotations:
        message.annotations = annotations


def _set_body(message: proton.Message, body: bytes, kind: object) -> None:
    message.inferred = kind not in {_VALUE, _TEXT, _BYTES}
    match kind:
        case "text":
            message.body = body.decode()
        case "value" | "sequence":
            message.body = typed.restore(json.loads(body))
        case _:
            message.body = body
