"""JSON lines as messages: valid properties, and errors of invalid lines."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.cli.json_lines import properties
from ackq.cli.output import plain_row
from ackq.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "line", [b'{"body_base64": "//4="}', b'{"body": "//4=", "body_encoding": "base64"}']
)
def test_a_body_of_bytes(line):
    """Both forms of a base64 body: as documented, and as a consumer prints it."""
    assert properties(line) == {"body": b"\xff\xfe"}


@given(st.binary())
def test_a_consumed_line_is_published_as_it_was(body):
    """A consumed line can be published; fields of the delivery are left out."""
    delivered = {
        "body": body,
        "routing_key": "q",
        "message_id": None,
        "headers": [("k", "v"), ("null", None)],
        "queue": "q",
        "delivery_tag": 7,
        "redelivered": True,
        "delivery_count": 2,
        "expires_at": None,
        "persistent": True,
        "published_at": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
    }
    line = json.dumps({"version": 1, **plain_row(delivered)}).encode()
    assert properties(line) == {
        "body": body,
        "routing_key": "q",
        "headers": {"k": "v", "null": None},
        "persistent": True,
        "published_at": delivered["published_at"],
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "The line is not JSON at column 2; write {"),
        (b"\xff", "The line is not UTF-8 at byte 1; write {"),
        (b'{"body": "a", "ttl_ms": ' + b"9" * 5000 + b"}", "a number has too many digits"),
        (b'{"body": "\\ud800"}', "'body' is not text"),
        (b'{"body": null}', "'body' is missing"),
        (b'{"body": {"a": 1}}', "'body' is {\"a\": 1}; it must be a string"),
        (b'{"body": "a", "body_base64": "YQ=="}', "give one of the two"),
        (b'{"body_base64": "?"}', "'body_base64' is not base64"),
        (b'{"body": "a", "mesage_id": "1"}', "'mesage_id' is unknown; a line may have body"),
        (b'{"body": "a", "headers": ["k"]}', "'headers' is [\"k\"]; it must be an object"),
        (b'{"body": "a", "ttl_ms": "5"}', "'ttl_ms' is \"5\"; it must be a whole number"),
        (b'{"body": "a", "published_at": "now"}', "'published_at' is not a time"),
        (b'{"body": "a", "published_at": "2013-01-01"}', "'published_at' has no time zone"),
    ],
)
def test_what_is_wrong_with_a_line(line, said):
    """The error names the field and what it must be."""
    with pytest.raises(InvalidArgumentError) as caught:
        properties(line)
    assert said in caught.value.message
