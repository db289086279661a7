"""NATS messages as columns, and back."""

import pyarrow as pa
import pytest

from ackq.wire.columns import HEADERS
from ackq_link.jetstream.messages import encoded, from_rows, subject_flaw, subjects, to_rows

BLOCK = b"NATS/1.0\r\nNats-Msg-Id: 7\r\na: b\r\nContent-Type: t\r\n\r\n"
TWICE = b"a: b\r\na: c\r\nNats-Msg-Id: 7"


@pytest.mark.parametrize(
    "block", [BLOCK, *(b"NATS/1.0\r\n%b\r\n\r\n" % each for each in (TWICE, b"a:b ", b"a: \xff"))]
)
def test_a_message_in_and_out_again(block):
    """L13: headers of any kind come out as they came in, beside the id."""
    rows = to_rows([b"s"], [block], [b"x"], [0])
    (out,) = from_rows(rows, ["7"])
    came = set(block.replace(b"a:b ", b"a: b ").split(b"\r\n"))
    assert came <= {*out.split(b"\r\n")}
    assert out.startswith(b"NATS/1.0\r\nNats-Msg-Id: 7\r\n")


@pytest.mark.parametrize("change", [{"a": "c"}, {"n": "1"}, {"a": None}])
def test_changed_headers(change):
    """L22: what an application changed, added or removed goes out beside the kept headers."""
    rows = to_rows([b"s"], [b"NATS/1.0\r\na:b\r\nx: y\r\nContent-Type:t\r\n\r\n"], [b"x"], [0])
    (pairs,) = rows.column("headers").to_pylist()
    table = {name: text for name, text in {**dict(pairs), **change}.items() if text is not None}
    rows = rows.drop_columns("headers").append_column(
        "headers", pa.array([list(table.items())], HEADERS)
    )
    (out,) = from_rows(rows, ["7"])
    del table["nats-headers"]
    assert out == encoded([("Nats-Msg-Id", "7"), ("Content-Type", "t"), *table.items()])


def test_a_dead_letter_keeps_its_headers():
    """L13: those that the local broker adds go out beside the ones that came."""
    rows = to_rows([b"s"], [b"NATS/1.0\r\na: b\r\na: c\r\n\r\n"], [b"x"], [0])
    (pairs,) = rows.column("headers").to_pylist()
    died = [*pairs, ("ackq-dead-queue", "q")]
    rows = rows.drop_columns("headers").append_column("headers", pa.array([died], HEADERS))
    (out,) = from_rows(rows, ["7"])
    assert out == encoded([("Nats-Msg-Id", "7"), ("a", "b"), ("a", "c"), ("ackq-dead-queue", "q")])


def test_headers_that_mean_something_to_the_server():
    """L22: those of its own are left out, as Nats-Rollup would empty the remote stream."""
    headers = pa.array([[("Nats-Rollup", "all"), ("a", "b")]], HEADERS)
    (out,) = from_rows(pa.record_batch({"body": [b"x"], "headers": headers}), ["1"])
    assert out == encoded([("Nats-Msg-Id", "1"), ("a", "b")])


def test_a_long_subject():
    """L13: a subject over the limit of a routing key is a header, and the subject again."""
    long = b"a." * 200 + b"b"
    rows = to_rows([long, b"s"], [b"", b""], [b"x", b"y"], [0, 0])
    assert rows.column("routing_key").to_pylist() == ["", "s"]
    assert subjects(rows, "") == [long.decode(), "s"]
    assert subjects(rows, "all") == ["all", "all"]


@pytest.mark.parametrize(
    "headers",
    [[("a b", "c")], [("", "c")], [("a:", "c")], [("a", "b\r\nc: d")], [("nats-headers", "?")]],
)
def test_headers_that_cannot_go_out(headers):
    """L22: a header that would break the protocol is an error of its own row."""
    rows = pa.record_batch({"body": [b"x", b"y"], "headers": pa.array([headers, []], HEADERS)})
    bad, good = from_rows(rows, ["1", "2"])
    assert isinstance(bad, ValueError)
    assert good == encoded([("Nats-Msg-Id", "2")])


@pytest.mark.parametrize(
    "subject", ["", "a b", "a.*", ">", ".a", "a..b", "a.", "a\r\nPUB b 0", "é" * 2001]
)
def test_subjects(subject):
    """L22: a text that is no subject to publish to has a reason."""
    assert subject_flaw(subject, [])
    assert not subject_flaw("a.b", [])


@pytest.mark.parametrize(
    ("subject", "own"),
    [
        ("$JS.API.STREAM.DELETE.x", [">", "*.>", "$KV.>"]),
        ("_INBOX.a.b", ["s.>"]),
        ("_INBOX", []),
        ("$KV.a", ["$KV.a.>"]),
        ("$KV.a.b.c", ["$KV.a.*"]),
        ("$KV.b.c", ["$KV.a.*"]),
    ],
)
def test_subjects_of_the_servers(subject, own):
    """L22: a request to a server goes out only if the stream's subjects name it."""
    assert "of the servers" in subject_flaw(subject, own)
    assert not subject_flaw(subject, [*own, subject])
