"""Effects of time: TTL of messages and queues, unused queues (Q3, S7, C13)."""

from dataclasses import replace

import pytest

from ackq.errors import InUseError, QueueNotFoundError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, SECOND_US, Harness

MINUTE_MS = 60_000


def test_a_message_expires_by_its_own_ttl(harness: Harness) -> None:
    """Q3: an expiry is a record and is counted; the block goes with its last message."""
    harness.declare("q")
    block = harness.publish_to("q", 4, ttls_ms=[0, 1000, 2000, 1000]).block_id
    assert 1 <= (views.next_due_us(harness.core.state) - harness.now_us) / SECOND_US < 1.02
    assert harness.wait(1.02) == c.Ticked(2, 0, 0)
    assert harness.browse("q") == ["m1", "m3"]
    assert harness.wait(1) == c.Ticked(1, 0, 0)
    assert views.next_due_us(harness.core.state) == 0
    info = harness.info("q")
    assert (info.ready, info.expired, info.dropped, info.dead_lettered) == (1, 3, 3, 0)
    assert harness.core.drain_dead_blocks() == []
    harness.do(c.PurgeQueue("q"))
    assert harness.core.drain_dead_blocks() == [block]


@pytest.mark.parametrize("ttl_ms", [1, 500, 10_000, 3_600_000, 30 * 24 * 3_600_000])
def test_nothing_expires_early_nor_much_too_late(harness: Harness, ttl_ms: int) -> None:
    """Q3: a message expires at most 1/512 of its TTL or 17 ms late, and never early."""
    harness.declare_filled("q", 1, message_ttl_ms=ttl_ms)
    late_ms = (views.next_due_us(harness.core.state) - harness.now_us) / 1000 - ttl_ms
    assert 0 <= late_ms <= max(ttl_ms / 512, 17)
    harness.now_us += ttl_ms * 1000 - 1
    assert harness.decide(c.Tick()) == c.Decision((), c.Ticked(0, 0, 0))
    assert harness.wait(late_ms / 1000) == c.Ticked(1, 0, 0)


def test_the_earlier_of_both_ttls_counts(harness: Harness) -> None:
    """Q3: a message expires by its own TTL or its queue's, whichever is earlier."""
    harness.declare("q", message_ttl_ms=5000)
    harness.declare("free")
    harness.bind("x", "fanout", q="", free="")
    harness.publish(["k"] * 3, exchange="x", ttls_ms=[9000, 1000, 0])
    assert harness.wait(1.1).expired == 2
    assert (harness.browse("q"), harness.browse("free")) == (["m1", "m3"], ["m1", "m3"])
    assert harness.wait(4).expired == 2
    assert (harness.browse("q"), harness.browse("free")) == ([], ["m1", "m3"])
    assert harness.wait(4).expired == 1
    assert harness.browse("free") == ["m3"]


def test_rows_of_a_block_expire_in_every_queue(harness: Harness) -> None:
    """Q3: rows expire one by one, however a queue's rows lie in the block."""
    harness.declare("a", "b")
    harness.publish(["a", "b", "a", "b", "b"], ttls_ms=[1000, 1000, 0, 0, 1000])
    assert harness.wait(2).expired == 3
    assert (harness.browse("a"), harness.browse("b")) == (["m3"], ["m4"])


def test_an_expiry_without_rows_is_that_of_every_row(harness: Harness) -> None:
    """Q3: an expiry without rows applies to all rows, as a route without rows does."""
    harness.declare("a", "b")
    command = harness.command(["a", "b", "a"])
    every = c.Expiry(harness.now_us + SECOND_US)
    harness.send(replace(command, expiries=(every,)))
    assert harness.wait(2).expired == 3


