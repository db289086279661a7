"""Redrive of some dead letters, and to another queue (Q6); for all see `test_dead_letters`."""

import pytest

from ackq.errors import InvalidArgumentError, QueueNotFoundError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import Harness


@pytest.fixture
def dead(harness: Harness) -> Harness:
    """A queue d: m1 rejected as bad, m2 rejected as late, m3 over the limit, m4 never dead."""
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d", delivery_limit=1)
    harness.publish_to("q", 3)
    harness.consume("q", Outcome.REJECTED, 1, reason="bad")
    harness.consume("q", Outcome.REJECTED, 1, reason="late")
    for _ in range(2):
        harness.consume("q", Outcome.FAILED, reason="bad")
    harness.publish_to("d", 1)
    assert harness.browse("d") == ["m1", "m2", "m3", "m4"]
    return harness


@pytest.mark.parametrize(
    ("chosen", "moved", "left"),
    [
        ({"cause": "rejected"}, ["m1", "m2"], 0),
        ({"cause": "delivery_limit"}, ["m3"], 0),
        ({"cause": "expired"}, [], 0),
        ({"reason": "bad"}, ["m1", "m3"], 0),
        ({"reason": "bad", "cause": "rejected"}, ["m1"], 0),
        ({"reason": "ba"}, [], 0),
        ({"reason": "bad", "max_messages": 1}, ["m1"], 1),
        ({"reason": "bad", "first": 2}, ["m3"], 0),
        ({}, ["m1", "m2", "m3"], 1),
    ],
)
def test_redrive_by_cause_and_reason(dead: Harness, chosen, moved, left) -> None:
    """Q6: matching dead letters move; those that match and stay are counted."""
    assert dead.do(c.Redrive("d", **chosen))[:2] == (len(moved), left)
    assert sorted(dead.browse("q")) == moved
    assert [label for label in dead.browse("d") if label in moved] == []


def test_redrive_to_another_queue(dead: Harness) -> None:
    """Q6: instead of the original queue, which may be deleted; only dead letters move."""
    dead.declare("other")
    dead.do(c.DeleteQueue("q", force=True))
    decision = dead.decide(c.Redrive("d", to_queue="other"))
    assert len(decision.records) == 1
    assert decision.reply[:2] == (3, 1)
    assert (dead.browse("other"), dead.browse("d")) == (["m1", "m2", "m3"], ["m4"])
    assert {piece.origin for piece in views.browse(dead.core.state, "other")} == {None}


def test_redrive_to_another_queue_keeps_to_its_bound(dead: Harness) -> None:
    """Q3, Q6: a dead letter without room in the other queue stays."""
    dead.declare("small", max_length=2)
    assert dead.do(c.Redrive("d", to_queue="small"))[:2] == (2, 2)
    assert (dead.browse("small"), dead.browse("d")) == (["m1", "m2"], ["m3", "m4"])


def test_a_redrive_that_makes_no_sense_is_refused(dead: Harness) -> None:
    """Q6: such a redrive moves no message."""
    with pytest.raises(InvalidArgumentError, match="rejected, expired, delivery_limit"):
        dead.do(c.Redrive("d", cause="redriven"))
    with pytest.raises(InvalidArgumentError, match="are already in it"):
        dead.do(c.Redrive("d", to_queue="d"))
    with pytest.raises(QueueNotFoundError):
        dead.do(c.Redrive("d", to_queue="nowhere"))
    assert dead.browse("d") == ["m1", "m2", "m3", "m4"]
