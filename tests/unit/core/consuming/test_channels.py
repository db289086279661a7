"""Channels: what `test_model` does not have, and the cost of tags (C1, C2, C8, C10, C12, C16)."""

from pyroaring import BitMap64

from ackq.errors import UnknownDeliveryTagError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import PUBLISHER, RELEASED, Unchecked, refused


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
    harness.declare("a", "b")
    harness.publish(["a", "b"])
    assert harness.core.drain_woken() == {"a", "b"}
    harness.deliver("x", "a")
    harness.deliver("x", "b")
    assert harness.core.drain_woken() == set()
    harness.settle("x", RELEASED, 1, delay_ms=1000)
    assert harness.core.drain_woken() == set()
    harness.do(c.CloseChannel(b"x"))
    assert harness.core.drain_woken() == {"b"}
    harness.wait(2)
    assert harness.core.drain_woken() == {"a"}


def test_unacked_messages_cost_bits():
    """C16: a million unacked messages, every other one of two, take a few hundred KiB of state."""
    harness, count = Unchecked(), 2_000_000
    harness.declare("q")
    rows = (BitMap64(range(1, count + 1)), 1, "", False, c.Routes(("q",)), count, count, True)
    harness.do(c.Publish(PUBLISHER, *rows))
    before = len(harness.core.snapshot())
    harness.do(c.Deliver(b"x", "q", count))
    harness.do(c.Settle(b"x", Outcome.ACCEPTED, BitMap64(range(1, count, 2))))
    # Two bitmaps, of tags and of positions.
    assert len(harness.core.snapshot()) - before < 1_000 + 2 * count // 8 * 1.05
