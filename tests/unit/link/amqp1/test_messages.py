"""AMQP 1.0 messages as columns, and back."""

import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.optional import needs

needs("proton", "amqp1")
pytestmark = pytest.mark.servers

import proton  # noqa: E402

from ackq_link.amqp1 import sections  # noqa: E402
from ackq_link.amqp1.messages import (  # noqa: E402
    DUPLICATE_ID,
    EXTRA_HEADER,
    Incoming,
    Outgoing,
    duplicate_id,
    to_rows,
)
from ackq_link.keys import KeyRule, fingerprints  # noqa: E402

FULL = {
    "id": "m",
    "correlation_id": uuid.UUID(int=3),
    "reply_to": "r",
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "subject": "order",
    "group_id": "g",
    "group_sequence": 3,
    "reply_to_group_id": "rg",
    "priority": 7,
    "ttl": 60,
    "creation_time": 1_000_000.125,
    "expiry_time": 2_000_000.5,
    "annotations": {proton.symbol("x-opt-jms-msg-type"): proton.byte(3), proton.symbol("x"): "y"},
    "properties": {"text": "t", "int": proton.int32(5), "none": None, "symbol": proton.symbol("s")},
}


COUNTS = ("x-delivery-count", "x-acquired-count")


def message(body=b"x", *, inferred=True, **properties):
    made = proton.Message(body=body, inferred=inferred, durable=True)
    for name, value in properties.items():
        setattr(made, name, value)
    return bytes(made.encode())


def there_and_back(*raw):
    rows = to_rows([Incoming(each) for each in raw])
    ids = rows.column("message_id").to_pylist()
    outgoing = Outgoing(rows, ids, duplicate_ids=False)
    return [outgoing.encoded(row) for row in range(rows.num_rows)]


def test_everything_comes_back():
    """A message comes back byte for byte: texts are columns and headers, the rest is kept."""
    raw = message(b"body", **FULL)
    assert there_and_back(raw) == [raw]
    row = to_rows([Incoming(raw)]).to_pylist()[0]
    assert (row["body"], row["message_id"], row["reply_to"]) == (b"body", "m", "r")
    assert row["correlation_id"] == str(uuid.UUID(int=3))
    assert row["published_at"] == datetime(1970, 1, 12, 13, 46, 40, 125_000, UTC)
    headers = dict(row["headers"])
    assert (headers["text"], headers["int"], headers["symbol"]) == ("t", "5", "s")
    assert '"expiration": "60000"' in headers[EXTRA_HEADER]


BODIES = [(b"data", True), (["a", proton.uint(1)], True), ("text", False), (b"binary", False)]
BODIES += [({"a": [1.5, b"b"]}, False), (proton.int32(5), False)]


@pytest.mark.parametrize("made", ["text", proton.ulong(2**63), uuid.UUID(int=9), b"\x00\xff"])
@pytest.mark.parametrize(("body", "inferred"), BODIES)
def test_ids_and_bodies(made, body, inferred):
    """Each type of id and each kind of body comes back; L3: a text body is the text."""
    raw = message(body, inferred=inferred, id=made)
    assert there_and_back(raw) == [raw]
    if isinstance(body, str):
        assert Incoming(raw).body == b"text"


PROPERTIES = b"\0Ss"
FOOTER = b"\x00\x53\x78\xc1\x01\x00"


def test_what_a_delivery_changes_is_not_kept():
    """L3: delivery count, the rest of the ttl, annotations on the way, and the order of properties
    do not count.
    """
    lock = {proton.symbol("x-opt-lock"): "a"}
    received = dict.fromkeys(map(proton.symbol, ("x-opt-received", *COUNTS)), 5)
    kept = {"id": "1", "priority": 7}
    first = message(properties={"a": "1", "b": proton.int32(2)}, ttl=60, **kept)
    added = {"delivery_count": 3, "ttl": 59.5, "instructions": lock, "annotations": received}
    again = message(properties={"b": proton.int32(2), "a": "1"}, **added, **kept)
    prints = [fingerprints(to_rows([Incoming(each)], lasting=True)) for each in (first, again)]
    assert prints[0] == prints[1]
    assert (Incoming(first).delivery_count, Incoming(again).delivery_count) == (0, 3)


@pytest.mark.parametrize("others", [{}, {proton.symbol("x-opt-exchange"): "e"}])
def test_what_a_delivery_changes_of_a_message_kept_whole(others):
    """L3: RabbitMQ's counts of deliveries are not kept, nor a section that has nothing else."""
    first, again = (
        Incoming(message(id="1", annotations={**counts, **others} or None) + FOOTER)
        for counts in ({}, {proton.symbol(COUNTS[0]): 1, proton.symbol(COUNTS[1]): 2})
    )
    assert first.body == again.body
    assert first.headers == again.headers


@pytest.mark.parametrize(
    "raw",
    [
        message(id="1") + FOOTER,
        message(id="1").replace(PROPERTIES, b"\0Sr\xc1\x05\2\xa3\1aA" + PROPERTIES) + FOOTER,
        message(proton.Described(proton.symbol("a"), 1), inferred=False, id="1"),
        message(id="1", properties={"a": proton.Described(proton.ulong(5), "b")}),
    ],
    ids=["footer", "annotations in a small map", "described", "described property"],
)
def test_what_has_no_form_here(raw):
    """L2, L23: kept whole together with its id, and sent out unchanged under that id."""
    kept = Incoming(raw)
    assert dict(kept.headers)[EXTRA_HEADER] == '{"body": "message"}'
    assert kept.texts == {"message_id": "1"}
    rows = to_rows([kept])
    assert KeyRule().of(rows).content is None
    assert Outgoing(rows, ["1"], duplicate_ids=False).encoded(0) == raw
    sent = Outgoing(rows, ["1"], duplicate_ids=True).encoded(0)
    pairs = rows.column("headers").to_pylist()[0]
    assert sent == sections.with_property(raw, DUPLICATE_ID, duplicate_id("1", kept.body, pairs))


