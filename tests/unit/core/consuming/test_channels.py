"""Channels: what `test_model` does not have, and the cost of tags (C1, C2, C8, C10, C12, C16)."""

import pytest
from pyroaring import BitMap64

from ackq.errors import InvalidArgumentError, QueueNotFoundError, UnknownDeliveryTagError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import PUBLISHER, RELEASED, Unchecked, refused


def test_nothing_ready_makes_no_record(harness):
    """C1: an empty delivery changes nothing; a missing queue is named."""
    harness.declare("q")
    decision = harness.decide(c.Deliver(b"x", "q", 5))
    assert decision == c.Decision((), c.Delivery(1, 0, 0, ()))
    refused(QueueNotFoundError, "'nowhere'", harness.deliver, "x", "nowhere")


def test_a_delay_of_a_century_is_refused(harness):
    """C14, I6: the refusal of a delay names the longest one allowed."""
    harness.declare_filled("q", 1)
    harness.deliver("x", "q")
    delay = {"delay_ms": 1 << 60}
    refused(InvalidArgumentError, "a hundred years", harness.settle, "x", RELEASED, 1, **delay)


def test_a_channel_without_messages_leaves_nothing(harness):
    """C12, I6: the tag counter of a channel is deleted with it."""
    harness.declare_filled("q", 1)
    before = len(harness.core.snapshot())
    harness.deliver("x", "q")
    harness.settle("x", Outcome.ACCEPTED, 1)
    assert harness.do(c.CloseChannel(b"x")) == 0
    assert len(harness.core.snapshot()) <= before
    harness.publish_to("q", 1)
    assert harness.deliver("x", "q") == [(1, "m2", 1)]


def test_without_acks_messages_are_accepted_at_once(harness):
    """C10 NONE: tags cannot be settled; a block is freed when its last reader is through."""
    harness.declare("q")
    block = harness.publish_to("q", 2).block_id
    first, second = (harness.do(c.Deliver(b"x", "q", 1, no_ack=True)) for _ in range(2))
    assert harness.rows(first.pieces + second.pieces) == [(1, "m1", 1), (2, "m2", 1)]
    assert views.outstanding(harness.core.state, b"x") == BitMap64()
    assert harness.info("q").accepted == 2
    harness.core.unpin(first.pieces)
    assert harness.core.drain_dead_blocks() == []
    harness.core.unpin(second.pieces)
    assert harness.core.drain_dead_blocks() == [block]
    refused(UnknownDeliveryTagError, "settled before", harness.settle, "x", Outcome.ACCEPTED, 1)
    harness.publish_to("q", 1)
    assert harness.deliver("x", "q") == [(3, "m3", 1)]


def test_woken_queues_are_those_that_gained_messages(harness):
    """C8: only queues that gained messages are woken, so the service serves no other consumers."""
    harness.declare("a", "b", "c")
    harness.publish(["a", "b", "b"])
    assert harness.core.drain_woken() == {"a", "b"}
    assert harness.core.drain_woken() == set()
    harness.deliver("x", "a")
    harness.deliver("x", "b")
    assert harness.core.drain_woken() == set()
    harness.settle("x", Outcome.ACCEPTED, 2)
    harness.settle("x", RELEASED, 1)
    assert harness.core.drain_woken() == {"a"}
    harness.do(c.CloseChannel(b"x"))
    assert harness.core.drain_woken() == {"b"}
    assert [views.ready(harness.core.state, queue) for queue in "abc"] == [1, 1, 0]
    harness.deliver("x", "a")
    harness.settle("x", RELEASED, 1, delay_ms=1000)
    harness.core.drain_woken()
    harness.wait(2)
    assert harness.core.drain_woken() == {"a"}


@pytest.mark.parametrize("step", [1, 2])
def test_unacked_messages_cost_bits(step):
    """C16: a million unacked messages, contiguous or every other one, take a few KiB of state."""
    harness, count = Unchecked(), 1_000_000 * step
    harness.declare("q")
    rows = (BitMap64(range(1, count + 1)), 1, "", False, c.Routes(("q",)), count, count, True)
    harness.do(c.Publish(PUBLISHER, *rows))
    before = len(harness.core.snapshot())
    for _ in range(count // 10_000):
        harness.do(c.Deliver(b"x", "q", 10_000))
    if step == 2:
        harness.do(c.Settle(b"x", Outcome.ACCEPTED, BitMap64(range(1, count, 2))))
    assert len(views.outstanding(harness.core.state, b"x")) == 1_000_000
    # Two bitmaps, of tags and of positions.
    assert len(harness.core.snapshot()) - before < 1_000 + (step - 1) * 2 * count // 8 * 1.05
