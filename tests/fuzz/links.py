"""Targets: messages of remote brokers, and local messages that go to them.

A sound result is the same message, or a refusal of that message alone: a `ValueError` on its way
out.
"""

import importlib.util
import json
from datetime import UTC, datetime
from functools import cache

import pyarrow as pa
from pamqp import commands

from ackq.wire.columns import HEADERS
from ackq_link.amqp091 import properties
from tests.fuzz.mutations import TEXTS, mutated
from tests.fuzz.targets import target
from tests.unit.link.amqp091.wire import same

_TIME = datetime(2026, 11, 22, tzinfo=UTC)
_TABLE = {"a": "b", "n": 5, "t": _TIME, "x-death": [{"count": 1, "d": 1.5, "b": bytearray(b"x")}]}
_WIRE = commands.Basic.Properties(
    content_type="text/plain",
    headers=_TABLE,
    correlation_id="c",
    message_id="m",
    timestamp=_TIME,
    message_type="t",
).marshal()
_NOTED = {
    "json-headers": ["n"],
    "field-types": {"n": "s.l"},
    "priority": 3,
    "expiration": "60",
    "timestamp": 5,
    "table": "AAAABAFhVg==",
    "correlation_id": {"!bytes": "/w=="},
    "types": {"n": "short"},
    "body": "value",
    "annotations": {"x-opt-jms-msg-type": 5},
}


@target(500)
def amqp091_in(rng):
    """Properties that a broker may send: in, and out again."""
    one = properties.Properties(mutated(_WIRE, rng))
    rows = properties.to_rows([b"x"], [one])
    (back,) = properties.from_rows(rows, [one.message_id or "given"])
    if isinstance(back, ValueError):
        return type(back).__name__
    assert same(one, back)
    return "same"


def _rows(rng):
    noted = dict(_NOTED)
    for name in rng.sample(sorted(noted), rng.randrange(len(noted))):
        noted[name] = rng.choice((*TEXTS, None, 5, -1, 1e300, [], {}, {"!bytes": "x"}, "60s"))
    text = json.dumps({name: noted[name] for name in rng.sample(sorted(noted), 4)})
    if rng.random() < 0.3:
        text = mutated(text.encode(), rng).decode(errors="replace")
    values = ('{"!decimal": "x"}', "5", "[" * 5000, '{"!timestamp": 1e300}', *TEXTS)
    pairs = [("n", rng.choice(values)), ("amqp-properties", text)]
    return pa.RecordBatch.from_pydict(
        {"body": pa.array([b"x"]), "headers": pa.array([pairs], HEADERS)}
    )


@target(500)
def amqp091_out(rng):
    """Headers that an application wrote, as an outbound link sends them."""
    (made,) = properties.from_rows(_rows(rng), [rng.choice(TEXTS)])
    return type(made).__name__


if importlib.util.find_spec("proton") is not None:
    import proton

    from ackq_link.amqp1.messages import Incoming, Outgoing, to_rows

    @cache
    def _amqp1_message():
        message = proton.Message(body=b"x", id="m", properties={"a": 1, "b": [1.5, {"c": "d"}]})
        message.creation_time = 5
        return bytes(message.encode())

    @target(500)
    def amqp1_in(rng):
        """A message that a broker may send: in, and out again."""
        return _encoded(to_rows([Incoming(mutated(_amqp1_message(), rng))]), duplicate_ids=False)

    @target(500)
    def amqp1_out(rng):
        """Headers that an application wrote, as an outbound link sends them."""
        return _encoded(_rows(rng), duplicate_ids=rng.random() < 0.5)

    def _encoded(rows, *, duplicate_ids):
        assert rows.num_rows == 1
        try:
            Outgoing(rows, ["m"], duplicate_ids=duplicate_ids).encoded(0)
        except ValueError as error:
            return type(error).__name__
        return str(rows.schema.names)
