"""The session timeout (S5): refusals, reasons of holes; leases: `test_model_sessions`."""

from functools import partial

import pytest

from ackq.errors import CheckpointMismatchError, FencedError, InvalidArgumentError, LeaseHeldError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, BOB, DAY_US, REJECTED, RELEASED, group, refused


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


def test_the_old_epoch_is_refused(harness, reader):
    """S3, S5: fetches, heartbeats and settle calls of the old epoch are refused as fenced."""
    reader.note()
    reader.detach()
    known = (harness.core.state, "s", reader.command.incarnation, 1, ALICE.token)
    for call in (
        partial(reader.fetch, 0, 6),
        partial(views.check_holder, *known),
        partial(reader.stage, "a", group(RELEASED, 1)),
    ):
        refused(FencedError, r"held by nobody .* away for too long", call)


def test_a_timeout_is_as_the_last_call_says(harness, reader):
    """S5: the last call's timeout counts, changed by a record; 0 is never."""
    for timeout_ms in (2000, 0):
        records = len(harness.log)
        reader.advance(0, session_timeout_ms=timeout_ms)
        reader.advance(0, session_timeout_ms=timeout_ms)
        reader.attach(0, 6)
        assert len(harness.log) == records + 1
        assert reader.info().session_timeout_ms == timeout_ms
    refused(InvalidArgumentError, "session timeout", reader.advance, 0, session_timeout_ms=-1)


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


def test_a_horizon_does_not_keep_a_session_from_its_own(harness, reader):
    """K5, S5: messages of the session's lease are eligible, whenever they were requeued."""
    horizon = harness.core.sequence
    reader.detach()
    assert reader.advance(0, horizon=horizon).end_tag == 6
    assert reader.advance(6, horizon=horizon).end_tag == 10
    assert reader.advance(10, horizon=horizon).end_tag == 10


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


def test_a_detached_session_is_replaced_or_released(harness, reader):
    """S9: it holds no message, so none is requeued twice."""
    reader.detach()
    opened = harness.open("q", holder=BOB)
    (warning,) = opened.reply.warnings
    assert warning.endswith(f"{reader.command.incarnation} is refused from now on.")
    opened.advance(0)
    refused(LeaseHeldError, "10 messages", harness.open, "q")
    opened.detach()
    assert harness.do(c.ReleaseSession("s")) == c.Released(0, 0)
    assert (harness.ready("q"), len(harness.core._state.queues[1].watched)) == (10, 0)


def test_an_unproven_session_that_held_a_lease_stays(harness):
    """S5, S9: under Trigger.Once a checkpoint may name it, and return next week."""
    harness.declare_filled("q", 3)
    reader = harness.open("q", open_and_lease=True, session_timeout_ms=1)
    reader.detach()
    assert not reader.info().proven
    harness.housekeep_after(7 * DAY_US)
    reader.advance(0)
    assert reader.fetch(0, 3) == ["m1", "m2", "m3"]