def test_staged_rows_expire_after_their_commit(harness: Harness) -> None:
    """Q3, K3: staged rows expire by their own instant, or by the queue's TTL from the commit on."""
    harness.declare("q", message_ttl_ms=10_000)
    stage_id = b"s".ljust(16)
    harness.do(c.OpenStage(stage_id, "w", 1, "run"))
    expiries = harness.expiries([0, 4000])
    block = harness.do(c.StageBlock(stage_id, "", (c.Route("q"),), 2, 20, expiries)).block_id
    harness.labels |= {(block, 0): "s0", (block, 1): "s1"}
    harness.do(c.SealStage(stage_id, 2, 20))
    harness.restart()
    assert harness.wait(3) == c.Ticked(0, 0, 0)
    harness.commit("w", 1, c.StageRef(stage_id, 2, 20))
    assert harness.browse("q") == ["s0", "s1"]
    assert harness.wait(1.1).expired == 1
    assert harness.browse("q") == ["s0"]
    assert harness.wait(8.8).expired == 0
    assert harness.wait(0.3).expired == 1


def test_what_is_overdue_is_never_given_out(harness: Harness) -> None:
    """Q3: an overdue message goes to no channel or session, also before its tick."""
    harness.declare("q")
    harness.publish_to("q", 3, ttls_ms=[1000, 0, 1000])
    harness.now_us += 2 * SECOND_US
    reader = harness.open("q")
    assert reader.fetch(0, reader.advance(0).end_tag) == ["m2"]
    assert harness.deliver("x", "q") == []
    assert harness.wait(0) == c.Ticked(2, 0, 0)


def test_unacked_and_leased_messages_do_not_expire(harness: Harness) -> None:
    """S7, Q3: they expire as soon as they are requeued; an accepted one was in time."""
    harness.declare("q")
    harness.publish_to("q", 5, ttls_ms=[1000] * 5)
    harness.deliver("x", "q", 3)
    reader = harness.open("q")
    end = reader.advance(0).end_tag
    assert harness.wait(2) == c.Ticked(0, 0, 0)
    assert views.next_due_us(harness.core.state) == 0
    harness.settle("x", Outcome.ACCEPTED, 2)
    assert views.next_due_us(harness.core.state) == 0
    harness.settle("x", Outcome.RELEASED, 3)
    assert 0 < views.next_due_us(harness.core.state) <= harness.now_us
    assert harness.deliver("y", "q") == []
    assert harness.wait(0) == c.Ticked(1, 0, 0)
    harness.do(c.CloseChannel(b"x"))
    assert harness.wait(0) == c.Ticked(1, 0, 0)
    assert reader.fetch(0, end) == ["m4", "m5"]
    reader.advance(end)
    assert views.next_due_us(harness.core.state) == 0
    assert harness.info("q").accepted == 3


def test_a_lease_that_is_put_back_is_not_leased_again_overdue(harness: Harness) -> None:
    """Q3, S9: a takeover requeues a lease, and leases only messages in time, in one record."""
    harness.declare("q")
    harness.publish_to("q", 2, ttls_ms=[1000, 0])
    harness.open("q", open_and_lease=True)
    harness.now_us += 2 * SECOND_US
    again = harness.open("q", holder=BOB, open_and_lease=True)
    assert again.fetch(0, again.reply.end_tag) == ["m2"]
    assert harness.wait(0) == c.Ticked(1, 0, 0)


def test_the_late_stay_late_over_restarts(harness: Harness) -> None:
    """S7, Q7: a message held past its expiry expires when the restart requeues it."""
    harness.declare("q")
    harness.publish_to("q", 2, ttls_ms=[1000, 0])
    harness.deliver("x", "q")
    harness.wait(2)
    harness.restart()
    assert harness.deliver("x", "q") == [(1, "m2", 2)]
    assert harness.wait(0) == c.Ticked(1, 0, 0)


def test_expiry_waits_for_no_tick_that_came_late(harness: Harness) -> None:
    """Q7: after a long stop, one tick expires all messages that are overdue."""
    harness.declare("a", message_ttl_ms=1000)
    harness.declare("b", message_ttl_ms=MINUTE_MS)
    harness.publish(["a", "b"])
    harness.restart()
    assert harness.wait(3600) == c.Ticked(2, 0, 0)


def test_delayed_messages_expire(harness: Harness) -> None:
    """Q3, C14: a delayed message expires, as it has no holder."""
    harness.declare("q")
    harness.publish_to("q", 1, ttls_ms=[3000])
    harness.deliver("x", "q")
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=9000)
    assert harness.wait(4) == c.Ticked(1, 0, 0)
    assert views.next_due_us(harness.core.state) == 0


