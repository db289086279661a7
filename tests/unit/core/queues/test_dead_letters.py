"""Dead letters: bounds of their reasons, records and redrives (C13, Q6); see `test_model`."""

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.core.queues import dead_letters, redrive
from tests.unit.core.harness import group, reading

REJECTED = Outcome.REJECTED


def origins(harness):
    """The origin of each dead letter."""
    pieces = views.browse(harness.core.state, "dead")
    return [piece.origin for piece in pieces if piece.origin for _ in piece.origin.positions]


def test_what_comes_back_in_the_same_record_counts_for_a_drop_head_queue(harness):
    """Q3, C13, C14: matured and requeued messages count with the dead letters of their record."""
    harness.declare("d", max_length=3, overflow="drop-head")
    harness.declare("q", dead_letter_queue="d", delivery_limit=1, message_ttl_ms=2000)
    harness.publish_to("d", 3)
    harness.consume("d", Outcome.RELEASED, delay_ms=1000)
    harness.publish_to("q", 2)
    assert harness.wait(3) == c.Ticked(expired=2, dead_lettered=2, matured=3)
    assert (harness.browse("d"), harness.info("d").dropped) == (["m3", "m4", "m5"], 2)

    harness.publish_to("q", 1)
    for outcome in (Outcome.FAILED, Outcome.RELEASED):
        harness.consume("q", outcome)
    tags = [row[0] for row in harness.deliver("y", "q") + harness.deliver("y", "d", 3)]
    assert harness.settle("y", Outcome.FAILED, *tags) == c.Settlement(4, dead_lettered=1)
    assert (harness.browse("d"), harness.info("d").dropped) == (["m4", "m5", "m6"], 3)


def test_the_reasons_of_dead_letters_are_bounded(harness, monkeypatch):
    """C13, I6: a reason over the bound is `other`; a known one stays, and removals make room."""
    monkeypatch.setattr(dead_letters, "MAX_ORIGINS", 2)
    harness.declare("dead")
    harness.declare_filled("q", 6, dead_letter_queue="dead")
    for reason in ("a", "b", "c", "b", "d"):
        harness.consume("q", REJECTED, 1, reason=reason)
    other = dead_letters.OTHER
    assert [each.reason for each in origins(harness)] == ["a", "b", other, "b", other]
    harness.restart()
    assert harness.core._state.signals.origins == 3
    harness.do(c.PurgeQueue("dead"))
    assert harness.core._state.signals.origins == 0
    harness.consume("q", REJECTED, reason="e")
    assert [each.reason for each in origins(harness)] == ["e"]


def test_the_reasons_of_one_record_are_bounded(harness, monkeypatch):
    """C13, S6, I6: dead letters of a query's batch over the bound have no batch either."""
    monkeypatch.setattr(dead_letters, "MAX_ORIGINS", 2)
    reader = reading(harness)
    given = [group(REJECTED, tag, reason=f"r{tag}") for tag in (1, 2, 3, 4)]
    reader.say(*given, group(REJECTED, 5))
    reader.advance(6)
    found = [(each.reason, each.batch_id) for each in origins(harness) if each.session == "s"]
    other = (dead_letters.OTHER, -1)
    assert found == [("r1", 7), ("r2", 7), other, other, ("rejected", -1)]


def test_a_redrive_is_bounded(harness, monkeypatch):
    """Q6: a record moves a bounded number, and reports more, and the last position it looked at."""
    monkeypatch.setattr(redrive, "MOST_REDRIVEN", 3)
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d", max_length=6)
    harness.publish_to("d", 1)
    harness.publish_to("q", 6)
    harness.consume("q", REJECTED)
    assert harness.do(c.Redrive("d", max_messages=2)) == c.Redriven(2, 5, more=False, last=7)
    harness.publish_to("q", 1)
    assert harness.do(c.Redrive("d")) == c.Redriven(3, 2, more=False, last=7)
    harness.do(c.PurgeQueue("q"))
    harness.publish_to("q", 6)
    harness.consume("q", REJECTED)
    assert harness.do(c.Redrive("d")) == c.Redriven(3, 5, more=True, last=13)
    assert harness.do(c.Redrive("d", last=12)) == c.Redriven(3, 1, more=False, last=12)
    assert harness.do(c.Redrive("d")) == c.Redriven(0, 2, more=False, last=13)


def test_what_has_no_room_does_not_stop_what_has(harness):
    """Q3, Q6: dead letters of a full queue stay, those after them are redriven."""
    harness.declare("d")
    harness.declare("full", dead_letter_queue="d", max_length=2)
    harness.declare("q", dead_letter_queue="d")
    for queue in ("full", "q"):
        harness.publish_to(queue, 2)
        harness.consume(queue, REJECTED)
    harness.publish_to("full", 2)
    assert harness.do(c.Redrive("d", max_messages=2)) == c.Redriven(2, 2, more=False, last=4)
    assert harness.browse("q") == ["m3", "m4"]
