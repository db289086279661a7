"""Field tables of AMQP 0-9-1 as JSON values, and back."""

import json

import pytest
from hypothesis import given

from ackq_link.amqp091 import fields
from tests.unit.link.amqp091.wire import VALUES


def nested(depth):
    """A table nested to the given depth."""
    table = b""
    for _ in range(depth):
        table = fields.join([(b"a", b"F" + len(table).to_bytes(4) + table)])[4:]
    return table


@pytest.mark.parametrize(
    ("field", "value", "letters"),
    [
        (b"S\0\0\0\1a", "a", ""),
        (b"S\0\0\0\1\xff", {"!longstr": "/w=="}, ""),
        (b"I\0\0\0\5", 5, ""),
        (b"l\0\0\0\0\0\0\0\5", 5, "l"),
        (b"l\0\0\0\1\0\0\0\0", 2**32, ""),
        (b"b\xff", -1, "b"),
        (b"d\x7f\xf0\0\0\0\0\0\0", {"!double": "7ff0000000000000"}, ""),
        (b"f\x3f\0\0\0", 0.5, "f"),
        (b"D\2\0\0\0\x96", {"!decimal": "1.50"}, ""),
        (b"T\xff\xff\xff\xff\xff\xff\xff\xff", {"!timestamp": 2**64 - 1}, ""),
        (b"V", None, ""),
        (b"t\1", True, ""),
        (b"F\0\0\0\x0b\6!bytesb\1V", None, None),
    ],
)
def test_a_value_of_each_type(field, value, letters):
    """Each type has the JSON that a reader expects; type letters mark non-default types."""
    if letters is None:
        with pytest.raises(ValueError, match="cut, or unknown"):
            fields.decode(field)
        return
    assert fields.decode(field) == (value, letters)
    assert fields.encode(json.loads(json.dumps(value)), letters) == field


@given(VALUES)
def test_a_value_comes_back_with_its_type(field):
    """Values and types are kept, but nested tables are sorted; others are refused."""
    try:
        value, letters = fields.decode(field)
    except ValueError:
        return
    back = fields.encode(json.loads(json.dumps(value)), letters)
    assert back == fields.canonical(b"\1n" + field)[6:]


def test_a_table_too_deep_is_sorted_at_its_top():
    """L3: two deliveries of a deeply nested table still compare equal."""
    deep = b"F" + len(nested(2000)).to_bytes(4) + nested(2000)
    with pytest.raises(ValueError, match="recursion"):
        fields.decode(deep)
    one, other = (
        fields.join(each)[4:]
        for each in ([(b"b", deep), (b"a", b"V")], [(b"a", b"V"), (b"b", deep)])
    )
    assert fields.canonical(one) == fields.canonical(other) == len(other).to_bytes(4) + other
