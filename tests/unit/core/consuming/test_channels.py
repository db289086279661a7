"""Channels: what `test_model` does not have, and the cost of tags (C1, C2, C8, C10, C12, C16)."""

import pytest
from pyroaring import BitMap64

from ackq.errors import InvalidArgumentError, QueueNotFoundError, UnknownDeliveryTagError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import PUBLISHER, Harness


def test_nothing_ready_makes_no_record(harness: Harness) -> None:
    """C1: an empty delivery changes nothing; a missing queue is named."""
    harness.declare("q")
    decision = harness.decide(c.Deliver(b"x", "q", 5))
    assert decision == c.Decision((), c.Delivery(1, 0, 0, ()))
    with pytest.raises(QueueNotFoundError, match="'nowhere'"):
        harness.deliver("x", "nowhere")


def test_a_delay_of_a_century_is_refused(harness: Harness) -> None:
    """C14, I6: the refusal of a delay names the longest one allowed."""
    harness.declare_filled("q", 1)
    harness.deliver("x", "q")
    with pytest.raises(InvalidArgumentError, match="a hundred years"):
        harness.settle("x", Outcome.RELEASED, 1, delay_ms=1 << 60)


def test_a_channel_without_messages_leaves_nothing(harness: Harness) -> None:
    """C12, I6: the tag counter of a channel is deleted with it."""
    harness.declare_filled("q", 1)
    before = len(harness.core.snapshot())
    harness.deliver("x", "q")
    harness.settle("x", Outcome.ACCEPTED, 1)
    assert harness.do(c.CloseChannel(b"x")) == 0
    assert len(harness.core.snapshot()) <= before
    harness.publish_to("q", 1)
    assert harness.deliver("x", "q") == [(1, "m2", 1)]


def test_without_acks_messages_are_accepted_at_once(harness: Harness) -> None:
    """C10 NONE: messages get tags that cannot be settled; blocks wait for their reader."""
    harness.declare("q")
    block = harness.publish_to("q", 2).block_id
    delivery = harness.do(c.Deliver(b"x", "q", 5, no_ack=True))
    assert harness.rows(delivery.pieces) == [(1, "m1", 1), (2, "m2", 1)]
    assert views.outstanding(harness.core.state, b"x") == BitMap64()
    assert harness.info("q").accepted == 2
    assert harness.core.drain_dead_blocks() == []
    harness.core.unpin(delivery.pieces)
    assert harness.core.drain_dead_blocks() == [block]
    with pytest.raises(UnknownDeliveryTagError, match="settled before"):
        harness.settle("x", Outcome.ACCEPTED, 1)
    harness.publish_to("q", 1)
    assert harness.deliver("x", "q") == [(3, "m3", 1)]


def test_two_readers_of_a_block_pin_it_twice(harness: Harness) -> None:
    """C10 NONE: a block is freed when its last reader is through."""
    harness.declare("q")
    block = harness.publish_to("q", 2).block_id
    first, second = (harness.do(c.Deliver(b"x", "q", 1, no_ack=True)) for _ in range(2))
    harness.core.unpin(first.pieces)
    assert harness.core.drain_dead_blocks() == []
    harness.core.unpin(second.pieces)
    assert harness.core.drain_dead_blocks() == [block]


def test_woken_queues_are_those_that_gained_messages(harness: Harness) -> None:
    """C8: only queues that gained messages are woken, so the service serves no other consumers."""
    harness.declare("a", "b", "c")
    harness.publish(["a", "b", "b"])
    assert harness.core.drain_woken() == {"a", "b"}
    assert harness.core.drain_woken() == set()
    harness.deliver("x", "a")
    harness.deliver("x", "b")
    assert harness.core.drain_woken() == set()
    harness.settle("x", Outcome.ACCEPTED, 2)
    harness.settle("x", Outcome.RELEASED, 1)
    assert harness.core.drain_woken() == {"a"}
    harness.do(c.CloseChannel(b"x"))
    assert harness.core.drain_woken() == {"b"}
    assert [views.ready(harness.core.state, queue) for queue in "abc"] == [1, 1, 0]
    harness.deliver("x", "a")
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=1000)
    harness.core.drain_woken()
    harness.wait(2)
    assert harness.core.drain_woken() == {"a"}


@pytest.mark.parametrize("step", [1, 2])
def test_unacked_messages_cost_bits(step: int) -> None:
    """C16: a million unacked messages, contiguous or every other one, take a few KiB of state."""
    core, count = Core(), 1_000_000 * step

    def do(command: c.Command) -> c.Decision:
        decision = core.decide(command, 1)
        for record in decision.records:
            core.apply(core.sequence + 1, record)
        return decision

    do(c.Start("history"))
    do(c.OpenPublisher(PUBLISHER))
    do(c.DeclareQueue("q"))
    numbers = BitMap64(range(1, count + 1))
    do(c.Publish(PUBLISHER, numbers, 1, "", False, c.Routes(("q",)), count, count, True))
    before = len(core.snapshot())
    for _ in range(count // 10_000):
        do(c.Deliver(b"x", "q", 10_000))
    if step == 2:
        do(c.Settle(b"x", Outcome.ACCEPTED, BitMap64(range(1, count, 2))))
    assert len(views.outstanding(core.state, b"x")) == 1_000_000
    # Two bitmaps, of tags and of positions.
    assert len(core.snapshot()) - before < 1_000 + (step - 1) * 2 * count // 8 * 1.05
