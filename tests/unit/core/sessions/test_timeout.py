"""The session timeout (S5): refusals, reasons of holes; leases: `test_model_sessions`."""

import pytest

from ackq.errors import CheckpointMismatchError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, REJECTED, group, refused


@pytest.fixture
def reader(harness):
    """A query that holds the tags 1 to 6 of ten messages, with a timeout of one second."""
    harness.declare("q", dead_letter_queue="dead")
    harness.publish_to("q", 6, ttls_ms=[0, 0, 0, 0, 5000, 0])
    harness.publish_to("q", 4)
    reader = harness.open("q", session_timeout_ms=1000)
    reader.advance(0, max_messages=6)
    return reader


def take(harness, count):
    """Another consumer gets the lowest messages, and accepts them."""
    tags = [row[0] for row in harness.deliver("k", "q", count)]
    harness.settle("k", Outcome.ACCEPTED, *tags)


def test_a_detach_of_what_is_another_by_now_does_nothing(harness, reader):
    """S5: such a detach names another epoch or incarnation, or finds no lease to detach."""
    records = len(harness.log)
    incarnation = reader.command.incarnation
    for name, which, epoch in (("s", incarnation, 2), ("s", "other", 1), ("t", incarnation, 1)):
        assert harness.do(c.DetachSession(name, which, epoch)) == c.Released(0, 0)
    assert len(harness.log) == records
    reader.detach()
    assert reader.detach() == c.Released(0, 0)
    reader.advance(6, min_messages=99)
    assert reader.detach() == c.Released(0, 0)


def test_an_accept_after_the_timeout_leaves_a_dead_letter_its_room(harness):
    """S5, Q3: messages put back with a delay are not ready, so they push nothing out."""
    harness.declare("dead", max_length=3, overflow="drop-head")
    harness.declare("q", dead_letter_queue="dead")
    harness.publish_to("dead", 3)
    harness.publish_to("q", 1)
    reader = harness.lease("dead", "q", session_timeout_ms=1000)
    reader.note()
    reader.say(group(Outcome.RELEASED, 1, 2, 3), group(REJECTED, 4))
    reader.detach()
    reader.advance(4, queues=("dead", "q"))
    dead = harness.info("dead")
    assert (dead.ready, dead.delayed, dead.dropped) == (1, 3, 0)


def test_reasons_of_messages_that_are_gone(harness):
    """S5: expired, purged, vanished, taken or deleted messages count by their reason."""
    harness.declare("q", "lost", "x")
    harness.publish(["q", "q", "lost", "x", "q"], ttls_ms=[0, 1000, 0, 0, 0])
    harness.publish_to("q", 1, persistent=False)
    reader = harness.lease("q", "lost", "x")
    reader.detach()
    take(harness, 1)
    harness.wait(1.1)
    harness.do(c.DeleteQueue("lost", force=True))
    harness.restart()
    harness.do(c.PurgeQueue("q"))
    reader.advance(0, queues=("q", "x"))
    assert reader.fetch(0, 6) == ["m4"]
    reasons = {"expired": 1, "purged": 2, "taken": 1, "vanished": 1}
    assert dict(reader.info().holes_by_reason) == reasons


def test_reasons_of_messages_that_moved_or_fell_out(harness):
    """S5, Q3, Q6: messages expired to a dead-letter queue, redriven, over a bound, or overdue."""
    harness.declare("dead", max_length=4, overflow="drop-head")
    harness.declare_filled("q", 1, dead_letter_queue="dead", message_ttl_ms=2000)
    harness.settle("k", REJECTED, *[row[0] for row in harness.deliver("k", "q")])
    harness.publish_to("dead", 2)
    harness.publish_to("q", 1)
    reader = harness.lease("dead", "q")
    reader.detach()
    harness.now_us += 3_000_000
    assert harness.do(c.Redrive("dead"))[0] == 1
    harness.publish_to("dead", 3)
    reader.advance(0)
    assert reader.fetch(0, 4) == ["m3"]
    assert reader.info().holes_by_reason == (("expired", 1), ("purged", 1), ("taken", 1))
    harness.wait(1)
    assert harness.browse("dead")[-1] == "m4"


def test_a_queue_that_is_left_out_at_the_re_attach(harness, reader):
    """S5, S10: leaving it out is refused while the lease would get messages of it."""
    harness.declare("r")
    reader.detach()
    refused(CheckpointMismatchError, "6 messages of queue 'q'", reader.advance, 0, queues=("r",))
    assert reader.info().detached
    harness.do(c.PurgeQueue("q"))
    assert reader.advance(0, queues=("r",)).end_tag == 6


def test_two_detached_sessions_of_one_queue(harness, reader):
    """S5: each session learns the reasons of its own holes."""
    reader.detach()
    other = harness.lease("q", session="t", holder=BOB, max_messages=4)
    other.detach()
    take(harness, 2)
    reader.advance(0)
    reader.advance(6, max_messages=1)
    other.advance(0)
    assert other.info().holes_by_reason == (("taken", 4),)
    assert reader.info().holes_by_reason == ()
    harness.do(c.ReleaseSession("s"))
    harness.do(c.ReleaseSession("t"))
    queue = harness.core._state.queues[1]
    assert (len(queue.watched), queue.departed) == (0, {})
