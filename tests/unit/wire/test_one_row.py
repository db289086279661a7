"""One-row Arrow messages by template: the bytes of Arrow's writer, and no others."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq.wire import block, columns, one_row, record_batch
from tests.fakes.blocks import batch

FIXED = ("published_at", "expires_at", "ttl_ms", "persistent")
TEXT = st.text(max_size=20)
VALUES = {
    "body": st.binary(max_size=40) | st.integers(0, 20_000).map(bytes),
    "headers": st.lists(st.tuples(TEXT, TEXT), max_size=9),
    "persistent": st.booleans(),
    **dict.fromkeys(FIXED[:3], st.integers(-(1 << 63), (1 << 63) - 1)),
}
ROWS = st.fixed_dictionaries({}, optional={name: VALUES.get(name, TEXT) for name in columns.STORED})


def written(values):
    """The batch of a row, and its message as Arrow writes it."""
    made = batch(**{name: [value] for name, value in values.items()})
    return made, bytes(made.serialize())


def check(values):
    values = {name: values[name] for name in columns.STORED if name in values}
    mask, row = columns.bits(tuple(values)), list(values.values())
    made, message = written(values)
    assert one_row.encode(mask, row) == (message, block.payload_bytes(made))
    assert one_row.decode(mask, memoryview(message)) == (row, block.payload_bytes(made))


@pytest.mark.parametrize("count", range(len(columns.STORED)))
def test_every_combination_of_columns_has_a_template(count):
    """K7: a body with any other columns has the bytes that Arrow writes."""
    sizes = random.Random(count)
    for others in combinations([name for name in columns.STORED if name != "body"], count):
        values = {"body": bytes(sizes.randrange(40))}
        for name in others:
            values[name] = {"headers": [("k", "v" * count)] * (count % 3)}.get(name, "é" * count)
            if name in FIXED:
                values[name] = name == "persistent" or count
        check(values)


@settings(max_examples=150)
@given(ROWS.filter(lambda values: values.keys() - FIXED))
def test_the_bytes_are_those_of_arrow(values):
    """K7: any values, of any size."""
    check(values)


def test_columns_without_a_template_are_left_to_arrow():
    """A lone column of 8 bytes has no number by which its place is found."""
    mask = columns.bits(("ttl_ms",))
    assert one_row.encode(mask, [0]) is None
    assert one_row.decode(mask, memoryview(written({"ttl_ms": 0})[1])) is None


SAMPLES = (
    {"body": b"abc"},
    {"body": b""},
    {"body": b"12345678", "routing_key": "é"},
    {"body": b"abc", "message_id": "1", "content_type": ""},
    {"body": b"abc", "headers": [("k", "vé"), ("", "")]},
    {"body": b"abc", "headers": []},
    {"body": b"abc", "published_at": 7, "persistent": True},
)


def mutants(data):
    """The bytes with each byte changed in several ways, cut anywhere, or longer."""
    for at, value in enumerate(data):
        for other in {value ^ 1, value ^ 0x80, value ^ 8, 0, 0xFF, value + 8 & 0xFF} - {value}:
            yield data[:at] + bytes((other,)) + data[at + 1 :]
        yield data[:at]
    yield data + b"\0"
    yield data + bytes(8)


@pytest.mark.parametrize("values", SAMPLES, ids=[" ".join(each) for each in SAMPLES])
def test_a_changed_message_is_read_as_arrow_reads_it(values):
    """P8: with any byte changed, the same row as by full validation, or left to it."""
    mask = columns.bits(tuple(values))
    sound, message = written(values)
    taken = 0
    for data in mutants(message):
        found = one_row.decode(mask, memoryview(data))
        if found is not None:
            row, payload_bytes = found
            held = record_batch.read(memoryview(data), sound.schema, 1)
            assert held.equals(written(dict(zip(values, row, strict=True)))[0])
            assert payload_bytes == block.payload_bytes(held)
            taken += 1
    assert taken or not values["body"]
