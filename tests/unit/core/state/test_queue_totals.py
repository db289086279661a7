"""Totals of queues since the process began, which only grow."""

import pytest

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import Harness


@pytest.fixture
def h():
    return Harness()


def totals(h):
    """The totals of all queues since the process began, without zeros."""
    found = views.departed_totals(h.core.state)
    for queue_id in views.queue_ids(h.core.state).values():
        found.update(h.core._state.queues[queue_id].totals())
    assert min(found.values(), default=0) >= 0
    return dict(+found)


def test_a_deleted_queue_that_messages_still_hold_is_counted_once(h):
    """M2, Q4: it leaves the list at once, and the state with its last message."""
    h.declare_filled("q", 3)
    h.deliver("a", "q", 3)
    h.do(c.DeleteQueue("q", force=True))
    assert totals(h) == {"published": 3, "delivered": 3}
    h.settle("a", Outcome.ACCEPTED, 1, 2, 3)
    assert totals(h) == {"published": 3, "delivered": 3}


def test_a_process_begins_at_zero(h):
    """M2: the counts of an earlier process, and of its end, are not in the totals."""
    h.declare_filled("q", 3)
    h.declare_filled("temporary", 2, durable=False)
    h.deliver("a", "q", 1)
    h.restart()
    assert totals(h) == {}
    assert h.info("q").published == 3  # the journal has all counts of the queue itself
    h.publish_to("q", 1)
    assert totals(h) == {"published": 1}
