"""Queues of a session (S10): named, or found by a pattern."""

import pytest

from ackq.errors import CheckpointMismatchError, InvalidArgumentError, QueueNotFoundError
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, REJECTED, labels, refused


def test_a_pattern_may_match_nothing_yet(harness):
    """S10: the session waits for its queues."""
    reader = harness.open(queue_pattern="in.?", open_and_lease=True)
    assert reader.advance(0).end_tag == 0
    harness.declare("in.ab")
    harness.declare_filled("in.a", 1)
    assert (reader.advance(0).end_tag, reader.info().queues) == (1, ("in.a",))


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


def test_names_or_a_pattern(harness):
    """S10: either names or a pattern; a query may change from one to the other."""
    harness.declare("a", "b")
    for queues, pattern in (((), ""), (("a",), "a")):
        refused(InvalidArgumentError, "pattern", harness.open, *queues, queue_pattern=pattern)
    refused(InvalidArgumentError, "255", harness.open, queue_pattern="a" * 256)
    reader = harness.open("a")
    reader.advance(0, queues=(), queue_pattern="b")
    assert (reader.info().queues, reader.info().queue_pattern) == (("b",), "b")
    reader.advance(0)
    assert (reader.info().queues, reader.info().queue_pattern) == (("a",), "")


def test_a_pattern_that_leaves_out_what_is_leased(harness):
    """S10: such a pattern is refused; a deleted queue is left out without a refusal."""
    harness.declare("in.a", "in.b")
    harness.publish(["in.a", "in.b"])
    reader = harness.open(queue_pattern="in.*")
    reader.advance(0)
    pattern = {"queue_pattern": "in.b"}
    told = "1 message of queue 'in.a'"
    refused(CheckpointMismatchError, told, reader.advance, 0, **pattern)
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


def test_the_built_in_queue_takes_part_in_a_circle(harness):
    """C13, S10: dead letters of a missing queue are in `ackq.dead`."""
    harness.declare_filled("in", 1, dead_letter_queue="gone")
    harness.deliver("k", "in")
    harness.settle("k", REJECTED, 1)
    assert harness.open("in").reply.warnings == ()
    (warning,) = harness.open("in", "ackq.dead", session="t").reply.warnings
    assert "queue 'in' and its dead-letter queue 'ackq.dead'" in warning


def test_many_circles_are_one_short_warning(harness):
    """I6: the warning names ten pairs."""
    harness.declare("in.dead")
    for number in range(12):
        harness.declare(f"in.{number}", dead_letter_queue="in.dead")
    (warning,) = harness.open(queue_pattern="in.*").reply.warnings
    assert warning.count("and its dead-letter queue") == 10
    assert "'in.9' and its dead-letter queue 'in.dead', and 2 more such pairs: messages" in warning


# --- named ---


def test_names_of_the_session_and_of_its_queues_are_checked(harness, reader):
    """S10: the refusal names both sessions; each named queue must exist, and one be named."""
    told = "session 's'.*names session 'mine'"
    refused(CheckpointMismatchError, told, reader.advance, 0, session="mine")
    refused(QueueNotFoundError, "'gone'", reader.advance, 0, queues=("q", "gone"))
    refused(InvalidArgumentError, "names no queue", harness.open)


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


def test_a_missing_queue_does_not_hide_that_a_batch_waits(harness, reader):
    """K1, S10: the refusal says that the checkpoint's batch is not accepted, and the remedy."""
    reader.advance(0)
    harness.do(c.DeleteQueue("q", force=True))
    assert "accepted" not in str(refused(QueueNotFoundError, "'q'", reader.advance, 0))
    told = r"'s' has, tags \(0, 10\], is not.*`ackq queue declare q`"
    error = refused(QueueNotFoundError, told, reader.advance, 10)
    assert (error.fields["queue"], reader.info().leased) == ("q", 10)
    harness.declare_filled("q", 1)
    assert reader.advance(10).end_tag == 11
    assert reader.fetch(10, 11) == labels(11, 11)
    reader.advance(11)
    assert harness.core.drain_dead_blocks() == [1]
