"""AMQP 0-9-1 properties as columns, and back, as bytes of the wire."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from ackq.wire.columns import HEADERS
from ackq_link.amqp091 import fields
from ackq_link.amqp091.properties import (
    EXTRA_HEADER,
    Properties,
    delivery_counts,
    from_rows,
    to_rows,
)
from ackq_link.keys import fingerprints
from tests.unit.link.amqp091.wire import MESSAGES, message, reordered, same, sent, table_of

TIME = datetime(2026, 11, 22, 10, 20, 30, tzinfo=UTC)


def there_and_back(*properties):
    rows = to_rows([b"x"] * len(properties), properties)
    return list(from_rows(rows, [each.message_id or "given" for each in properties]))


def read(properties):
    """Decodes properties as a client that uses the library does."""
    made = commands.Basic.Properties()
    made.unmarshal(int.from_bytes(properties.wire[:2]), properties.wire[2:])
    return made


def test_what_a_reader_of_json_finds():
    """Numbers of any width are JSON numbers; other types are named."""
    headers = {"n": 5, "x-death": [{"count": 1, "time": TIME}]}
    (pairs,) = to_rows([b"a"], [sent(headers=headers)]).column("headers").to_pylist()
    assert dict(pairs)["n"] == "5"
    assert dict(pairs)["x-death"] == '[{"count": 1, "time": {"!timestamp": 1795342830}}]'


def test_headers_of_the_delivery():
    """L13: delivery counts that a quorum queue adds are no part of the message's columns."""
    counted = sent(headers={"x-delivery-count": 1, "x-acquired-count": 2})
    assert to_rows([b"a"], [counted]).schema.names == ["body"]
    made = to_rows([b"a"], [sent(headers={"k": "v"}, delivery_mode=1)])
    assert made.to_pylist() == [{"body": b"a", "headers": [("k", "v")]}]
    assert delivery_counts([sent(), counted]) == [0, 1]
    assert delivery_counts([sent(), sent(headers={"a": 1})]) == ()


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"json-headers": ["x"]}', '"a"'])
def test_a_header_of_that_name_that_is_no_ours(text):
    """An application's own header of the extra header's name goes out unchanged."""
    rows = rows_with(headers=[(EXTRA_HEADER, text)])
    properties, _ = from_rows(rows, ["m", "n"])
    assert read(properties).headers == {EXTRA_HEADER: text}


def test_a_time_that_an_application_set_goes_out():
    """A `published_at` set by the application replaces the original timestamp."""
    rows = to_rows([b"x"], [message(message_id=b"m", timestamp=1_732_500_000_000_000)])
    times = pa.array([TIME], rows.schema.field("published_at").type)
    rows = rows.set_column(rows.schema.get_field_index("published_at"), "published_at", times)
    (back,) = from_rows(rows, ["m"])
    assert read(back).timestamp == TIME


@pytest.mark.parametrize("change", [{"a": "c"}, {"n": "1"}, {"a": None}])
def test_changed_headers_go_out(change):
    """L22: what an application changed, added or removed goes out, also where the whole table is
    kept.
    """
    table = [(b"a", b"S\0\0\0\1b"), (b"i", b"b\5"), (b"\xff", b"b\1")]
    rows = to_rows([b"x"], [message(headers=fields.join(table)[4:])])
    (pairs,) = rows.column("headers").to_pylist()
    changed = {name: text for name, text in {**dict(pairs), **change}.items() if text is not None}
    rows = rows.set_column(1, "headers", pa.array([list(changed.items())], HEADERS))
    (back,) = from_rows(rows, ["m"])
    del changed[EXTRA_HEADER]
    assert read(back).headers == {**changed, "i": 5}


NO_VALUES = ["three", "200", '{"!decimal":"x"}', '{"!timestamp":1e300}', "[" * 100_000]


