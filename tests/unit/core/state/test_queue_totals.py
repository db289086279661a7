"""Totals of queues since the process began, which only grow."""

from ackq_broker.core import views


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