def test_what_expires_and_matures_at_once_expires(harness: Harness) -> None:
    """Q3, C14: a message that matures and expires in one tick is not given out again."""
    harness.declare("q")
    harness.publish_to("q", 2, ttls_ms=[3000, 0])
    harness.deliver("x", "q")
    harness.settle("x", Outcome.RELEASED, up_to=2, delay_ms=1000)
    assert harness.wait(9) == c.Ticked(1, 0, 1)
    assert harness.deliver("x", "q") == [(3, "m2", 2)]


def test_nothing_is_due_for_what_is_gone(harness: Harness) -> None:
    """Q3: accepted, purged and deleted messages cause no tick."""
    harness.declare("q", "r", message_ttl_ms=1000)
    harness.publish(["q", "q", "r"])
    harness.deliver("x", "q", 1)
    harness.settle("x", Outcome.ACCEPTED, 1)
    harness.do(c.PurgeQueue("q"))
    harness.do(c.DeleteQueue("r"))
    assert views.next_due_us(harness.core.state) == 0
    assert harness.decide(c.Tick()).records == ()


# --- expired into dead letters ---


def test_the_expired_go_to_the_dead_letter_queue(harness: Harness) -> None:
    """C13, Q3: expired messages move in order, without their own TTL, under their new queue's."""
    harness.declare("d", message_ttl_ms=MINUTE_MS)
    harness.declare("q", dead_letter_queue="d", message_ttl_ms=5000)
    harness.publish_to("q", 3, ttls_ms=[9000, 1000, 0])
    harness.deliver("x", "q", 1)
    harness.settle("x", Outcome.RELEASED, 1)
    assert harness.wait(6) == c.Ticked(3, 3, 0)
    assert harness.browse("d") == ["m1", "m2", "m3"]
    (piece,) = views.browse(harness.core.state, "d")
    assert piece.origin is not None
    assert piece.origin.reason == "expired"
    assert piece.origin.positions.tolist() == [1, 2, 3]
    assert piece.origin.delivery_counts.tolist() == [1, 0, 0]
    assert piece.origin.dead_lettered_us == harness.now_us
    info = harness.info("q")
    assert (info.expired, info.dead_lettered, info.dropped) == (3, 3, 0)
    assert harness.wait(59) == c.Ticked(0, 0, 0)
    assert harness.wait(2) == c.Ticked(3, 0, 0)


def test_a_circle_of_expiries_ends(harness: Harness) -> None:
    """C13: a message that expires into a queue it expired from before is dropped and counted."""
    harness.declare("a", dead_letter_queue="b", message_ttl_ms=1000)
    harness.declare("b", dead_letter_queue="a", message_ttl_ms=1000)
    harness.publish(["a", "b"])
    assert harness.wait(2) == c.Ticked(2, 2, 0)
    assert (harness.browse("a"), harness.browse("b")) == (["m2"], ["m1"])
    harness.core = Core.restore(harness.core.snapshot())
    assert harness.wait(2) == c.Ticked(2, 0, 0)
    assert harness.info("b").dropped == 1


def test_a_rejection_breaks_the_circle(harness: Harness) -> None:
    """C13: a rejection or the delivery limit in between lets a message expire there again."""
    harness.declare("a", dead_letter_queue="b", message_ttl_ms=1000)
    harness.declare("b", dead_letter_queue="a", message_ttl_ms=MINUTE_MS, delivery_limit=1)
    harness.publish_to("a", 1)
    harness.wait(2)
    harness.deliver("x", "b")
    harness.settle("x", Outcome.REJECTED, 1)
    assert harness.wait(2) == c.Ticked(1, 1, 0)
    for tag in (2, 3):
        harness.deliver("x", "b")
        harness.settle("x", Outcome.FAILED, tag)
    assert harness.wait(2) == c.Ticked(1, 1, 0)
    assert harness.wait(90) == c.Ticked(1, 0, 0)


def test_a_queue_that_expires_into_itself_drops(harness: Harness) -> None:
    """C13: the shortest circle of expiries drops the message."""
    harness.declare_filled("q", 1, dead_letter_queue="q", message_ttl_ms=1000)
    assert harness.wait(2) == c.Ticked(1, 0, 0)
    assert harness.info("q").dropped == 1


