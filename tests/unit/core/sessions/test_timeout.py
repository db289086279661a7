"""The session timeout (S5): the lease is requeued; a re-attach gets what is still ready, once."""

from __future__ import annotations

import pytest

from ackq.errors import CheckpointMismatchError, FencedError, InvalidArgumentError, LeaseHeldError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import ALICE, BOB, DAY_US, Harness, Reader, group, labels

CAROL = c.HolderInfo(b"carol".ljust(16), "host-c", 33, "app-c")


@pytest.fixture
def reader(harness: Harness) -> Reader:
    """A query that holds the tags 1 to 6 of ten messages, with a timeout of one second."""
    harness.declare("q", dead_letter_queue="dead")
    harness.publish_to("q", 6, ttls_ms=[0, 0, 0, 0, 5000, 0])
    harness.publish_to("q", 4)
    reader = harness.open("q", session_timeout_ms=1000)
    reader.advance(0, max_messages=6)
    return reader


def rows(reader: Reader, after: int, last: int) -> list[tuple[int, str, int]]:
    """(tag, label, delivery count) of the fetched rows."""
    return reader.harness.rows(reader.pieces(after, last))


def take(harness: Harness, count: int, *outcomes: Outcome | None) -> None:
    """Another consumer gets the lowest messages, and settles them in order, except for None."""
    tags = [row[0] for row in harness.deliver("k", "q", count)]
    for tag, outcome in zip(tags, outcomes, strict=False):
        if outcome is not None:
            harness.settle("k", outcome, tag)


# --- the detach ---


def test_a_detach_is_one_record_that_requeues_the_lease(harness: Harness, reader: Reader) -> None:
    """S5: messages are back in place, with one delivery more; the session has a new epoch."""
    assert reader.info().session_timeout_ms == 1000
    records = len(harness.log)
    assert reader.detach() == c.Released(6, 0)
    assert len(harness.log) == records + 1
    assert (harness.ready("q"), harness.unacked("q")) == (10, 0)
    assert harness.deliver("k", "q", 1) == [(1, "m1", 2)]
    info = reader.info()
    assert (info.detached, info.epoch, info.leased, info.end_tag) == (True, 2, 0, 6)
    assert info.holder is None


def test_a_detach_of_what_is_another_by_now_does_nothing(harness: Harness, reader: Reader) -> None:
    """S5: such a detach names another epoch or incarnation, or finds no lease to detach."""
    records = len(harness.log)
    incarnation = reader.command.incarnation
    for name, which, epoch in (("s", incarnation, 2), ("s", "other", 1), ("t", incarnation, 1)):
        assert harness.do(c.DetachSession(name, which, epoch)) == c.Released(0, 0)
    assert len(harness.log) == records
    reader.detach()
    assert reader.detach() == c.Released(0, 0)
    reader.advance(6, min_messages=99)
    assert reader.detach() == c.Released(0, 0)


def test_the_old_epoch_is_refused(harness: Harness, reader: Reader) -> None:
    """S3, S5: fetches, heartbeats and settle calls of the old epoch are refused as fenced."""
    reader.note()
    reader.detach()
    for call in (
        lambda: reader.fetch(0, 6),
        lambda: views.check_holder(
            harness.core.state, "s", reader.command.incarnation, 1, ALICE.token
        ),
        lambda: reader.stage("a", group(Outcome.RELEASED, 1)),
    ):
        with pytest.raises(FencedError, match=r"held by nobody .* away for too long"):
            call()


def test_a_timeout_is_as_the_last_call_says(harness: Harness, reader: Reader) -> None:
    """S5: the last call's timeout counts, changed by a record; 0 is never."""
    for timeout_ms in (2000, 0):
        records = len(harness.log)
        reader.advance(0, session_timeout_ms=timeout_ms)
        reader.advance(0, session_timeout_ms=timeout_ms)
        reader.attach(0, 6)
        assert len(harness.log) == records + 1
        assert reader.info().session_timeout_ms == timeout_ms
    with pytest.raises(InvalidArgumentError, match="session timeout"):
        reader.advance(0, session_timeout_ms=-1)


# --- the re-attach ---


@pytest.mark.parametrize("holder", [ALICE, BOB])
def test_a_re_attach_gets_what_is_ready_under_the_same_tags(
    harness: Harness, reader: Reader, holder: c.HolderInfo
) -> None:
    """S1, S5: one record leases them for any holder, with counts as first delivered.

    No message beyond the lease is leased, whatever the limit.
    """
    before = rows(reader, 0, 6)
    reader.detach()
    harness.restart()
    records = len(harness.log)
    reply = reader.advance(0, holder=holder, max_messages=1)
    assert len(harness.log) == records + 1
    assert (reply.epoch, reply.end_tag, reply.attaches) == (3, 6, 2)
    assert reply.backlog[:2] == (4, 6)
    assert rows(reader, 0, 6) == before
    info = reader.info()
    assert (info.detached, info.leased, info.holes_by_reason) == (False, 6, ())


