"""Blocks that a publisher makes: columns, types, sizes, and refused input."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client.blocks import encoding
from ackq.wire import block, columns

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def batch(**arrays):
    return pa.RecordBatch.from_pydict(arrays)


def row(body=b"x", key="k", **fields):
    return encoding.Row(
        **(dict.fromkeys(encoding.Row._fields) | {"body": body, "routing_key": key} | fields)
    )


FIELDS = {
    "message_id": "1",
    "correlation_id": "é",
    "reply_to": "",
    "content_type": "t",
    "headers": [("h", "v"), ("", "é")],
    "published_at": NOON,
    "persistent": False,
    "ttl_ms": 5000,
}


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 5000])
@pytest.mark.parametrize(
    "names", [(), *[(name,) for name in FIELDS], ("headers", "published_at"), tuple(FIELDS)]
)
def test_a_single_message_has_the_bytes_of_the_general_way(names, size):
    """K7: the block of one message is byte for byte the one that Arrow makes."""
    only = row(bytes(size), "é.k", **{name: FIELDS[name] for name in names})
    expected = encoding.encode_rows([only], persistent=True)
    for message in (only, only.body) if not names else (only,):
        assert encoding._encode_row(only, persistent=True) == expected
        made = encoding.encode_messages([message], routing_key="é.k", persistent=True)
        assert made == expected


def test_a_null_header_value_is_kept():
    """K7: a received message, as Spark can write it, is published again with the same headers."""
    pairs, size = encoding.header_pairs({"k": None, "l": "v"})
    assert (pairs, size) == ([("k", None), ("l", "v")], 3)
    made = encoding.encode_messages([row(headers=pairs)], routing_key="", persistent=True)
    assert block.decode(made)[1].column("headers").to_pylist() == [pairs]


OTHER_HEADERS = pa.map_(pa.string(), pa.field("v", pa.string(), nullable=False))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("body", pa.array(["a"])),
        ("body", pa.array([b"a"], pa.large_binary())),
        ("body", pa.array(["a"]).dictionary_encode()),
        ("message_id", pa.array(["a"], pa.large_string())),
        ("message_id", pa.array(["a"]).dictionary_encode()),
        ("headers", pa.array([[("a", "b")]], OTHER_HEADERS)),
        ("published_at", pa.array([NOON], pa.timestamp("ms", "Europe/Zurich"))),
        ("ttl_ms", pa.array([5], pa.int32())),
    ],
)
def test_other_layouts_of_the_same_values_are_converted(name, array):
    """The converted batch has exactly the wire's types."""
    arrays = {"body": pa.array([b"a"]), name: array}
    ready = encoding.publishable(pa.RecordBatch.from_pydict(arrays))
    assert ready.column(name).type == columns.STORED[name][1]
    ready.validate(full=True)


@pytest.mark.parametrize(
    ("name", "array", "found"),
    [
        ("body", pa.array([1]), "int64"),
        ("persistent", pa.array(["yes"]), "string"),
        ("published_at", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), "timestamp"),
        ("ttl_ms", pa.array([1.5]), "double"),
        ("ttl_ms", pa.array([2**64 - 1], pa.uint64()), "uint64"),
        ("headers", pa.array([{"a": "b"}]), "struct"),
    ],
)
def test_wrong_type_names_column_expected_and_found(name, array, found):
    """A column of a wrong type is refused with its name, expected and found type."""
    arrays = {"body": pa.array([b"a"]), name: array}
    with pytest.raises(errors.SchemaError) as failure:
        encoding.publishable(pa.RecordBatch.from_pydict(arrays))
    assert failure.value.fields["column"] == name
    assert failure.value.fields["expected"] == str(columns.STORED[name][1])
    assert failure.value.fields["found"].startswith(found)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"message_id": ["1"]}, "'body' is missing; found message_id"),
        ({"body": [b""], "colour": ["red"]}, "'colour' is not one a publisher can send"),
        ({"body": [b""], "expires_at": [NOON]}, "'expires_at' is not one a publisher can send"),
    ],
)
def test_wrong_columns_are_named(arrays, expected):
    with pytest.raises(errors.SchemaError, match=expected):
        encoding.publishable(batch(**arrays))
    twice = pa.RecordBatch.from_arrays([pa.array([b""])] * 2, ["body", "body"])
    with pytest.raises(errors.SchemaError, match="'body' is given twice"):
        encoding.publishable(twice)


