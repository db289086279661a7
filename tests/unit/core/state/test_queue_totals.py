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


def test_deliveries_of_channels_and_leases(h):
    """M2: both count as delivered; a requeued message counts as redelivered, too."""
    h.declare_filled("q", 5)
    h.deliver("a", "q", 2)
    h.settle("a", Outcome.RELEASED, 1, 2)
    info = h.info("q")
    assert (info.delivered, info.redelivered) == (2, 0)
    h.lease("q")
    info = h.info("q")
    assert (info.delivered, info.redelivered) == (7, 2)


def test_dead_letters_by_cause(h):
    """M2, C13: a dead letter counts in its old queue, by its cause."""
    h.declare("dead")
    h.declare("q", dead_letter_queue="dead", delivery_limit=1)
    h.publish_to("q", 4)
    h.deliver("a", "q", 4)
    h.settle("a", Outcome.REJECTED, 1)
    h.settle("a", Outcome.FAILED, 2, 3)
    h.deliver("a", "q", 2)
    h.settle("a", Outcome.FAILED, 5, 6)
    assert h.info("q").dead_letters == (("delivery_limit", 2), ("rejected", 1))
    assert h.info("dead").dead_letters == ()
    assert totals(h)["dead_lettered:delivery_limit"] == 2


def test_a_queue_that_is_deleted_takes_no_count_along(h):
    """M2: else a monitoring system would take it for a restart, and count all again."""
    h.declare_filled("kept", 2)
    h.declare_filled("gone", 3)
    before = totals(h)
    h.do(c.DeleteQueue("gone", force=True))
    assert totals(h) == before == {"published": 5}


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