def test_every_other_tag_is_a_hole_by_reason(harness: Harness, reader: Reader) -> None:
    """S5: a message that others accepted, hold or delay is one; one released in time is not."""
    reader.detach()
    take(harness, 4, Outcome.ACCEPTED, None, Outcome.RELEASED)
    harness.settle("k", Outcome.FAILED, 4, delay_ms=60_000)
    reply = reader.advance(0)
    assert reply.backlog[:2] == (4, 4)
    assert [tag for tag, _, _ in rows(reader, 0, 6)] == [3, 5, 6]
    info = reader.info()
    assert (info.leased, info.holes, info.holes_by_reason) == (3, 3, (("taken", 3),))


def test_a_hole_never_comes_back(harness: Harness, reader: Reader) -> None:
    """S5: also when its message is ready again; a second detach keeps the hole."""
    reader.detach()
    take(harness, 2)
    reader.advance(0)
    harness.do(c.CloseChannel(b"k"))
    assert [tag for tag, _, _ in rows(reader, 0, 6)] == [3, 4, 5, 6]
    assert reader.detach() == c.Released(4, 0)
    reader.advance(0)
    assert [tag for tag, _, _ in rows(reader, 0, 6)] == [3, 4, 5, 6]
    reader.advance(6)
    assert rows(reader, 6, 8) == [(7, "m1", 3), (8, "m2", 3)]


def test_reasons_of_messages_that_are_gone(harness: Harness) -> None:
    """S5: expired, purged, vanished, taken or deleted messages count by their reason."""
    harness.declare("q", "lost", "x")
    harness.publish(["q", "q", "lost", "x", "q"], ttls_ms=[0, 1000, 0, 0, 0])
    harness.publish_to("q", 1, persistent=False)
    reader = harness.lease("q", "lost", "x")
    reader.detach()
    take(harness, 1, Outcome.ACCEPTED)
    harness.wait(1.1)
    harness.do(c.DeleteQueue("lost", force=True))
    harness.restart()
    harness.do(c.PurgeQueue("q"))
    reader.advance(0, queues=("q", "x"))
    assert [label for _, label, _ in rows(reader, 0, 6)] == ["m4"]
    assert reader.info().holes_by_reason == (
        ("expired", 1),
        ("purged", 2),
        ("taken", 1),
        ("vanished", 1),
    )


def test_reasons_of_messages_that_moved_or_fell_out(harness: Harness) -> None:
    """S5, Q3, Q6: messages expired to a dead-letter queue, redriven, over a bound, or overdue."""
    harness.declare("dead", max_length=4, overflow="drop-head")
    harness.declare_filled("q", 1, dead_letter_queue="dead", message_ttl_ms=2000)
    harness.settle("k", Outcome.REJECTED, *[row[0] for row in harness.deliver("k", "q")])
    harness.publish_to("dead", 2)
    harness.publish_to("q", 1)
    reader = harness.lease("dead", "q")
    reader.detach()
    harness.now_us += 3_000_000
    assert harness.do(c.Redrive("dead"))[0] == 1
    harness.publish_to("dead", 3)
    reader.advance(0)
    assert [label for _, label, _ in rows(reader, 0, 4)] == ["m3"]
    assert reader.info().holes_by_reason == (("expired", 1), ("purged", 1), ("taken", 1))
    harness.wait(1)
    assert harness.browse("dead")[-1] == "m4"


def test_a_lease_of_a_deleted_queue_is_gone_at_the_detach(harness: Harness, reader: Reader) -> None:
    """Q4, S5: the bodies of the lease were kept until the detach."""
    harness.do(c.DeleteQueue("q", force=True))
    assert reader.detach() == c.Released(0, 6)
    assert harness.core.drain_dead_blocks() == [1, 2]
    harness.declare("q")
    reply = reader.advance(0)
    assert (reply.end_tag, rows(reader, 0, 6)) == (6, [])
    assert reader.info().holes_by_reason == (("purged", 6),)
    assert reader.advance(6).end_tag == 6


def test_the_start_decides_after_a_detach_as_ever(harness: Harness, reader: Reader) -> None:
    """S4, S5: at its end the rest of the lease is accepted, in the same record."""
    reader.detach()
    take(harness, 2, Outcome.ACCEPTED, None)
    for start in (3, 7):
        with pytest.raises(CheckpointMismatchError):
            reader.advance(start)
    assert reader.info().detached
    records = len(harness.log)
    reply = reader.advance(6, max_messages=2)
    assert len(harness.log) == records + 1
    assert reply.backlog[:2] == (2, 3)
    assert rows(reader, 6, 8) == [(7, "m7", 1), (8, "m8", 1)]
    assert harness.info("q").accepted == 5
    assert [label for _, label, _ in rows(reader, 0, 6)] == labels(3, 6)


