"""Queues of a session (S10): named, or found by a pattern."""

import pytest

from ackq.errors import CheckpointMismatchError
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, REJECTED, labels, refused


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ("a[1]", "a1", "A")),
        ("a*", ("a[1]", "a1")),
        ("a[1]", ("a[1]",)),
        ("a?", ("a1",)),
        ("?", ("A",)),
        ("*1*", ("a[1]", "a1")),
        ("ackq.*", ()),
        ("ackq.dead", ("ackq.dead",)),
        ("a" + "*a" * 100 + "b", ()),
    ],
)
def test_patterns(harness, pattern, found):
    """S10: `*` and `?` alone are special; a built-in queue must be named in full."""
    harness.declare("a[1]", "a1", "A", "a" * 250)
    harness.do(c.DeleteQueue("a" * 250))
    harness.declare_filled("mortal", 1, dead_letter_queue="nowhere")
    harness.deliver("k", "mortal")
    harness.settle("k", REJECTED, 1)
    harness.do(c.DeleteQueue("mortal"))
    assert harness.open(queue_pattern=pattern).info().queues == found


def test_a_pattern_that_leaves_out_what_is_leased(harness):
    """S10: such a pattern is refused; a deleted queue is left out without a refusal."""
    harness.declare("in.a", "in.b")
    harness.publish(["in.a", "in.b"])
    reader = harness.open(queue_pattern="in.*")
    reader.advance(0)
    pattern = {"queue_pattern": "in.b"}
    refused(CheckpointMismatchError, "1 message of queue 'in.a'", reader.advance, 0, **pattern)
    harness.do(c.DeleteQueue("in.a", force=True))
    assert reader.advance(0).end_tag == 2
    assert reader.fetch(0, 2) == labels(1, 2)
    assert reader.info().queues == ("in.b",)


def test_who_reads_its_own_dead_letters_is_warned(harness):
    """S10, C13: at a new holder or changed queues; the warning names both queues and the remedy."""
    harness.declare("in.dead")
    harness.declare_filled("in", 2, dead_letter_queue="in.dead")
    reader = harness.open(queue_pattern="in*")
    (warning,) = reader.reply.warnings
    assert "queue 'in' and its dead-letter queue 'in.dead': messages that its query" in warning
    assert "Leave the dead-letter queue out, or choose a pattern" in warning
    assert reader.advance(0).warnings == ()
    assert reader.advance(0, holder=BOB).warnings == (warning,)
    assert reader.attach(0, 2).warnings == (warning,)
    assert reader.attach(0, 2).warnings == ()
    harness.declare("in.more", dead_letter_queue="in")
    (both,) = reader.advance(2).warnings
    assert "'in.dead', queue 'in.more' and its dead-letter queue 'in': messages" in both
    assert reader.advance(2, queues=("in", "in.more"), queue_pattern="").warnings == (
        both.replace("queue 'in' and its dead-letter queue 'in.dead', ", ""),
    )
    assert reader.advance(2, queues=("in",), queue_pattern="").warnings == ()


def test_dead_letters_that_go_elsewhere_make_no_circle(harness):
    """S10: no warning is given, also without a dead-letter queue, or if a queue is its own."""
    harness.declare("dead", "in.dead", "in.plain")
    harness.declare("in", dead_letter_queue="dead")
    harness.declare("in.ring", dead_letter_queue="in.ring")
    assert harness.open(queue_pattern="in*").reply.warnings == ()


def test_fewer_queues_are_refused_while_the_lease_holds_their_messages(harness, reader):
    """S10, Q4: once it is accepted, a queue can be left out, and at once if it was deleted."""
    harness.declare_filled("r", 2)
    reader.advance(0, queues=("q", "r"))
    refused(CheckpointMismatchError, "2 messages of queue 'r'", reader.advance, 0)
    harness.do(c.DeleteQueue("q", force=True))
    assert reader.advance(0, queues=("r",)).end_tag == 12
    assert reader.info().queues == ("r",)
    harness.declare("q")
    assert reader.advance(12).end_tag == 12
    assert reader.info().queues == ("q",)
