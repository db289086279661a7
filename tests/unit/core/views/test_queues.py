"""Lists of queues, by pattern and by page (Q5)."""

import pytest

from ackq.outcomes import Outcome
from ackq_broker.core import views


@pytest.fixture
def core(harness):
    """Queues with no message, and with a ready, an unacked and a delayed message."""
    harness.declare("orders.eu", "orders.us", "x[1]", "unacked", "delayed", "empty")
    harness.publish(["orders.eu", "unacked", "delayed"])
    harness.deliver("y", "unacked")
    harness.consume("delayed", Outcome.FAILED, delay_ms=60_000)
    return harness.core


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["delayed", "empty", "orders.eu", "orders.us", "unacked", "x[1]"]),
        ({"pattern": "orders.*"}, ["orders.eu", "orders.us"]),
        ({"pattern": "orders.?s"}, ["orders.us"]),
        ({"pattern": "x[1]"}, ["x[1]"]),
        ({"pattern": "order"}, []),
        ({"not_empty": True}, ["delayed", "orders.eu", "unacked"]),
        ({"limit": 2}, ["delayed", "empty"]),
        ({"limit": 2, "after": "empty"}, ["orders.eu", "orders.us"]),
        ({"limit": 2, "not_empty": True, "after": "delayed"}, ["orders.eu", "unacked"]),
        ({"after": "x[1]"}, []),
        ({"after": "f"}, ["orders.eu", "orders.us", "unacked", "x[1]"]),
    ],
)
def test_names_by_pattern_and_page(core, chosen, names):
    """Q5: names ascend; a page begins after the last name of the previous page."""
    assert views.matching_names(core.state, **chosen) == names
