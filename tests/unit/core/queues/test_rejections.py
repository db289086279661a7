"""Rejections that are forwarded to the remote broker (L28, `on-reject`)."""

import pytest
from pyroaring import BitMap

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import group
from tests.unit.core.link_process import LinkProcess, expanded, settle

REJECTED, FAILED = Outcome.REJECTED, Outcome.FAILED


@pytest.fixture
def there(harness):
    """A link with forwarded rejections; its queue q has the dead-letter queue `dead`."""
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead", delivery_limit=1)
    process = LinkProcess(harness, reject_there=True)
    process.subscribe()
    return process


def test_the_delivery_limit_rejects(there):
    """C13, L28: one FAILED too many is a rejection; earlier ones, and RELEASED, requeue locally."""
    there.store(["a", "b"])
    settle(there.harness, FAILED, 1)
    settle(there.harness, Outcome.RELEASED, 2)
    assert there.outcomes() == ([], set())
    settle(there.harness, FAILED, 1)
    assert there.outcomes() == ([1], {1})
    assert dict(there.harness.info("q").dead_letters) == {"delivery_limit": 1}


def test_a_query_rejects_there(there):
    """S6, L28: forwarded at the accept of its batch, which can be run again with the same rows."""
    harness = there.harness
    there.store(["a", "b"])
    reader = harness.lease("q", max_messages=2)
    reader.note()
    reader.say(group(REJECTED, 2, reason="no date"))
    assert there.outcomes() == ([], set())
    reader.advance(2)
    assert there.outcomes() == ([2, 1], {2})
    assert reader.fetch(0, 2) == ["a", "b"]
    assert harness.ready("dead") == 0


def test_what_may_be_acknowledged_is_a_dead_letter_here(there):
    """L6, L10, L28: its acknowledgement may have been sent, until the message comes again."""
    harness = there.harness
    there.store(["a", "b", "c"], at_once=BitMap((0, 1, 2)))
    settle(harness, REJECTED, 1)
    there.subscribe()
    settle(harness, REJECTED, 2)
    assert harness.ready("dead") == 2
    assert not there.state().rejected
    assert there.matched(["c"], redelivered=True) == [True]
    settle(harness, REJECTED, 3)
    assert there.outcomes() == ([3], {3})


def test_numbers_that_come_again_are_answered_alike(there):
    """L5, L28: a repeated frame is answered with the outcome."""
    there.store(["a", "b"])
    settle(there.harness, REJECTED, 2)
    there.permit()
    again = there.store(["a", "b"], first=1)
    assert [run[1:] for run in expanded(again)] == [(1, False, False), (2, False, True)]
    assert [run.rejected for run in again.runs] == [False, True]


def test_after_another_history_it_is_a_dead_letter_here(there):
    """L27: the record of its permit may be missing; a redelivered message is rejected remotely."""
    harness = there.harness
    there.store(["a", "b"])
    harness.do(c.Start("other", "copied"))
    harness.do(c.AcceptHistory())
    settle(harness, REJECTED, 1)
    assert harness.ready("dead") == 1
    there.open()
    there.subscribe()
    assert there.matched(["b"]) == [True]
    settle(harness, REJECTED, 2)
    assert there.outcomes() == ([2], {2})


def test_what_expires_stays_here(harness):
    """L9, L28: an expired message is a local dead letter, and no forwarded rejection."""
    harness.declare("q", message_ttl_ms=1_000, dead_letter_queue="gone")
    process = LinkProcess(harness, reject_there=True)
    process.subscribe()
    process.store(["a"])
    harness.wait(10)
    assert process.outcomes() == ([1], set())
    assert harness.ready("ackq.dead") == 1


@pytest.mark.parametrize("discard", [False, True])
def test_a_query_s_rejections_outlive_their_link_s_option(harness, *, discard):
    """S6, L28: without `discard` none is dropped if the link rejects here before the accept."""
    harness.declare("q")
    process = LinkProcess(harness, reject_there=True)
    process.subscribe()
    process.store(["a"])
    harness.publish_to("q", 1)
    reader = harness.lease("q")
    reader.note()
    reader.commit(reader.stage("s", group(REJECTED, 1, 2), discard=discard))
    process.open(reject_there=False)
    reader.advance(2)
    queue = harness.info("q")
    assert (queue.dropped, queue.dead_lettered) == ((2, 0) if discard else (0, 2))
    assert process.outcomes() == ([1], set())
