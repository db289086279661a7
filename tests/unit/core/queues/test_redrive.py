"""Redrive to another queue, and its refusals (Q6); for all see `test_dead_letters`."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import refused


@pytest.mark.parametrize("deleted", [False, True])
def test_redrive_to_another_queue(harness, *, deleted):
    """Q3, Q6: only dead letters move, and as many as it has room for, also of a deleted queue."""
    harness.declare("d")
    harness.declare("small", max_length=2)
    harness.declare_filled("q", 3, dead_letter_queue="d")
    harness.consume("q", Outcome.REJECTED)
    harness.publish_to("d", 1)
    if deleted:
        harness.do(c.DeleteQueue("q"))
    told = "rejected, expired, delivery_limit"
    refused(InvalidArgumentError, told, harness.do, c.Redrive("d", cause="redriven"))
    refused(InvalidArgumentError, "are already in it", harness.do, c.Redrive("d", to_queue="d"))
    assert harness.do(c.Redrive("d", to_queue="small"))[:2] == (2, 2)
    assert (harness.browse("small"), harness.browse("d")) == (["m1", "m2"], ["m3", "m4"])
