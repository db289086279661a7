"""AMQP 0-9-1 messages as wire bytes: strategies, reordering and comparison."""

import struct

from hypothesis import strategies as st
from pamqp import commands

from ackq_link.amqp091 import fields, properties
from ackq_link.amqp091.properties import Properties


def sent(**properties):
    """Properties as a client that uses the library sends them."""
    return Properties(commands.Basic.Properties(**properties).marshal())


def message(**values):
    """Properties from texts as bytes, numbers, and a table without its length."""
    if "headers" in values:
        values["headers"] = len(values["headers"]).to_bytes(4) + values["headers"]
    return Properties(properties._pack(values))


def table_of(**values):
    """A table, without its length, of values with their type letter."""
    return fields.join([(name.encode(), value) for name, value in values.items()])[4:]


def same(one, other):
    """Whether two messages are equal, except for fields that a link does not carry (L13)."""
    return _comparable(one) == _comparable(other)


def reordered(one, draw, *, counted=False):
    """The same message with its table fields in another order, as a broker may send it."""
    values = dict(properties._unpacked(one.wire))
    found = fields.split(values.get("headers", b""))
    if counted:
        found += [(b"x-delivery-count", b"l" + bytes(7) + b"\3"), (b"x-acquired-count", b"b\4")]
    if found:
        values["headers"] = fields.join(_shuffled(found, draw))[4:]
    return message(**values)


def _shuffled(found, draw):
    order = draw(st.permutations(range(len(found))))
    names = [name for name, _ in found]
    if len(set(names)) < len(names):  # two fields of one name keep their order
        order = sorted(order, key=lambda at: (names[at], at))
    return [(found[at][0], _inside(found[at][1], draw)) for at in order]


def _inside(value, draw):
    if value[:1] != b"F":
        return value
    return b"F" + fields.join(_shuffled(fields.split(value[5:]), draw))


def _comparable(one):
    values = dict(properties._unpacked(one.wire))
    for name in ("delivery_mode", "user_id"):
        values.pop(name, None)
    if not values.get("message_id") or values["message_id"] == b"given":
        values.pop("message_id", None)
    table = fields.canonical(values.pop("headers", b""))
    return values, table


def _sized(data):
    return len(data).to_bytes(4) + data


def _number(tag, form, numbers):
    return numbers.map(lambda number: tag + struct.pack(form, number))


_NAMES = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"!bytes", b"!text", b"!!a", b"\xff", b""])
_SCALARS = st.one_of(
    st.text(max_size=4).map(lambda text: b"S" + _sized(text.encode())),
    st.binary(max_size=4).map(lambda data: b"S" + _sized(data)),
    st.binary(max_size=4).map(lambda data: b"x" + _sized(data)),
    st.sampled_from([b"t\0", b"t\1", b"V"]),
    *(
        st.binary(min_size=size, max_size=size).map(lambda data, tag=tag: tag + data)
        for tag, size in (
            (b"b", 1), (b"B", 1), (b"s", 2), (b"u", 2), (b"I", 4), (b"i", 4), (b"l", 8), (b"L", 8),
            (b"T", 8), (b"D", 5), (b"f", 4), (b"d", 8),
        )
    ),
    _number(b"I", ">i", st.integers(-9, 9)),
    _number(b"l", ">q", st.integers(-9, 9)),
    _number(b"d", ">d", st.floats()),
    _number(b"f", ">f", st.floats(width=32)),
)  # fmt: skip


def _tables(values):
    pairs = st.lists(st.tuples(_NAMES, values), max_size=4)
    return pairs.map(lambda found: fields.join(found)[4:])


VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: b"A" + _sized(b"".join(values))),
        _tables(inner).map(lambda table: b"F" + _sized(table)),
    ),
    max_leaves=6,
)
TABLES = _tables(VALUES)
_TEXTS = st.one_of(st.text(max_size=3).map(str.encode), st.binary(max_size=3))
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "headers": TABLES,
        "priority": st.integers(0, 255),
        "delivery_mode": st.sampled_from([1, 2]),
        "timestamp": st.integers(-(2**63), 2**63 - 1),
        "expiration": st.integers(0, 2**32 - 1).map(lambda number: str(number).encode()),
        **dict.fromkeys(
            ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id"), _TEXTS
        ),
        **dict.fromkeys(("type", "user_id", "app_id", "cluster_id"), _TEXTS),
    },
).map(lambda values: message(**values))