def test_an_attach_decides_as_well(harness: Harness, reader: Reader) -> None:
    """S5, K2: so it does for a replay of the lease, and of the one accepted before."""
    reader.detach()
    take(harness, 1)
    epoch = reader.attach(0, 6, holder=BOB).epoch
    assert [tag for tag, _, _ in harness.rows(reader.pieces(0, 6, epoch=epoch))] == [2, 3, 4, 5, 6]
    reader.advance(6, holder=BOB, max_messages=2)
    reader.detach()
    epoch = reader.attach(0, 6, holder=CAROL).epoch
    assert not reader.info().detached
    assert [tag for tag, _, _ in harness.rows(reader.pieces(0, 6, epoch=epoch))] == [2, 3, 4, 5, 6]
    assert [tag for tag, _, _ in harness.rows(reader.pieces(6, 8, epoch=epoch))] == [7, 8]


def test_committed_outcomes_stay_for_the_re_attach(harness: Harness, reader: Reader) -> None:
    """S5, S6: outcomes of tags that are no holes apply, also when the re-attach accepts at once."""
    reader.note()
    reader.say(group(Outcome.REJECTED, 1, 2), group(Outcome.RELEASED, 3))
    reader.stage("left", group(Outcome.REJECTED, 4))
    before = rows(reader, 1, 6)
    reader.detach()
    take(harness, 1, Outcome.ACCEPTED)
    reply = reader.advance(6, holder=BOB, min_messages=99)
    assert harness.browse("ackq.dead") == ["m2"]
    assert (harness.info("q").accepted, harness.info("q").delayed) == (1 + 3, 1)
    assert reply.backlog[:2] == (4, 0)
    assert rows(reader, 0, 6) == before


def test_a_horizon_does_not_keep_a_session_from_its_own(harness: Harness, reader: Reader) -> None:
    """K5, S5: messages of the session's lease are eligible, whenever they were requeued."""
    horizon = harness.core.sequence
    reader.detach()
    assert reader.advance(0, horizon=horizon).end_tag == 6
    assert reader.advance(6, horizon=horizon).end_tag == 10
    assert reader.advance(10, horizon=horizon).end_tag == 10


def test_a_queue_that_is_left_out_at_the_re_attach(harness: Harness, reader: Reader) -> None:
    """S5, S10: leaving it out is refused while the lease would get messages of it."""
    harness.declare("r")
    reader.detach()
    with pytest.raises(CheckpointMismatchError, match="6 messages of queue 'q'"):
        reader.advance(0, queues=("r",))
    assert reader.info().detached
    harness.do(c.PurgeQueue("q"))
    assert reader.advance(0, queues=("r",)).end_tag == 6


def test_two_detached_sessions_of_one_queue(harness: Harness, reader: Reader) -> None:
    """S5: each session learns the reasons of its own holes."""
    reader.detach()
    other = harness.lease("q", session="t", holder=BOB, max_messages=4)
    other.detach()
    take(harness, 2, Outcome.ACCEPTED, Outcome.ACCEPTED)
    reader.advance(0)
    reader.advance(6, max_messages=1)
    other.advance(0)
    assert other.info().holes_by_reason == (("taken", 4),)
    assert reader.info().holes_by_reason == ()
    harness.do(c.ReleaseSession("s"))
    harness.do(c.ReleaseSession("t"))
    queue = harness.core._state.queues[1]
    assert (len(queue.watched), queue.departed) == (0, {})


# --- the end of a detached session ---


def test_a_detached_session_is_replaced_or_released(harness: Harness, reader: Reader) -> None:
    """S9: it holds no message, so none is requeued twice."""
    reader.detach()
    opened = harness.open("q", holder=BOB)
    (warning,) = opened.reply.warnings
    assert warning.endswith(f"{reader.command.incarnation} is refused from now on.")
    opened.advance(0)
    with pytest.raises(LeaseHeldError):
        harness.open("q", holder=CAROL)
    opened.detach()
    assert harness.do(c.ReleaseSession("s")) == c.Released(0, 0)
    assert (harness.ready("q"), len(harness.core._state.queues[1].watched)) == (10, 0)


def test_an_unproven_session_that_held_a_lease_stays(harness: Harness) -> None:
    """S5, S9: under Trigger.Once a checkpoint may name it, and return next week."""
    harness.declare_filled("q", 3)
    reader = harness.open("q", open_and_lease=True, session_timeout_ms=1)
    reader.detach()
    assert not reader.info().proven
    harness.housekeep_after(7 * DAY_US)
    reader.advance(0)
    assert [label for _, label, _ in rows(reader, 0, 3)] == labels(1, 3)


def test_a_detached_lease_over_a_snapshot(harness: Harness, reader: Reader) -> None:
    """I2, S5: the reasons of holes are known after a restart."""
    reader.detach()
    take(harness, 1, Outcome.ACCEPTED)
    harness.core = Core.restore(harness.core.snapshot())
    harness.do(c.PurgeQueue("q"))
    harness.restart()
    reader.advance(0)
    assert reader.info().holes_by_reason == (("purged", 5), ("taken", 1))
