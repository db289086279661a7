"""AMQP properties as columns, and back."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from ackq_broker.link.amqp091.properties import EXTRA_HEADER, Properties, from_rows, to_rows

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
