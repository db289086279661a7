"""Settlements that arrive together have the same effect as one by one."""

import asyncio
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq.errors import AckqError
from ackq.outcomes import Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.service.consuming.channel import BrokerChannel
from ackq_broker.service.consuming.settlement import SettlementBatch
from ackq_broker.service.consuming.unacked import UnackedOwner, UnackedTags
from tests.unit.service.channel_streams import Broker

MESSAGES = 8
DISPOSITION = {
    "outcome": st.sampled_from([1, 1, 2, 3, 4, 4, 9]),
    "reason": st.sampled_from(["", "bad"]),
    "delay_ms": st.sampled_from([0, 0, 5000]),
}
ONE = st.builds(
    pb.Settle, delivery_tag=st.integers(0, MESSAGES + 1), multiple=st.booleans(), **DISPOSITION
)


def runs_of(tags):
    """The fields of a settlement that names these tags as runs."""
    firsts = sorted(tag for tag in tags if tag - 1 not in tags)
    rows = [next(n for n in range(1, 99) if first + n not in tags) for first in firsts]
    return {"first_tag": firsts, "rows": rows}


@st.composite
def many(draw):
    """A settlement that names runs of tags."""
    tags = draw(st.sets(st.integers(1, MESSAGES + 1), min_size=1))
    return pb.Settle(**runs_of(tags), **{name: draw(each) for name, each in DISPOSITION.items()})


SETTLE = st.one_of(ONE, ONE, many())


def outcome_of(*batches):
    """The result of settlements: the answers, the error, and the state visible in the core.

    A channel has two consumers, each with half of the messages; one declared one outcome.
    """

    async def main():
        broker, answers, refusal = Broker(), [], None
        engine = broker.engine
        limited = commands.QueueProperties(dead_letter_queue="dead", delivery_limit=1)
        engine.decide(commands.DeclareQueue("dead"))
        engine.decide(commands.DeclareQueue("limited", limited))
        broker.publish(*[b"x"] * MESSAGES, queue="limited")
        channel = BrokerChannel(engine, broker.dispatcher, b"c" * 16, 1000, "")
        channel.attach(
            SimpleNamespace(
                full=False,
                deliver=lambda _delivery, _sequence: None,
                answer=lambda header, _: answers.append(str(header.settled)),
            )
        )
        for name, outcomes in (("all", [2, 3, 4]), ("few", [4])):
            subscription = pb.Subscribe(consumer=name, queue="limited", outcomes=outcomes)
            channel.subscribe(subscription, may_repeat=False)
            assert channel.deliver(channel.consumers[name], MESSAGES // 2) == MESSAGES // 2
        for name in ("all", "few"):
            channel.unsubscribe(name)
        try:
            for batch in batches:
                channel.settle(batch, may_repeat=False)
        except AckqError as error:
            refusal = (type(error), error.message)
        before_close = views.outstanding(engine.core.state, channel.channel_id)
        channel.close()
        return answers, refusal, before_close, views.list_queues(engine.core.state)

    return asyncio.run(main())


@settings(max_examples=150)
@given(st.lists(SETTLE, max_size=12))
def test_together_is_as_one_by_one(settles):
    """C2-C5, C15: settlements together give the same answers, error and state as one by one."""
    for number, settle in enumerate(settles, 1):
        settle.number = number
    assert outcome_of(settles) == outcome_of(*([settle] for settle in settles))


@given(
    st.sets(st.integers(1, MESSAGES), min_size=1),
    st.sampled_from([1, 2, 3, 4]),
    st.booleans(),
)
@settings(max_examples=50)
def test_runs_are_as_their_tags_one_by_one(tags, outcome, settled_before):
    """C2, C4, C5: one settlement of runs has the effect of settlements of each single tag."""
    before = [pb.Settle(delivery_tag=min(tags), outcome=1)] if settled_before else []
    singly = [pb.Settle(delivery_tag=tag, outcome=outcome) for tag in sorted(tags)]
    runs = pb.Settle(outcome=outcome, **runs_of(tags))
    _, refusal, open_, queues = outcome_of([*before, runs])
    _, expected, still_open, left = outcome_of(*([settle] for settle in (*before, *singly)))
    assert refusal == expected
    if refusal is None:
        assert (open_, queues) == (still_open, left)
    else:
        settled = BitMap64(each.delivery_tag for each in before)
        assert open_ == BitMap64(range(1, MESSAGES + 1)) - settled


def test_a_command_for_each_way_to_settle():
    """C15: settlements are coalesced by outcome, reason and delay, where these have a meaning."""
    unacked = UnackedTags()
    unacked.assign(UnackedOwner("c", Outcome), 1, 100_000, 0)
    unacked.last_tag = 100_000
    batch = SettlementBatch(unacked)
    for tag in range(1, 51):
        batch.add(pb.Settle(delivery_tag=tag, outcome=1 + tag % 4, reason="r", delay_ms=7))
    assert batch.add(pb.Settle(delivery_tag=80, outcome=1, multiple=True)) == 30
    assert batch.add(pb.Settle(first_tag=range(82, 8274, 2), rows=[1] * 4096, outcome=1)) == 4096
    found = {c.outcome: (len(c.tags), c.reason, c.delay_ms) for c in batch.drain(b"c" * 16)}
    assert found == {
        Outcome.ACCEPTED: (42 + 4096, "", 0),
        Outcome.FAILED: (13, "r", 7),
        Outcome.REJECTED: (13, "r", 0),
        Outcome.RELEASED: (12, "", 7),
    }
    assert list(batch.drain(b"c" * 16)) == []


def test_a_settlement_returns_the_owners_of_its_tags():
    """C8: a settlement opens the prefetch of each owner by the number of its settled tags."""
    unacked = UnackedTags()
    one, other = UnackedOwner("one", ()), UnackedOwner("other", ())
    unacked.assign(one, 1, 3, 0)
    unacked.assign(other, 4, 3, 0)
    unacked.assign(unacked.pulled, 7, 2, 0)
    assert unacked.prefetched == 6
    touched = unacked.remove(BitMap64([2, 3, 4, 7]))
    assert touched == [one, other, unacked.pulled]
    assert (one.unacked, other.unacked, unacked.pulled.unacked, unacked.prefetched) == (1, 2, 1, 3)
    assert unacked.remove(BitMap64([1])) == [one]
    assert unacked.remove(BitMap64([1])) == []
