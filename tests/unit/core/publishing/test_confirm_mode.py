"""Publishing in confirm mode: every number gets one answer, every accepted number one place."""

from dataclasses import replace

import pytest
from pyroaring import BitMap, BitMap64

from ackq.errors import InvalidArgumentError
from ackq_broker.core import commands as c
from ackq_broker.core import records, views
from tests.unit.core.harness import PUBLISHER, REJECTED, refused

OTHERS = (b"2" * 16, b"3" * 16)
EVERY = (PUBLISHER, *OTHERS)


def test_every_number_gets_one_answer(harness):
    """P3: placed, unroutable and nacked rows of one block are answered once each."""
    harness.declare("small", max_length=2)
    reply = harness.publish(["small", "nowhere", "small", "small", "nowhere"])
    assert [list(nack.numbers) for nack in reply.nacks] == [[4]]
    assert (list(reply.confirmed), list(reply.returned)) == ([1, 2, 3, 5], [2, 5])
    assert harness.browse("small") == ["m1", "m3"]


@pytest.mark.parametrize(
    ("queue", "persistent", "durable"),
    [("kept", True, True), ("kept", False, False), ("lost", True, False), ("both", True, True)],
)
def test_what_a_confirm_waits_for(harness, queue, *, persistent, durable):
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


def mixed(harness, keys, transient):
    """Publishes one block, some rows of which are transient."""
    return harness.send(replace(harness.command(keys), transient=BitMap(transient)))


def test_rows_keep_their_order_and_their_modes(harness):
    """P12, Q7, C13: a restart drops the transient rows alone, of dead letters as well."""
    harness.declare("r", dead_letter_queue="dead")
    harness.declare("dead")
    mixed(harness, [*"qrqqrqrr"], [0, 2, 4, 6])
    harness.deliver("k", "q", 2)
    assert harness.browse("q") == ["m1", "m3", "m4", "m6"]
    harness.deliver("l", "r")
    harness.settle("l", REJECTED, up_to=4)
    assert harness.browse("dead") == ["m2", "m5", "m7", "m8"]
    assert len(views.live_blocks(harness.core.state)) == 1
    assert harness.restart() == 4
    assert (harness.browse("q"), harness.browse("dead")) == (["m4", "m6"], ["m2", "m8"])
    assert harness.restart() == 0


def test_transient_rows_of_a_durable_block_are_confirmed_sooner(harness):
    """P5: transient rows are confirmed when enqueued, and with the others, whichever is first."""
    harness.declare("r")
    topology = harness.core.sequence
    reply = mixed(harness, ["q", "nowhere", "q", "r"], [0, 1, 3])
    assert reply.durable is True
    assert reply.sooner == (BitMap64([1, 4]), topology)
    assert list(reply.confirmed) == [1, 2, 3, 4]
    assert mixed(harness, ["q", "q"], [0, 1]).durable is False
    assert harness.publish(["q", "q"]).sooner is None


def test_a_known_number_is_confirmed_though_its_exchange_is_gone(harness):
    """P8, P10: a number that is in a queue is never nacked."""
    harness.bind("x", "fanout", q="")
    harness.publish(["k"], exchange="x")
    harness.do(c.DeleteExchange("x"))
    reply = harness.publish(["k", "k"], numbers=[1, 2], exchange="x")
    assert (list(reply.confirmed), list(reply.nacks[0].numbers)) == ([1], [2])


def test_a_retransmission_waits_for_what_was_decided(harness):
    """P5, P10: also with new rows that are transient, which are confirmed early by themselves."""
    harness.publish_to("q", 2)
    decision = harness.decide(harness.command(["q"] * 2, numbers=[1, 2]))
    assert (decision.records, decision.after) == ((), None)
    assert list(decision.reply.confirmed) == [1, 2]
    decision = harness.decide(harness.command(["q"] * 2, numbers=[2, 3], persistent=False))
    assert decision.after is None


def test_numbers_below_the_lowest_unanswered_stay_answered(harness):
    """P10: a late one is confirmed, never placed; the lowest itself is, and none below its own."""
    harness.publish_to("q", 1, numbers=[1])
    harness.publish_to("q", 1, numbers=[3], lowest=2)
    assert views.missing(harness.core.state, PUBLISHER, 1, 5) == [(2, 2), (4, 5)]
    late = harness.publish_to("q", 2, numbers=[1, 2], lowest=1)
    assert (list(late.confirmed), harness.ready("q")) == ([1, 2], 3)
    told = "number 1 is below 2"
    refused(InvalidArgumentError, told, harness.publish_to, "q", 1, numbers=[1], lowest=2)


def test_a_persistent_message_in_a_non_durable_queue_is_a_transient_number(harness):
    """P5, P10: the message is lost in a restart, so a retransmission is not confirmed as placed."""
    harness.declare("lost", durable=False)
    harness.publish(["q", "lost"])
    harness.restart()
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    assert list(harness.publish(["q", "lost"], numbers=[1, 2]).returned) == [2]
    assert harness.ready("q") == 1


# --- a row of each of several publishers in one block ---


@pytest.fixture
def three(harness):
    """The harness with three publishers."""
    for other in OTHERS:
        harness.do(c.OpenPublisher(other))
    return harness


def together(*numbers, **changes):
    """A row of 10 bytes of each publisher."""
    count = len(numbers)
    rows = (EVERY[:count], numbers, (1,) * count, "", c.Routes(("q",)), 10 * count)
    return replace(c.PublishTogether(*rows), **changes)


def test_each_row_is_a_publish_of_its_publisher(three):
    """P4, P10: one record and block; each number is its publisher's, after a restart as well."""
    decision = three.decide(together(5, 1, 7))
    assert decision.reply is True
    (record,) = decision.records
    assert isinstance(record, records.PublishedTogether)
    assert len(views.live_blocks(three.core.state)) == 1
    three.restart()
    for publisher, number in zip(EVERY, (5, 1, 7), strict=True):
        unknown = [n for n in (1, 5, 7) if views.missing(three.core.state, publisher, n, n)]
        assert unknown == sorted({1, 5, 7} - {number})
    assert (three.ready("q"), three.info("q").payload_bytes) == (3, 30)


@pytest.mark.parametrize(
    "changes",
    [
        {"numbers": (2, 4, 1)},  # seen before
        {"lowest_unanswered": (1, 2, 1)},  # its own number is reported as answered
        {"publisher_ids": (PUBLISHER, OTHERS[0], b"unknown".ljust(16))},
        {"publisher_ids": (PUBLISHER, OTHERS[0], b"transactional".ljust(16))},
        {"exchange": "none"},
        {"routes": c.Routes(("none",))},
        {"routes": c.Routes(("memory",))},
        {"routes": c.Routes(("small",))},
    ],
)
def test_rows_that_differ_in_their_answers_decide_nothing(three, changes):
    """P3, P8, P10, P5: no row is placed, and each may be published by itself."""
    three.do(c.OpenPublisher(b"transactional".ljust(16), transactional=True))
    three.declare("memory", durable=False)
    three.declare("small", max_length=2)
    assert three.do(together(1, 4)) is True
    assert three.decide(replace(together(2, 1, 1), **changes)) == c.Decision(reply=False)


def test_what_a_frame_calls_answered_is_forgotten_for_its_publisher(three):
    """P10: the lowest unanswered number is each publisher's own."""
    three.do(together(3, 3, 3))
    three.do(together(9, 9, 9, lowest_unanswered=(1, 9, 4)))
    numbers = [list(three.core.state.publishers[each].accepted) for each in EVERY]
    assert numbers == [[3, 9], [9], [9]]