@pytest.mark.parametrize(
    ("text", "out"), [(None, {}), ("5", {"n": 5}), *((text, {"n": text}) for text in NO_VALUES)]
)
def test_a_changed_header_that_is_no_text(text, out):
    """L13, L22: removed, or changed to what its type does not have, it costs nothing else."""
    noted = {"priority": 7, "expiration": b"60000", "type": b"T", "app_id": b"A"}
    table = table_of(n=b"b\3", flag=b"t\1", **{"x-death": b"A\0\0\0\0"})
    (pairs,) = to_rows([b"x"], [message(headers=table, **noted)]).column("headers").to_pylist()
    changed = {**dict(pairs), "n": text}
    pairs = [(name, value) for name, value in changed.items() if value is not None]
    back, _ = from_rows(rows_with(headers=pairs), ["m", "n"])
    made = read(back)
    assert made.headers == {"flag": True, "x-death": [], **out}
    assert (made.priority, made.expiration) == (7, "60000")
    assert (made.message_type, made.app_id) == ("T", "A")


@pytest.mark.parametrize("before", [[], [(b"ackq-dead-queue", b"S\0\0\0\1p")]])
def test_a_dead_letter_keeps_its_headers(before):
    """L13: those that the local broker adds go out beside the whole table that came."""
    table = [(b"a", b"S\0\0\0\1b"), (b"\xff", b"b\1")]
    rows = to_rows([b"x"], [message(headers=fields.join(table + before)[4:])])
    (pairs,) = rows.column("headers").to_pylist()
    died = list({**dict(pairs), "ackq-dead-queue": "q"}.items())
    (back,) = from_rows(rows.set_column(1, "headers", pa.array([died], HEADERS)), ["m"])
    more = [(b"ackq-dead-queue", b"S\0\0\0\1q")]
    expected = message(message_id=b"m", delivery_mode=2, headers=fields.join(table + more)[4:])
    assert back.wire == expected.wire


def test_ids_that_are_not_utf8_are_told_apart():
    """L2, L22: ids that are not UTF-8 have distinct, stable texts, and go out unchanged.

    A message's id is that of its return, also where its headers are gone.
    """
    ids = [b"\xff", b"\xfe", b"!bytes:/w=="]
    rows = to_rows([b"x"] * 3, [message(message_id=each) for each in ids])
    texts = rows.column("message_id").to_pylist()
    assert len(set(texts)) == len(ids)
    assert [each.wire for each in from_rows(rows, texts)] == [
        message(message_id=each, delivery_mode=2).wire for each in ids
    ]
    for out in from_rows(rows.select(["body", "message_id"]), texts):
        assert out.message_id == Properties(out.wire).message_id


@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_a_message_is_the_same_behind_two_links(messages):
    """L13: equal byte for byte, except for the entries of the guarantee table."""
    for one, back in zip(messages, there_and_back(*messages), strict=True):
        assert same(one, back)


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_a_fingerprint_is_of_the_message_alone(messages, data):
    """L3: independent of the batch, the order of fields and the delivery count."""
    rows = to_rows([b"x"] * len(messages), messages)
    for one, found in zip(messages, fingerprints(rows), strict=True):
        again = reordered(one, data.draw, counted=True)
        assert fingerprints(to_rows([b"x"], [again])) == [found]


def rows_with(**columns):
    """Rows with these columns, followed by a row without anything to refuse."""
    arrays = {
        name: pa.array([value, None], HEADERS if name == "headers" else pa.string())
        for name, value in columns.items()
    }
    return pa.RecordBatch.from_pydict({"body": pa.array([b"", b""]), **arrays})


def extra(text, *pairs):
    return {"headers": [*pairs, (EXTRA_HEADER, text)]}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (extra('{"priority":3000}'), "error"),
        (extra('{"priority":"3"}'), "error"),
        (extra('{"priority":3,"table":"AA=="}'), "ValueError"),
        (extra('{"malformed":"AA=="}'), "malformed"),
        (extra('{"expiration":"60s"}'), "expiration '60s'"),
        (extra('{"expiration":"4294967296"}'), "no number of milliseconds"),
        ({"headers": [("CC", "key")]}, "'CC' is no list"),
        ({"headers": [("n" * 256, "x")]}, "over 255 bytes"),
        ({"correlation_id": "x" * 256}, "255"),
        ({"reply_to": "\u20ac" * 90}, "255"),
    ],
)
def test_what_cannot_be_encoded_is_refused_by_itself(columns, told):
    """L22: the row is refused before it is sent, and the next row goes out."""
    refused, sent = from_rows(rows_with(**columns), ["1", "2"])
    assert isinstance(refused, ValueError)
    assert told in str(refused)
    assert sent.message_id == "2"
