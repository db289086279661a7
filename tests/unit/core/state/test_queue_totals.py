"""Totals of queues since the process began, which only grow."""

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import REJECTED


def totals(harness):
    """The totals of all queues since the process began, without zeros."""
    found = views.departed_totals(harness.core.state)
    for queue_id in views.queue_ids(harness.core.state).values():
        found.update(harness.core._state.queues[queue_id].totals())
    assert min(found.values(), default=0) >= 0
    return dict(+found)


def test_a_process_begins_at_zero(harness):
    """M2: the counts of an earlier process, and of its end, are not in the totals."""
    harness.declare_filled("q", 3)
    harness.declare_filled("temporary", 2, durable=False)
    harness.deliver("a", "q", 1)
    harness.restart()
    assert totals(harness) == {}
    assert harness.info("q").published == 3  # the journal has all counts of the queue itself
    harness.publish_to("q", 1)
    assert totals(harness) == {"published": 1}


def test_messages_of_a_deleted_queue_are_counted_when_they_are_settled(harness):
    """Q4, M2: accepted, dead-lettered, or dropped instead of put back; also after a restart."""
    harness.declare_filled("q", 5, dead_letter_queue="d")
    tags = [row[0] for row in harness.deliver("k", "q", 4)]
    harness.declare("r")
    reader = harness.lease("q", "r")
    harness.do(c.DeleteQueue("q", force=True))
    for outcome, tag in zip((Outcome.ACCEPTED, Outcome.RELEASED, REJECTED), tags, strict=False):
        harness.settle("k", outcome, tag)
    published, died = 5 + 1, {"dead_lettered:rejected": 1}
    expected = {"accepted": 1, "delivered": 5, "dropped": 1, "published": published} | died
    assert totals(harness) == expected
    harness.restart()
    assert totals(harness) == {}
    reader.advance(1, queues=("r",))
    assert totals(harness) == {"accepted": 1}
