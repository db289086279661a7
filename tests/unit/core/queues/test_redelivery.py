"""Effects of outcomes: all states, the delivery limit, the redelivery delay (C4, C13, C14)."""

import pytest

from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c

# Properties, earlier failures, whether the queue is deleted; then for FAILED and REJECTED
# the place of the message afterwards, and the answer's counts of dead letters and drops.
KEPT, GONE, DEAD, DROPPED = ("ready", 0, 0), ("gone", 0, 0), ("dead", 1, 0), ("gone", 0, 1)
DROPS = {"drop_on_limit": True}
TABLE = {
    "plain": ({}, 0, False, KEPT, DROPPED),
    "dead letters": ({"dead_letter_queue": "d"}, 3, False, KEPT, DEAD),
    "below the limit": ({"dead_letter_queue": "d", "delivery_limit": 2}, 1, False, KEPT, DEAD),
    "at the limit": ({"dead_letter_queue": "d", "delivery_limit": 2}, 2, False, DEAD, DEAD),
    "at the limit, drop": (DROPS | {"delivery_limit": 1}, 1, False, DROPPED, DROPPED),
    "below, drop": (DROPS | {"delivery_limit": 2}, 1, False, KEPT, DROPPED),
    "both": (DROPS | {"dead_letter_queue": "d", "delivery_limit": 1}, 1, False, DEAD, DEAD),
    "no one to take it": ({"delivery_limit": 1}, 5, False, KEPT, DROPPED),
    "drop without limit": (DROPS, 5, False, KEPT, DROPPED),
    "delay": ({"redelivery_delay_ms": 500}, 0, False, ("delayed", 0, 0), DROPPED),
    "deleted": ({}, 0, True, GONE, DROPPED),
    "deleted, dead letters": ({"dead_letter_queue": "d"}, 0, True, GONE, DEAD),
    "deleted, at the limit": ({"dead_letter_queue": "d", "delivery_limit": 1}, 1, True, DEAD, DEAD),
    "deleted, delay": ({"redelivery_delay_ms": 500}, 0, True, GONE, DROPPED),
}


def held_tag(harness, failures):
    """One message of q unacked on channel x, after `failures` failures and one release."""
    harness.publish_to("q", 1)
    for outcome in [Outcome.RELEASED, *[Outcome.FAILED] * failures]:
        harness.consume("q", outcome)
        harness.wait(1000)
    (row,) = harness.deliver("x", "q")
    return row[0]


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("again", ["live", "restored"])
def test_every_state_and_outcome(harness, row, outcome, again):
    """C4, C13, C14: the message is in one place afterwards, for every state and outcome."""
    properties, failures, deleted, failed, rejected = TABLE[row]
    effects = {Outcome.ACCEPTED: GONE, Outcome.FAILED: failed, Outcome.REJECTED: rejected}
    place, dead, dropped = effects.get(outcome, GONE if deleted else KEPT)
    harness.declare("d")
    harness.declare("q", **properties)
    tag = held_tag(harness, failures)
    if deleted:
        harness.do(c.DeleteQueue("q", force=True))
    if again == "restored":
        harness.core = Core.restore(harness.core.snapshot())
    assert harness.settle("x", outcome, tag) == c.Settlement(1, dead, dropped)
    assert views.outstanding(harness.core.state, b"x").to_array().tolist() == []
    assert (harness.browse("d") == ["m1"]) == (place == "dead")
    if not deleted:
        info = harness.info("q")
        assert (info.ready, info.delayed) == (place == "ready", place == "delayed")
        assert (info.unacked, info.accepted) == (0, outcome is Outcome.ACCEPTED)
        assert (info.dead_lettered, info.dropped) == (dead, dropped)
    assert (harness.core.drain_dead_blocks() == []) == (place != "gone")
