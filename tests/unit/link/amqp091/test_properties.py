"""AMQP properties as columns, and back."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode, encode

from ackq.wire.columns import HEADERS
from ackq_broker.link.amqp091.properties import EXTRA_HEADER, Properties, from_rows, to_rows
from ackq_broker.link.keys import fingerprints

TIME = datetime(2026, 11, 22, 10, 20, 30, tzinfo=UTC)
FULL = {
    "message_id": "m",
    "correlation_id": "c",
    "reply_to": "r",
    "content_type": "text/plain",
    "headers": {
        "text": "t",
        "whole": 5,
        "real": 0.5,
        "yes": True,
        "none": None,
        "bytes": b"\xff\x00",
        "time": TIME,
        "decimal": Decimal("1.5"),
        "table": {"a": [1, "b", {"c": b"\xfe"}]},
    },
    "timestamp": TIME,
    "content_encoding": "gzip",
    "expiration": "60000",
    "priority": 3,
    "message_type": "order",
    "app_id": "app",
}


def there_and_back(*properties):
    rows = to_rows([b"x"] * len(properties), properties)
    ids = rows.column("message_id").to_pylist()
    return list(from_rows(rows, ids))


def test_everything_comes_back():
    """What came in by one link goes out by another as it was."""
    (back,) = there_and_back(Properties(**FULL))
    assert {name: getattr(back, name) for name in FULL} == FULL
    assert back.delivery_mode == 2


def test_rows_keep_their_own():
    """Beside one that has everything, one that has an id alone."""
    back = there_and_back(Properties(**FULL), Properties(message_id="n"))[1]
    assert back.message_id == "n"
    assert (back.correlation_id, back.headers, back.priority, back.timestamp) == (None,) * 4


def test_the_columns_that_are_used():
    """A body alone is a column alone; text headers are the product's headers."""
    assert to_rows([b"a"], [Properties()]).schema.names == ["body"]
    rows = to_rows([b"a"], [Properties(headers={"k": "v"}, delivery_mode=1)])
    assert rows.schema.names == ["body", "headers"]
    assert rows.column("headers").to_pylist() == [[("k", "v")]]


def test_headers_of_the_delivery():
    """A quorum queue adds them, and a redelivery changes them: they are not the message's."""
    rows = to_rows([b"a"], [Properties(headers={"x-delivery-count": 1, "x-acquired-count": 2})])
    assert rows.schema.names == ["body"]


def test_nothing_expires_here_by_what_it_says_there():
    """L13: an expiration is carried, and rules nothing; a transient message is stored to stay."""
    rows = to_rows([b"a"], [Properties(expiration="1", delivery_mode=1)])
    assert set(rows.schema.names) == {"body", "headers"}


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"json-headers": ["x"]}', '"a"'])
def test_a_header_of_that_name_that_is_no_ours(text):
    """An application's own text goes out as it is, and fails nothing."""
    rows = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"a"]),
            "headers": pa.array([[(EXTRA_HEADER, text)]], pa.map_(pa.string(), pa.string())),
        }
    )
    (properties,) = from_rows(rows, ["m"])
    assert properties.headers == {EXTRA_HEADER: text}


def test_a_header_of_that_name_does_not_double():
    """One that came from a link before is replaced, not added to."""
    rows = to_rows([b"a"], [Properties(priority=2, headers={EXTRA_HEADER: '{"priority": 9}'})])
    assert [name for name, _ in rows.column("headers").to_pylist()[0]] == [EXTRA_HEADER]


def test_a_user_is_not_sent():
    """A broker refuses what names another user than the link's."""
    rows = to_rows([b"a"], [Properties(user_id="bob", message_id="m")])
    (properties,) = from_rows(rows, ["m"])
    assert properties.user_id is None


VALUES = st.recursive(
    st.one_of(
        st.text(max_size=4),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.booleans(),
        st.none(),
        st.binary(max_size=4).map(bytearray),
        st.decimals(0, 99, places=2),
        st.just(TIME),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "!bytes", "!text", "!!a"]), inner, max_size=3),
    ),
    max_leaves=6,
)
TABLES = st.dictionaries(st.sampled_from("abcde"), VALUES, max_size=4)
MESSAGES = st.fixed_dictionaries(
    {"message_id": st.one_of(st.none(), st.text(max_size=3))},
    optional={
        "headers": TABLES,
        "priority": st.integers(0, 9),
        "message_type": st.text(max_size=3),
        "app_id": st.text(max_size=3),
        "correlation_id": st.text(max_size=3),
        "timestamp": st.just(TIME),
    },
)


def reordered(value, draw):
    """An equal value whose tables have their fields in another order, at each depth."""
    if isinstance(value, dict):
        names = draw(st.permutations(sorted(value)))
        return {name: reordered(value[name], draw) for name in names}
    if isinstance(value, list):
        return [reordered(each, draw) for each in value]
    return value


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_a_fingerprint_is_of_the_message_alone(messages, data):
    """L3: not of its batch, the order of its fields or how often it was delivered."""
    rows = to_rows([b"x"] * len(messages), [Properties(**each) for each in messages])
    for message, found in zip(messages, fingerprints(rows), strict=True):
        counted = {"x-delivery-count": 3, "x-acquired-count": 4}
        headers = reordered({**message.get("headers", {}), **counted}, data.draw)
        again = Properties(**{**message, "headers": headers})
        assert fingerprints(to_rows([b"x"], [again])) == [found]


@given(TABLES)
def test_headers_come_back(headers):
    """What the library decoded is what it is given to encode, of the same types."""
    (back,) = there_and_back(Properties(message_id="m", headers=headers))
    assert (back.headers or {}) == headers
    assert typed(back.headers or {}) == typed(headers)
    back.marshal()


def typed(value):
    """The types in a value."""
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else type(value)


def rows_with(**columns):
    """Rows whose `headers` are lists of pairs, beside one that has nothing to refuse."""
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
        (extra('{"json-headers":["h"]}', ("h", '{"!decimal":"x"}')), "InvalidOperation"),
        (extra('{"json-headers":["h"]}', ("h", '{"!timestamp":1e300}')), "OverflowError"),
        (extra('{"json-headers":["h"]}', ("h", "[" * 100_000)), "RecursionError"),
        (extra('{"priority":3000}'), "error"),
        (extra('{"priority":"3"}'), "TypeError"),
        (extra('{"expiration":"60s"}'), "expiration '60s'"),
        ({"headers": [("CC", "key")]}, "'CC' is no list"),
        ({"headers": [("n" * 129, "x")]}, "over 128 bytes"),
        ({"correlation_id": "x" * 256}, "255"),
        ({"reply_to": "\u20ac" * 90}, "255"),
    ],
)
def test_what_cannot_be_encoded_is_refused_by_itself(columns, told):
    """L22: before anything of it is sent; the row beside it goes out."""
    refused, sent = from_rows(rows_with(**columns), ["1", "2"])
    assert isinstance(refused, ValueError)
    assert told in str(refused)
    assert sent.message_id == "2"


def test_a_double_is_sent_as_a_double():
    """The library writes 32 bits of it."""
    (back,) = there_and_back(Properties(message_id="m", headers={"x": 1.1, "y": [1.1]}))
    _, table = decode.field_table(encode.field_table(back.headers))
    assert table == {"x": 1.1, "y": [1.1]}
