"""Holdings of a queue (Q9): what a session or channel holds."""

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.core.views.holdings import Keeper


def test_what_a_holding_keeps(harness):
    """Q9: payload, blocks, time, and the tag of the requested message."""
    harness.declare("q")
    harness.publish_to("q", 4, row_bytes=7)
    harness.publish_to("q", 4, row_bytes=5)
    harness.lease("q", max_messages=6)
    (keeper,) = views.keepers(harness.core.state, "q")
    holding = views.holding(harness.core.state, "q", keeper)
    assert (holding.payload_bytes, len(holding.blocks)) == (4 * 7 + 2 * 5, 2)
    assert 0 < holding.oldest_us < holding.since_us <= harness.now_us
    assert holding.first_tag == 1
    assert views.holding(harness.core.state, "q", Keeper("nobody")) is None


def test_a_lease_of_holes_alone_holds_nothing(harness):
    """Q9, S8: an operator settled all tags of the lease."""
    harness.declare_filled("q", 2)
    harness.lease("q")
    harness.do(c.SettleLease("s", Outcome.RELEASED, ((1, 2),)))
    (keeper,) = views.keepers(harness.core.state, "q")
    assert views.holding(harness.core.state, "q", keeper) is None
    assert harness.info("q").unacked == 0


def test_who_holds_the_message_at_a_position(harness):
    """Q9: the holding has the message's tag, also when positions and tags differ in order."""
    harness.declare_filled("q", 6)
    harness.deliver("one", "q", 3)
    harness.settle("one", Outcome.RELEASED, 2)
    harness.deliver("one", "q", 2)  # position 2 again, under tag 4
    harness.lease("q", max_messages=1)
    for position, tag in ((1, 1), (2, 4), (3, 3), (4, 5)):
        (keeper,) = views.keepers(harness.core.state, "q", position)
        holding = views.holding(harness.core.state, "q", keeper, position)
        assert (keeper.channel_id, holding.first_tag) == (b"one", tag)
    assert views.keepers(harness.core.state, "q", 5) == [Keeper("s")]
    assert views.keepers(harness.core.state, "q", 6) == []
