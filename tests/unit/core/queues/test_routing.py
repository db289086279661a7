"""Routing of a block: its bounds in queues, steps and words."""

import pytest

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core import commands as c
from tests.unit.core.harness import refused, routes


def fan(harness, kind, queues, binding_key="#"):
    """Declares an exchange with `queues` queues `q0`, `q1`, ..., all bound with one key."""
    names = [f"q{number}" for number in range(queues)]
    harness.declare(*names, durable=True)
    harness.bind("x", kind, **dict.fromkeys(names, binding_key))


@pytest.mark.parametrize("exchange", ["x", ""])
def test_a_frame_to_too_many_queues_is_refused(harness, monkeypatch, exchange):
    """P8, I6: rows over the bound are nacked, with the remedy, and are in no queue."""
    monkeypatch.setattr(limits, "MAX_BLOCK_QUEUES", 10)
    names = [f"q{number}" for number in range(12)]
    harness.declare(*names, durable=True)
    harness.bind("x", "direct", **{name: name for name in names})
    reply = harness.publish(names, exchange=exchange)
    (nack,) = reply.nacks
    assert (list(reply.confirmed), list(nack.numbers)) == (list(range(1, 11)), [11, 12])
    assert "more than 10 target queues" in nack.reason.message
    assert "smaller frames" in nack.reason.message
    # A message to more queues than the bound is in none of them.
    harness.bind("y", "fanout", **dict.fromkeys(names, ""))
    (nack,) = harness.publish(["k"], exchange="y").nacks
    assert isinstance(nack.reason, LimitError)
    assert [harness.ready(name) for name in names] == [1] * 10 + [0] * 2


def test_steps_of_a_block_are_bounded(harness, monkeypatch):
    """P8, I6: a key matched beforehand costs one step in the decision, so all rows are taken."""
    monkeypatch.setattr(limits, "MAX_BLOCK_STEPS", 100)
    fan(harness, "topic", 3, "#.a.#.b.#")
    keys = [f"a.{row}.b" for row in range(50)]
    reply = harness.publish(keys, exchange="x")
    assert 1 <= len(reply.confirmed) < 50
    (nack,) = reply.nacks
    assert len(nack.numbers) + len(reply.confirmed) == 50
    keys = [f"a.{row}.b.b" for row in range(50)]
    command = harness.command(keys, exchange="x")
    calls = matched = 0
    while matched < len(command.routes.keys):
        matched = harness.core.match("x", command.routes, matched, 20)
        calls += 1
    assert calls > 5
    assert harness.core.match("x", command.routes, 0, 0) == len(command.routes.keys)
    assert len(harness.send(command).confirmed) == 50


def test_a_transaction_and_a_stage_refuse_what_is_over_a_bound(harness):
    """P13, K3, I6: a block with one row over a bound is refused whole."""
    fan(harness, "topic", 1)
    harness.do(c.OpenStage(b"s" * 16, "w", 0, "r"))
    with pytest.raises(LimitError, match="words"):
        harness.do(c.StageBlock(b"s" * 16, "x", routes(["a", "a." * 21]), 2, 2))
    refused(LimitError, "words", harness.transact, ["a", "a." * 21], exchange="x")
    assert harness.info("q0").staged == 0
