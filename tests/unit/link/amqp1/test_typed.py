"""AMQP 1.0 values as text."""

import math
import uuid

import pytest

from tests.optional import needs

needs("proton", "amqp1")
pytestmark = pytest.mark.servers

import proton  # noqa: E402

from ackq_link.amqp1 import typed  # noqa: E402

VALUES = ["text", "", 5, 2**63 - 1, 1.5, True, None, b"\xff\x00", uuid.UUID(int=7)]
VALUES += [kind(-5) for kind in (proton.byte, proton.short, proton.int32)]
VALUES += [kind(5) for kind in (proton.ubyte, proton.ushort, proton.uint, proton.timestamp)]
VALUES += [proton.ulong(2**64 - 1), proton.float32(0.5), proton.char("c"), proton.symbol("s")]
VALUES += [[1, "a", [proton.uint(3)]], {"a": 1, "b": [b"x"]}, {"!bytes": "no mark"}]
VALUES += [{1: "a", proton.symbol("s"): None}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back(value):
    """A value comes back unchanged, with its type."""
    back = typed.decode(*typed.encode(value))
    assert back == value
    assert type(back) is type(value)


def test_what_people_see():
    """Numbers and texts are shown plainly; other values are JSON."""
    assert typed.encode(proton.int32(5)) == ("5", "int")
    assert typed.encode("5") == ("5", typed.TEXT)
    assert typed.encode(proton.symbol("s")) == ("s", "symbol")
    assert typed.encode(b"a") == ('{"!bytes": "YQ=="}', typed.JSON)
    assert [name for name in ("", "json", "int", "char") if typed.is_json(name)] == ["json", "int"]


def test_no_number_and_no_form():
    """NaN comes back, as Python's JSON has it; a described value, even in an array, is refused."""
    assert math.isnan(typed.decode(*typed.encode(math.nan)))
    with pytest.raises(ValueError, match="Described"):
        typed.encode([proton.Described(proton.symbol("a"), 1)])


@pytest.mark.parametrize(
    ("text", "name"),
    [("x", "int"), ("[1", "json"), ('"a"', "uint"), ("-1", "ubyte"), ("9" * 20, "json")],
)
def test_what_encode_never_gave(text, name):
    """A text that `encode` never produces raises ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011 - any check may find it
        typed.decode(text, name)
