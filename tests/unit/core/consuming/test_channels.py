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


def test_a_delivery_keeps_to_its_bytes(harness: Harness) -> None:
    """C8: bytes bound a delivery as messages do, but one message always fits."""
    harness.declare("q")
    harness.publish_to("q", 10, row_bytes=100)
    assert len(harness.deliver("x", "q", 10, max_bytes=350)) == 3
    assert harness.deliver("x", "q", 10, max_bytes=1) == [(4, "m4", 1)]
    assert harness.do(c.Deliver(b"x", "q", 2)).payload_bytes == 200


def test_an_unknown_tag_is_refused_and_nothing_settled(harness: Harness) -> None:
    """C2: a tag settled twice, not given yet, or of another channel; the lowest is named."""
    harness.declare_filled("q", 5)
    harness.deliver("x", "q", 4)
    harness.deliver("y", "q", 1)
    harness.settle("x", Outcome.ACCEPTED, 2)
    for tags, named in (((1, 2), 2), ((9, 7, 1), 7), ((0,), 0)):
        with pytest.raises(
            UnknownDeliveryTagError, match=f"unknown delivery tag {named}:"
        ) as caught:
            harness.settle("x", Outcome.ACCEPTED, *tags)
        assert caught.value.fields["delivery_tag"] == str(named)
    with pytest.raises(UnknownDeliveryTagError, match="the last tag that this channel gave is 1"):
        harness.settle("y", Outcome.ACCEPTED, 2)
    with pytest.raises(UnknownDeliveryTagError, match="unknown delivery tag 1:"):
        harness.settle("z", Outcome.ACCEPTED, 1)
    assert list(views.outstanding(harness.core.state, b"x")) == [1, 3, 4]


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


def test_an_identity_is_the_messages_own(harness: Harness) -> None:
    """L23, C6: an identity keeps its position at a redelivery; a redeclared queue has a new id."""
    harness.declare("q")
    harness.publish_to("q", 3)
    harness.publish_to("q", 2)
    first = identities(harness, "x")
    assert [position for _, position in first] == [1, 2, 3, 4, 5]
    harness.settle("x", Outcome.ACCEPTED, 2)
    harness.settle("x", Outcome.RELEASED, 1, 3, 4, 5)
    assert identities(harness, "y") == [first[at] for at in (0, 2, 3, 4)]
    assert all(piece.identity is None for piece in harness.do(c.Deliver(b"z", "q", 9)).pieces)
    harness.do(c.CloseChannel(b"y"))
    harness.do(c.DeleteQueue("q"))
    harness.declare("q")
    harness.publish_to("q", 3)
    assert not {*first} & {*identities(harness, "z")}


def identities(harness: Harness, channel: str) -> list[tuple[int, int]]:
    """The queue id and position of each message that is delivered to a channel."""
    reply = harness.do(c.Deliver(channel.encode(), "q", 9, identified=True))
    return [
        (piece.identity.queue_id, position)
        for piece in reply.pieces
        for position in piece.identity.positions.tolist()
    ]
