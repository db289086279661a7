"""Publishing: every number gets one answer, every accepted number one place."""

from dataclasses import replace

import pytest
from pyroaring import BitMap, BitMap64

from ackq.errors import InvalidArgumentError, PublisherForgottenError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US, PUBLISHER, Harness


def answers(reply: c.Published) -> list[int]:
    return sorted([*reply.confirmed, *(n for nack in reply.nacks for n in nack.numbers)])


def test_every_number_gets_one_answer(harness: Harness) -> None:
    """P3: placed, unroutable and nacked rows of one block are answered once each."""
    harness.declare("small", max_length=2)
    reply = harness.publish(["small", "nowhere", "small", "small", "nowhere"])
    assert answers(reply) == [1, 2, 3, 4, 5]
    assert list(reply.confirmed) == [1, 2, 3, 5]
    assert list(reply.returned) == [2, 5]
    assert harness.browse("small") == ["m1", "m3"]


@pytest.mark.parametrize(
    ("queue", "persistent", "durable"),
    [("kept", True, True), ("kept", False, False), ("lost", True, False), ("both", True, True)],
)
def test_what_a_confirm_waits_for(
    harness: Harness, queue: str, *, persistent: bool, durable: bool
) -> None:
    """P4, P5: its record, if one queue keeps the message over a restart; else the topology."""
    harness.declare("kept")
    harness.declare("lost", durable=False)
    harness.bind("x", "topic", kept="both", lost="both")
    harness.do(c.Bind("x", "kept", "kept"))
    harness.do(c.Bind("x", "lost", "lost"))
    topology = harness.core.sequence
    harness.publish([queue], exchange="x", persistent=persistent)
    decision = harness.decide(harness.command([queue], exchange="x", persistent=persistent))
    assert decision.reply.durable is durable
    assert decision.reply.block_id is not None
    assert decision.after == (None if durable else topology)
    assert len(decision.records) == 1


def mixed(harness: Harness, keys: list[str], transient: list[int]) -> c.Published:
    """Publishes one block, some rows of which are transient."""
    return harness.send(replace(harness.command(keys), transient=BitMap(transient)))


def test_rows_keep_their_order_whatever_their_modes(harness: Harness) -> None:
    """P12, Q7: rows keep their order, and a restart drops the transient ones alone."""
    harness.declare("q", "r")
    mixed(harness, ["q", "r", "q", "q", "r", "q"], [0, 2, 4])
    harness.do(c.Deliver(b"channel", "q", 2))
    assert harness.browse("q") == ["m1", "m3", "m4", "m6"]
    assert harness.browse("r") == ["m2", "m5"]
    assert len(views.live_blocks(harness.core.state)) == 1
    assert harness.restart() == 3
    assert harness.browse("q") == ["m4", "m6"]
    assert harness.browse("r") == ["m2"]
    assert harness.restart() == 0


def test_transient_rows_of_a_durable_block_are_confirmed_sooner(harness: Harness) -> None:
    """P5: transient rows are confirmed when enqueued, and with the others, whichever is first."""
    harness.declare("q", "r")
    topology = harness.core.sequence
    reply = mixed(harness, ["q", "nowhere", "q", "r"], [0, 1, 3])
    assert reply.durable is True
    assert reply.sooner == (BitMap64([1, 4]), topology)
    assert list(reply.confirmed) == [1, 2, 3, 4]
    assert mixed(harness, ["q", "q"], [0, 1]).durable is False
    assert harness.publish(["q", "q"]).sooner is None


def test_a_known_number_is_confirmed_though_its_exchange_is_gone(harness: Harness) -> None:
    """P8, P10: a number that is in a queue is never nacked."""
    harness.declare("q")
    harness.bind("x", "fanout", q="")
    harness.publish(["k"], exchange="x")
    harness.do(c.DeleteExchange("x"))
    reply = harness.publish(["k", "k"], numbers=[1, 2], exchange="x")
    assert list(reply.confirmed) == [1]
    assert list(reply.nacks[0].numbers) == [2]


