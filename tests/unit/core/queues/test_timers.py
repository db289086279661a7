"""Time: what `test_model` does not have: leases that are put back, unused queues (Q3, Q4)."""

from dataclasses import replace

import pytest

from ackq.errors import InUseError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, SECOND_US, refused
from tests.unit.core.link_process import LinkProcess


def test_a_lease_that_is_put_back_is_not_leased_again_overdue(harness):
    """Q3, S9: a takeover requeues a lease, and leases only messages in time, in one record."""
    harness.declare("q")
    harness.publish_to("q", 2, ttls_ms=[1000, 0])
    harness.open("q", open_and_lease=True)
    harness.now_us += 2 * SECOND_US
    again = harness.open("q", holder=BOB, open_and_lease=True)
    assert again.fetch(0, again.reply.end_tag) == ["m2"]
    assert harness.wait(0) == c.Ticked(1, 0, 0)


def test_a_tick_moves_a_bounded_number(harness, monkeypatch):
    """Q3, C13, I6: later messages are due at once, in order, and not given out meanwhile."""
    monkeypatch.setattr("ackq_broker.core.queues.timers.MOST_DEAD_LETTERED", 3)
    harness.declare("d")
    harness.declare("q", "r", dead_letter_queue="d", message_ttl_ms=1000)
    harness.declare("s", message_ttl_ms=1000)
    harness.publish(["q"] * 4 + ["r"] * 3 + ["s"] * 5)
    harness.consume("q", Outcome.RELEASED, 1, delay_ms=500)
    harness.now_us += 2 * SECOND_US
    found = []
    while 0 < views.next_due_us(harness.core.state) <= harness.now_us:
        found.append(harness.do(c.Tick()))
        assert harness.deliver("x", "q") == []
        harness.core = Core.restore(harness.core.snapshot())
    assert found == [c.Ticked(8, 3, 0), c.Ticked(3, 3, 0), c.Ticked(1, 1, 0)]
    assert harness.browse("d") == [f"m{n}" for n in range(1, 8)]


def test_an_expiry_burst_holds_up_no_delay(harness, monkeypatch):
    """C14: delays of other queues end although a tick has no dead letters left to move."""
    monkeypatch.setattr("ackq_broker.core.queues.timers.MOST_DEAD_LETTERED", 3)
    harness.declare("d")
    harness.declare("q", "r", dead_letter_queue="d")
    harness.publish(["q"] * 4, ttls_ms=[1000] * 4)
    harness.publish(["r"] * 2, ttls_ms=[0, 1000])
    harness.consume("r", Outcome.RELEASED, 1, delay_ms=500)
    harness.now_us += 2 * SECOND_US
    assert harness.do(c.Tick()) == c.Ticked(3, 3, 1)
    harness.core = Core.restore(harness.core.snapshot())
    assert len(harness.deliver("x", "r")) == 1
    assert harness.do(c.Tick()) == c.Ticked(2, 2, 0)
    assert views.next_due_us(harness.core.state) == 0


def test_what_is_use(harness):
    """Q3, Q7: declares, deliveries also without a result, and a restart; publishes are not."""
    for _ in range(2):
        harness.declare("q", expires_ms=10_000)
        harness.wait(8)
    assert harness.deliver("x", "q") == []
    harness.wait(8)
    harness.now_us += 60 * SECOND_US  # the broker is down
    harness.restart()
    assert harness.wait(9.9).deleted == ()
    harness.publish_to("q", 1)
    assert harness.wait(0.2).deleted == ("q",)


def test_a_queue_in_use_stays(harness):
    """Q3, Q4: consumers, sessions and unacked messages keep it; it expires after their end."""
    harness.declare("q", expires_ms=10_000)
    harness.core.note_consumers("q", 2)
    assert harness.info("q").consumers == 2
    refused(InUseError, "2 consumers", harness.do, c.DeleteQueue("q"))
    assert harness.wait(25).deleted == ()
    harness.publish_to("q", 1)
    harness.deliver("x", "q")
    harness.core.note_consumers("q", 0)
    assert harness.wait(25).deleted == ()
    harness.settle("x", Outcome.ACCEPTED, 1)
    assert harness.wait(9.9).deleted == ()
    harness.open("q")
    assert harness.wait(25).deleted == ()
    harness.do(c.ReleaseSession("s"))
    assert harness.wait(9.9).deleted == ()
    assert harness.wait(0.2).deleted == ("q",)
    harness.core.note_consumers("q", 1)


def leave(harness):
    """A query reads the queue, and then another one."""
    opening = harness.open("q").command
    return replace(opening, incarnation="", new_incarnation="next", queues=("other",))


def commit(harness):
    """A batch is staged for the queue, and then committed."""
    return c.CommitBatch("w", 1, "run", "", (harness.stage("w", 1, ["q"], name="stage"),))


def lose_a_source(harness):
    """The queue takes dead letters of another one, which is then deleted."""
    harness.declare("source", dead_letter_queue="q")
    return c.DeleteQueue("source")


def unlink(harness):
    """A link fills the queue, and is then removed."""
    LinkProcess(harness)
    return c.RemoveLink("l")


@pytest.mark.parametrize("use", [leave, commit, lose_a_source, unlink])
def test_a_queue_expires_after_its_last_use(harness, use):
    """Q3: the time begins when the use ends, however long that was."""
    harness.declare("q", expires_ms=10_000)
    harness.declare("other")
    end = use(harness)
    for seconds in (10.1, 9.5):
        harness.wait(seconds)
    harness.do(end)
    assert harness.wait(9.9).deleted == ()
    assert harness.wait(0.2).deleted == ("q",)


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.RELEASED, None])
def test_a_deleted_queue_stops_no_timer(harness, outcome):
    """Q3, Q4: its last messages are settled or requeued; what is due in others still comes."""
    harness.declare_filled("q", 1, expires_ms=10_000)
    harness.deliver("x", "q")
    harness.declare_filled("other", 1, message_ttl_ms=1_000)
    harness.do(c.DeleteQueue("q", force=True))
    if outcome is None:
        harness.do(c.CloseChannel(b"x"))
    else:
        harness.settle("x", outcome, 1)
    assert harness.wait(1.1) == c.Ticked(1, 0, 0)