def test_null_headers_become_empty_and_null_keys_the_default():
    """Null headers and routing keys are replaced before they are sent."""
    ready = encoding.publishable(
        batch(
            body=[b"a", b"b"],
            routing_key=["k", None],
            headers=pa.array([None, [("a", "b")]], columns.HEADERS),
            message_id=pa.array([None, None], pa.string()),
        ),
        routing_key="default",
    )
    assert ready.to_pylist() == [
        {"body": b"a", "routing_key": "k", "headers": []},
        {"body": b"b", "routing_key": "default", "headers": [("a", "b")]},
    ]


def text_of(*values):
    """A text column of arbitrary bytes, as Spark makes it of binary values."""
    return pa.array(values, pa.binary()).view(pa.string())


def maps(keys, values):
    return pa.MapArray.from_arrays([0, 1, 2, 3, 4], keys, values)


BAD, GOOD = text_of(b"a", b"b", b"\xff", b"\xfe"), pa.array("abcd")
TEXTS = (*encoding.TEXTS, "routing_key")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        *((name, text_of(b"a", None, b"\xff", b"\xfe")) for name in TEXTS),
        ("headers", maps(GOOD, BAD)),
        ("headers", maps(BAD, GOOD)),
    ],
)
def test_text_that_is_not_utf8_names_column_and_row(name, column):
    """P8: the client refuses such text, as the broker would its whole frame; slices too."""
    messages = batch(body=[b"x"] * 4, **{name: column})
    with pytest.raises(errors.InvalidArgumentError, match=f"'{name}' .* in row 2"):
        encoding.publishable(messages)
    with pytest.raises(errors.InvalidArgumentError, match=f"'{name}' .* in row 1"):
        encoding.publishable(messages.slice(1))
    assert encoding.publishable(messages.slice(0, 2)).num_rows == 2


def test_a_body_may_be_any_bytes():
    """A body in a text column, as of `cast(body as string)`, need not be UTF-8."""
    assert encoding.publishable(batch(body=text_of(b"\xff"))).column(0).to_pylist() == [b"\xff"]


def test_cut_follows_bytes_and_rows():
    """A batch is cut at the byte and row targets; a larger row goes alone."""
    sizes = [10, 10, 10, 50, 10, 10]
    # A slice is measured by its own rows, though it shares its parent's buffers.
    whole = batch(body=[bytes(n) for n in (500, *sizes, 500)])
    parts = encoding.cut(whole.slice(1, len(sizes)), target_bytes=30)
    found = [[len(body) for body in part.column(0).to_pylist()] for part in parts]
    assert found == [[10, 10, 10], [50], [10, 10]]
    parts = encoding.cut(batch(body=[b"x"] * 7), target_rows=3)
    assert [part.num_rows for part in parts] == [3, 3, 1]
    assert list(encoding.cut(whole.slice(0, 0))) == []


def test_what_is_over_a_limit_is_named():
    with pytest.raises(errors.InvalidArgumentError, match="256 bytes; the limit is 255"):
        encoding.publishable(batch(body=[b""], routing_key=["k" * 256]))
    with pytest.raises(errors.MessageTooLargeError, match="row 1 has 70 bytes; the limit is 60"):
        list(encoding.cut(batch(body=[bytes(5), bytes(70)]), max_message_bytes=60))

    with pytest.raises(errors.MessageTooLargeError, match=f"limit is {limits.MAX_HEADER_BYTES}"):
        encoding.header_pairs({"h": "v" * limits.MAX_HEADER_BYTES})