def test_only_those_that_circle_are_dropped(harness: Harness) -> None:
    """C13: new messages of the same queue become dead letters."""
    harness.declare("a", dead_letter_queue="b", message_ttl_ms=1000)
    harness.declare("b", dead_letter_queue="a", message_ttl_ms=1000)
    harness.publish_to("a", 1)
    harness.wait(2)
    harness.publish_to("b", 1)
    assert harness.wait(2) == c.Ticked(2, 1, 0)
    assert harness.browse("a") == ["m2"]


def test_the_built_in_queue_is_made_by_a_tick(harness: Harness) -> None:
    """C13: a tick declares `ackq.dead` when the target of an expired message is missing."""
    harness.declare_filled("q", 1, dead_letter_queue="gone", message_ttl_ms=1000)
    assert harness.wait(2) == c.Ticked(1, 1, 0)
    assert harness.browse("ackq.dead") == ["m1"]


def test_a_tick_moves_a_bounded_number(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q3, C13, I6: later messages are due at once, in order, and not given out meanwhile."""
    monkeypatch.setattr("ackq_broker.core.queues.timers.MOST_DEAD_LETTERED", 3)
    harness.declare("d")
    harness.declare("q", "r", dead_letter_queue="d", message_ttl_ms=1000)
    harness.declare("s", message_ttl_ms=1000)
    harness.publish(["q"] * 4 + ["r"] * 3 + ["s"] * 5)
    harness.deliver("x", "q", 1)
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=500)
    harness.now_us += 2 * SECOND_US
    found = []
    while 0 < views.next_due_us(harness.core.state) <= harness.now_us:
        found.append(harness.do(c.Tick()))
        assert harness.deliver("x", "q") == []
        harness.core = Core.restore(harness.core.snapshot())
    assert found == [c.Ticked(8, 3, 0), c.Ticked(3, 3, 0), c.Ticked(1, 1, 0)]
    assert harness.browse("d") == [f"m{n}" for n in range(1, 8)]


# --- unused queues ---


def test_an_unused_queue_goes(harness: Harness) -> None:
    """Q3: a queue that is unused for its `expires_ms` is deleted with its messages."""
    harness.declare("q", expires_ms=10_000)
    block = harness.publish_to("q", 1).block_id
    assert harness.wait(9.9) == c.Ticked(0, 0, 0)
    assert harness.wait(0.2) == c.Ticked(0, 0, 0, ("q",))
    with pytest.raises(QueueNotFoundError):
        harness.browse("q")
    assert harness.core.drain_dead_blocks() == [block]
    assert views.next_due_us(harness.core.state) == 0


def test_declares_and_deliveries_are_use(harness: Harness) -> None:
    """Q3: declares and deliveries are use, also without a result; publishes are not."""
    harness.declare("q", expires_ms=10_000)
    harness.wait(8)
    harness.declare("q", expires_ms=10_000)
    harness.wait(8)
    assert harness.deliver("x", "q") == []
    harness.wait(8)
    harness.publish_to("q", 1)
    assert harness.wait(3).deleted == ("q",)


def test_a_queue_in_use_stays(harness: Harness) -> None:
    """Q3, Q4: consumers, sessions and unacked messages keep it; it expires after their end."""
    harness.declare("q", expires_ms=10_000)
    harness.core.note_consumers("q", 2)
    assert harness.info("q").consumers == 2
    with pytest.raises(InUseError, match="2 consumers"):
        harness.do(c.DeleteQueue("q"))
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


def test_a_restart_is_use(harness: Harness) -> None:
    """Q3, Q7: the time that the broker was down does not count."""
    harness.declare("q", expires_ms=10_000)
    harness.now_us += 60 * SECOND_US
    harness.restart()
    assert harness.wait(9.9).deleted == ()
    assert harness.wait(0.2).deleted == ("q",)


def test_a_dead_letter_queue_does_not_expire(harness: Harness) -> None:
    """Q3, Q4: a dead-letter queue stays as long as a queue names it."""
    harness.declare("d", expires_ms=10_000)
    harness.declare("q", dead_letter_queue="d")
    assert harness.wait(60).deleted == ()
    harness.do(c.DeleteQueue("q"))
    assert harness.wait(20).deleted == ("d",)