def test_a_retransmission_waits_for_what_was_decided(harness: Harness) -> None:
    """P5, P10: also with new rows that are transient, which are confirmed early by themselves."""
    harness.declare_filled("q", 2)
    decision = harness.decide(harness.command(["q"] * 2, numbers=[1, 2]))
    assert decision.records == ()
    assert decision.after is None
    assert list(decision.reply.confirmed) == [1, 2]
    decision = harness.decide(harness.command(["q"] * 2, numbers=[2, 3], persistent=False))
    assert decision.after is None


def test_numbers_below_the_lowest_unanswered_are_forgotten_and_stay_answered(
    harness: Harness,
) -> None:
    """P10: the broker drops such numbers; a late one is confirmed, never placed."""
    harness.declare_filled("q", 3)
    harness.publish_to("q", 1, lowest=4)
    assert views.missing(harness.core.state, PUBLISHER, 1, 6) == [(5, 6)]
    reply = harness.publish_to("q", 1, numbers=[2], lowest=1)
    assert list(reply.confirmed) == [2]
    assert harness.ready("q") == 4


def test_the_lowest_unanswered_itself_is_placed(harness: Harness) -> None:
    """P10: only lower numbers were answered, so a late frame with both places this one."""
    harness.declare("q")
    harness.publish_to("q", 1, numbers=[1])
    harness.publish_to("q", 1, numbers=[3], lowest=2)
    harness.publish_to("q", 2, numbers=[1, 2], lowest=1)
    assert harness.ready("q") == 3


def test_a_number_below_its_own_frame_s_lowest_unanswered_is_refused(harness: Harness) -> None:
    """P10: such a number could be neither placed nor confirmed truthfully."""
    harness.declare("q")
    with pytest.raises(InvalidArgumentError, match="number 1 is below 2"):
        harness.publish_to("q", 1, lowest=2)


def test_a_persistent_message_in_a_non_durable_queue_is_a_transient_number(
    harness: Harness,
) -> None:
    """P5, P10: the message is lost in a restart, so a retransmission is not confirmed as placed."""
    harness.declare("kept")
    harness.declare("lost", durable=False)
    harness.publish(["kept", "lost"])
    harness.restart()
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    reply = harness.publish(["kept", "lost"], numbers=[1, 2])
    assert list(reply.returned) == [2]
    assert harness.ready("kept") == 1


def test_a_forgotten_publisher_is_refused(harness: Harness) -> None:
    """P10: the state is deleted seven days after the last stream; a resume is refused then."""
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.housekeep_after(7 * DAY_US - 10)
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.housekeep_after(7 * DAY_US + 10)
    with pytest.raises(PublisherForgottenError, match="outcome of its unconfirmed publishes"):
        harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    with pytest.raises(PublisherForgottenError):
        harness.publish_to("q", 1)
    with pytest.raises(PublisherForgottenError):
        views.missing(harness.core.state, PUBLISHER, 1, 1)


def test_a_restart_ends_all_streams(harness: Harness) -> None:
    """P10: publishers that do not return after a restart are forgotten in time."""
    harness.restart()
    harness.housekeep_after(7 * DAY_US + 10)
    with pytest.raises(PublisherForgottenError):
        harness.do(c.OpenPublisher(PUBLISHER, resume=True))


def test_opening_twice_is_one_publisher(harness: Harness) -> None:
    """P10: an open that is repeated because its answer was lost changes nothing."""
    assert harness.decide(c.OpenPublisher(PUBLISHER)).records == ()


def test_a_transient_row_stays_so_when_it_is_moved(harness: Harness) -> None:
    """P12, C13: a dead letter has the delivery mode of its message."""
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead")
    mixed(harness, ["q"] * 4, [1, 2])
    harness.do(c.Deliver(b"channel", "q", 4))
    harness.do(c.Settle(b"channel", Outcome.REJECTED, up_to=4))
    assert harness.browse("dead") == ["m1", "m2", "m3", "m4"]
    assert harness.restart() == 2
    assert harness.browse("dead") == ["m1", "m4"]