HALF = b"\x73\x00\x00\xd8\x00"  # a char, half of a surrogate pair
BODY = b"\x00\x53\x75\xa0\x01x"


def with_half(place):
    """A message with the id `1` and the half at a place of its properties, or in a header."""
    if place is None:
        pair = b"\xa1\x01a" + HALF
        return message(id="1").removesuffix(BODY) + b"\x00\x53\x74\xc1\x09\x02" + pair + BODY
    items = [b"\xa1\x011", *[b"\x40"] * 6]
    items[place] = HALF
    listed = b"".join(items)
    return b"\x00\x53\x73\xc0" + bytes((len(listed) + 1, len(items))) + listed + BODY


@pytest.mark.parametrize("place", [None, 0, 4, 5, 6])
def test_a_char_that_is_no_text(place):
    """L13: half of a surrogate pair as a property ends no link; the message is kept whole."""
    raw = with_half(place)
    rows = to_rows([Incoming(raw)])
    assert set(rows.schema.names) == {"body", "headers"} | ({"message_id"} if place != 0 else set())
    assert Outgoing(rows, ["1"], duplicate_ids=False).encoded(0).endswith(raw)


@pytest.mark.parametrize("properties", [None, {"a": "b"}, {f"n{n}": "x" * 50 for n in range(20)}])
def test_one_more_application_property(properties):
    """The library reads the added property, after none, a short map and a long one."""
    raw = message(b"x", id="1", properties=properties)
    read = proton.Message()
    read.decode(sections.with_property(raw, "name", "text"))
    assert read.properties == {**(properties or {}), "name": "text"}
    assert (read.id, read.body) == ("1", b"x")


def rows_with(headers):
    return pa.RecordBatch.from_pydict(
        {"body": [b"x"], "headers": pa.array([headers], pa.map_(pa.string(), pa.string()))}
    )


def sent(headers, **keys):
    encoded = Outgoing(rows_with(headers), ["m"], **{"duplicate_ids": False, **keys}).encoded(0)
    back = proton.Message()
    back.decode(encoded)
    return back


@pytest.mark.parametrize(
    "text", ["no JSON", "{}", "[]", '{"json-headers": ["none"]}', '{"types": {"a": "int"}}']
)
def test_an_applications_own_header(text):
    """An application's own header of the extra header's name stays a header."""
    back = sent([("a", "b"), (EXTRA_HEADER, text)])
    assert back.properties == {"a": "b", EXTRA_HEADER: text}


@pytest.mark.parametrize("text", [None, "three", str(2**40), "[" * 100_000])
def test_a_changed_property_that_is_no_text(text):
    """L13, L22: removed, or changed to what its type does not have, it costs nothing else."""
    pairs = Incoming(message("text", inferred=False, **FULL)).headers
    changed = [(name, text if name == "int" else value) for name, value in pairs]
    back = sent([pair for pair in changed if pair[1] is not None])
    properties = {name: value for name, value in FULL["properties"].items() if name != "int"}
    assert back.properties == properties | ({"int": text} if text else {})
    assert (back.subject, back.priority, back.content_encoding) == ("order", 7, "gzip")
    assert back.body == "x"


def test_a_header_added_to_a_message_kept_whole():
    """L22: an application's header goes out as a property of a message that came whole."""
    raw = message(id="1", properties={"a": "b"}) + FOOTER
    pairs = [*Incoming(raw).headers, ("n", "1")]
    rows = rows_with(pairs).set_column(0, "body", pa.array([raw]))
    back = proton.Message()
    back.decode(Outgoing(rows, ["1"], duplicate_ids=False).encoded(0))
    assert back.properties == {"a": "b", "n": "1"}


@pytest.mark.parametrize("footer", [b"", FOOTER], ids=["plain", "whole"])
def test_the_kind_of_its_destination(footer):
    """L22: what says of which kind its destination was is not sent: Artemis drops a message of a
    topic at a queue.
    """
    dest = {proton.symbol("x-opt-jms-dest"): proton.byte(1)}
    for others in ({}, {proton.symbol("x-opt-jms-msg-type"): proton.byte(3)}):
        raw, without = (
            message(id="1", annotations={**each, **others} or None) for each in (dest, {})
        )
        assert there_and_back(raw + footer) == there_and_back(without + footer)
        assert b"x-opt-jms-dest" not in there_and_back(raw + footer)[0]


def test_what_came_by_amqp_0_9_1():
    """Properties of both protocols are restored; the others stay in the header."""
    extra = '{"expiration": "5000", "type": "t", "app_id": "app", "json-headers": ["n"]}'
    back = sent([("n", "5"), (EXTRA_HEADER, extra)])
    assert (back.ttl, back.subject) == (5, "t")
    assert back.properties == {"n": 5, EXTRA_HEADER: '{"app_id": "app"}'}
    again = Incoming(bytes(back.encode()))
    assert '"app_id": "app"' in dict(again.headers)[EXTRA_HEADER]


def test_what_cannot_be_carried():
    """L22: a row that cannot be encoded fails by itself."""
    rows = rows_with([(EXTRA_HEADER, '{"body": "value"}')])
    with pytest.raises(ValueError, match="Expecting"):
        Outgoing(rows, ["m"], duplicate_ids=False).encoded(0)
