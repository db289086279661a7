"""Routing of a block: its cost by keys and groups of queues, and its bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core import commands as c
from ackq_broker.core.queues.routing import match, route, router_of
from ackq_broker.core.state.exchange import Exchange
from tests.unit.core.harness import Harness, routes

KEYS = ["a.x", "a.y", "b.x", "b.y", "c", "a." * 30]
BINDINGS = ["a.*", "*.x", "#.y", "b.#", "a.x"]
QUEUES = [f"q{number}" for number in range(4)]


def fan(harness: Harness, kind: str, queues: int, binding_key: str = "#") -> None:
    """Declares an exchange with `queues` queues `q0`, `q1`, ..., all bound with one key."""
    names = [f"q{number}" for number in range(queues)]
    harness.declare(*names, durable=True)
    harness.bind("x", kind, **dict.fromkeys(names, binding_key))


def test_keys_to_a_fanout_are_not_looked_at(harness: Harness, monkeypatch) -> None:
    """I5, I6: 5,000 keys to a fanout exchange of 20 queues are one look-up."""
    looked_up = []
    groups = Exchange.groups

    def counted(exchange, key):
        looked_up.append(key)
        return groups(exchange, key)

    monkeypatch.setattr(Exchange, "groups", counted)
    fan(harness, "fanout", 20)
    reply = harness.publish([f"k{row}" for row in range(5_000)], exchange="x")
    assert (len(reply.confirmed), len(reply.returned), len(looked_up)) == (5_000, 0, 1)
    assert [harness.info(f"q{number}").ready for number in (0, 19)] == [5_000, 5_000]


@pytest.mark.parametrize("exchange", ["x", ""])
def test_a_frame_to_too_many_queues_is_refused(harness: Harness, monkeypatch, exchange) -> None:
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


def test_steps_of_a_block_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_transaction_and_a_stage_refuse_what_is_over_a_bound(harness: Harness) -> None:
    """P13, K3, I6: a block with one row over a bound is refused whole."""
    fan(harness, "topic", 1)
    harness.do(c.OpenStage(b"s" * 16, "w", 0, "r"))
    with pytest.raises(LimitError, match="words"):
        harness.do(c.StageBlock(b"s" * 16, "x", routes(["a", "a." * 21]), 2, 2))
    with pytest.raises(LimitError, match="words"):
        harness.transact(["a", "a." * 21], exchange="x")
    assert harness.info("q0").staged == 0


@pytest.mark.parametrize("kind", ["topic", "direct", ""])
@given(
    bindings=st.sets(st.tuples(st.sampled_from(BINDINGS + KEYS[:2]), st.sampled_from(QUEUES))),
    keys=st.lists(st.sampled_from(KEYS + QUEUES), min_size=1, max_size=30),
    unwanted=st.sets(st.integers(0, 29)),
    most_queues=st.sampled_from([1, 3, limits.MAX_BLOCK_QUEUES]),
    matched=st.booleans(),
)
def test_a_block_is_routed_as_its_keys(kind, bindings, keys, unwanted, most_queues, matched):
    """Q2, P7, I6: same queues and unroutable rows; rows over a bound are refused all the same."""
    harness = Harness()
    harness.declare(*QUEUES, durable=True)
    if kind:
        harness.do(c.DeclareExchange("x", kind))
        for key, queue in bindings:
            harness.do(c.Bind("x", queue, key))
    state = harness.core.state
    router = router_of(state, "x" if kind else "")
    distinct = tuple(dict.fromkeys(keys))
    codes = np.array([distinct.index(key) for key in keys], np.int32)
    wanted = BitMap(range(len(keys))) - BitMap(unwanted)
    if matched:
        match(router, distinct, 0, 10**6)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "MAX_BLOCK_QUEUES", most_queues)
        routed = route(state, router, c.Routes(distinct, codes), wanted)
    queues, nowhere, refused = {}, BitMap(), BitMap()
    for row in wanted:
        alone = route(state, router, c.Routes((keys[row],)), BitMap([row]))
        nowhere |= alone.unroutable
        refused |= BitMap().union(*(each.rows for each in alone.refused))
        for queue_id in alone.rows:
            queues.setdefault(queue_id, BitMap()).add(row)
    over = BitMap().union(*(each.rows for each in routed.refused))
    assert routed.unroutable == nowhere
    assert refused <= over <= wanted
    assert routed.rows == {q: rows - over for q, rows in sorted(queues.items()) if rows - over}
    if most_queues == limits.MAX_BLOCK_QUEUES:
        assert over == refused
    assert (routed.unroutable_key in distinct) == bool(nowhere)
