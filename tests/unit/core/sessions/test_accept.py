"""Accepts with outcomes (S6, K2): their effect on messages, and replays after them."""

from __future__ import annotations

import pytest

from ackq.errors import (
    StageMismatchError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import (
    ALICE,
    BOB,
    BY_NAME,
    Harness,
    Reader,
    counts,
    group,
    labels,
    reading,
)

REJECTED, FAILED, RELEASED, ACCEPTED = (
    Outcome.REJECTED,
    Outcome.FAILED,
    Outcome.RELEASED,
    Outcome.ACCEPTED,
)
reader = pytest.fixture(reading)


def test_nothing_happens_before_the_accept(harness: Harness, reader: Reader) -> None:
    """S6: staged or committed outcomes change no message until the batch is accepted."""
    stage = reader.stage("a", group(REJECTED, 2), group(RELEASED, 4))
    assert stage[1] == 2
    assert reader.commit(stage) == c.CommittedOutcomes(2, False)
    assert counts(harness) == (4, 0, 6, 0)
    assert harness.browse("dead") == []
    assert reader.info().settled == 2
    assert [row[1] for row in reader.rows(0, 6)] == labels(1, 6)


def test_the_accept_does_all_of_it(harness: Harness, reader: Reader) -> None:
    """S6, C4: one record accepts, rejects, fails and releases the rows of a lease."""
    reader.say(group(REJECTED, 2, reason="no json"), group(FAILED, 3), group(RELEASED, 4))
    decision = harness.decide(
        c.Advance("s", reader.command.incarnation, ALICE, ("q",), 6, max_messages=1)
    )
    assert len(decision.records) == 1
    assert decision.reply.backlog[:2] == (3, 1)
    assert counts(harness) == (3, 2, 1, 3)
    assert harness.browse("q") == ["m3", "m4", *labels(7, 10)]
    assert harness.browse("dead") == ["m2"]
    (piece,) = views.browse(harness.core.state, "dead")
    assert piece.origin is not None
    assert (piece.origin.reason, piece.origin.session, piece.origin.batch_id) == ("no json", "s", 7)
    assert (reader.info().settled, reader.info().floor_tag) == (0, 6)


def test_the_backlog_of_the_answer_is_that_after_it(harness: Harness, reader: Reader) -> None:
    """S6: the backlog counts after the accept, also when the session reads its dead letters."""
    reader.say(group(REJECTED, 1, 2), group(RELEASED, 4))
    backlog = reader.advance(6, queues=("q", "dead"), max_messages=3).backlog
    infos = [harness.info(queue) for queue in ("q", "dead")]
    assert backlog.ready == sum(info.ready for info in infos) == 3
    assert backlog.unacked == sum(info.unacked for info in infos) == 3
    assert backlog.oldest_us == harness.info("q").oldest_us


def test_the_delay_doubles_from_a_second_to_five_minutes(harness: Harness) -> None:
    """C14: RELEASED and FAILED of a query wait so where the queue names no delay."""
    for first, (outcome, queue) in enumerate(((RELEASED, "r"), (FAILED, "f"))):
        harness.declare(queue)
        harness.publish_to(queue, 1)
        reader = harness.open(queue, session=queue)
        waits = []
        for tag in range(1, 12):
            assert reader.advance(tag - 1).end_tag == tag
            batch = 100 * first + tag
            reader.note(batch_id=batch, run_id=queue)
            owner = reader.owner(batch_id=batch, run_id=queue)
            reader.say(group(outcome, tag), name=f"{queue}{tag}", owner=owner)
            assert reader.advance(tag).end_tag == tag
            waits.append((views.next_due_us(harness.core.state) - harness.now_us) / 1_000_000)
            harness.wait(waits[-1])
        assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300], rel=0.02)


def test_a_delay_of_the_call_wins_then_the_queue_s(harness: Harness) -> None:
    """C14: a delay comes from the settle call, else from the queue."""
    harness.declare_filled("q", 3, redelivery_delay_ms=5000, redelivery_delay_max_ms=7000)
    reader = harness.lease("q")
    reader.note()
    reader.say(group(RELEASED, 1), group(FAILED, 2, delay_ms=60_000), group(RELEASED, 3))
    reader.advance(3)
    assert harness.wait(4.9).matured == 0
    assert harness.wait(0.2).matured == 2
    assert harness.wait(50).matured == 0
    assert harness.wait(6).matured == 1


def test_failed_counts_and_released_does_not(harness: Harness) -> None:
    """C13: one FAILED too many is a dead letter, with the session in its headers."""
    harness.declare("dead")
    harness.declare_filled("q", 2, dead_letter_queue="dead", delivery_limit=1)
    reader = harness.open("q")
    for batch, tags in ((1, (1, 2)), (2, (3, 4))):
        reader.advance(tags[0] - 1)
        reader.note(batch_id=batch)
        outcomes = group(FAILED, tags[0], reason=f"no {batch}"), group(RELEASED, tags[1])
        reader.say(*outcomes, name=str(batch), owner=reader.owner(batch_id=batch))
        reader.advance(tags[1])
        harness.wait(3)
    assert (harness.browse("q"), harness.browse("dead")) == (["m2"], ["m1"])
    (piece,) = views.browse(harness.core.state, "dead")
    assert piece.origin is not None
    origin = piece.origin
    assert (origin.cause, origin.reason, origin.batch_id) == ("delivery_limit", "no 2", 2)


def test_rows_put_back_do_not_keep_availablenow_alive(harness: Harness, reader: Reader) -> None:
    """K5, S6: rows requeued with a delay are not eligible, whenever the delay ends."""
    horizon = harness.core.sequence
    reader.say(group(FAILED, 1, 2), group(RELEASED, 3, delay_ms=1))
    assert reader.advance(6, horizon=horizon).end_tag == 10
    harness.wait(2)
    assert counts(harness)[0] == 3
    assert reader.advance(10, horizon=horizon).end_tag == 10
    assert reader.advance(10).end_tag == 13


def test_dead_letters_that_overflow_a_drop_head_queue(harness: Harness) -> None:
    """C13, Q3: the oldest are dropped; messages leased in the same record make room, and stay."""
    harness.declare("ring", max_length=3, overflow="drop-head")
    harness.declare_filled("q", 3, dead_letter_queue="ring")
    harness.publish_to("ring", 3)
    reader = harness.lease("q")
    reader.note()
    reader.say(group(REJECTED, 1, 2))
    reply = reader.advance(3, queues=("q", "ring"), max_messages=1)
    assert reader.fetch(3, reply.end_tag) == ["m4"]
    assert harness.browse("ring") == ["m4", "m6", "m1", "m2"]
    assert reply.backlog[:2] == (3, 1)


def test_dead_letters_make_the_built_in_queue(harness: Harness) -> None:
    """C13: `ackq.dead` is declared when the dead-letter queue is missing."""
    harness.declare_filled("q", 2, dead_letter_queue="nowhere")
    reader = harness.lease("q")
    reader.note()
    reader.say(group(REJECTED, 2))
    reader.advance(2)
    assert harness.browse("ackq.dead") == ["m2"]


def test_many_reasons_keep_the_order_of_tags(harness: Harness, reader: Reader) -> None:
    """S6: dead letters keep the order of their tags."""
    reader.say(*(group(REJECTED, tag, reason=f"bad {tag}") for tag in (5, 1, 3, 2)))
    reader.advance(6)
    assert harness.browse("dead") == ["m1", "m2", "m3", "m5"]


def test_a_forced_delete_of_the_queue(harness: Harness, reader: Reader) -> None:
    """Q4, S6: rejected rows are dead letters, requeued ones are dropped, and all are replayed."""
    reader.stage("later", group(RELEASED, 6))
    reader.say(group(REJECTED, 2), group(FAILED, 3), group(RELEASED, 4))
    harness.do(c.DeleteQueue("q", force=True))
    harness.declare("q")
    assert reader.advance(6).end_tag == 6
    assert (harness.browse("q"), harness.browse("dead")) == ([], ["m2"])
    harness.restart()
    assert reader.rows(0, 6) == [(tag, f"m{tag}", 1) for tag in range(1, 7)]
    harness.housekeep_after(8 * 24 * 3600 * 1_000_000)
    assert harness.browse("dead") == ["m2"]
    assert len(harness.core._state.queues) == 2


# --- the kept lease ---


def test_a_replay_reads_the_same_after_outcomes(harness: Harness, reader: Reader) -> None:
    """K2, S6: it has the rejected, failed and released rows, with their counts, over a restart."""
    before = reader.rows(0, 6)
    reader.say(group(REJECTED, 2), group(FAILED, 3), group(RELEASED, 4))
    reader.advance(6, max_messages=2)
    assert reader.rows(0, 6) == before
    harness.wait(5)
    harness.restart()
    reader.attach(0, 6)
    assert reader.rows(0, 6) == before


def test_a_released_message_that_others_consumed(harness: Harness, reader: Reader) -> None:
    """K2: a consumed message is readable until the kept lease ends, and counts nowhere."""
    reader.say(group(RELEASED, 1, 4), group(REJECTED, 2))
    reader.advance(6, max_messages=1)
    harness.wait(2)
    held = reader.rows(0, 6)
    for count in (2, 4):
        tags = [row[0] for row in harness.deliver("k", "q", 2 if count == 2 else 4)]
        harness.settle("k", ACCEPTED, *tags)
    harness.settle("k", REJECTED, *[row[0] for row in harness.deliver("k", "dead")])
    assert counts(harness) == (0, 0, 1, 3 + 5)
    assert harness.info("q").payload_bytes == 10
    assert harness.info("dead").payload_bytes == 0
    harness.restart()
    assert reader.rows(0, 6) == held
    assert harness.core.drain_dead_blocks() == []
    reader.advance(7)
    assert reader.rows(6, 7) == [(7, "m7", 1)]
    harness.housekeep_after(8 * 24 * 3600 * 1_000_000)
    assert harness.core.drain_dead_blocks() == [1]


def test_a_released_message_in_the_kept_leases_of_two_sessions(
    harness: Harness, reader: Reader
) -> None:
    """K2, I3: each session reads it under its own tag, with its own count, until it lets it go."""
    reader.say(group(RELEASED, 2))
    reader.advance(6, max_messages=4)
    harness.wait(2)
    other = harness.lease("q", session="t", holder=BOB)
    other.note(run_id="other", batch_id=8)
    owner = other.owner(run_id="other", batch_id=8)
    other.say(group(RELEASED, 1), name="t", owner=owner)
    other.advance(1)
    harness.wait(3)
    assert other.rows(0, 1) == [(1, "m2", 2)]
    assert reader.rows(1, 2) == [(2, "m2", 1)]
    other.advance(1)  # leases it again, as tag 2
    assert other.rows(1, 2) == [(2, "m2", 3)]
    other.advance(2)  # accepts it
    reader.advance(10)  # lets it go
    assert other.rows(1, 2) == [(2, "m2", 3)]
    harness.do(c.ReleaseSession("t"))
    harness.do(c.ReleaseSession("s"))
    assert harness.core.drain_dead_blocks() == [1]


@pytest.mark.parametrize("how", ["purge", "expire", "redrive", "overflow", "vanish"])
def test_a_released_message_that_goes_otherwise(harness: Harness, how: str) -> None:
    """K2: however it is removed, the replay reads it; a restart drops transient ones alone."""
    harness.declare("dead", max_length=3, overflow="drop-head", dead_letter_queue="deeper")
    harness.declare("q", dead_letter_queue="dead")
    harness.publish_to("q", 2, persistent=how != "vanish", ttls_ms=[3000, 3000])
    harness.settle("k", REJECTED, *[row[0] for row in harness.deliver("k", "q")], reason="bad")
    harness.publish(["dead"], ttls_ms=[3000], persistent=how != "vanish")
    reader = harness.lease("dead")
    reader.note()
    origins = [piece.origin for piece in reader.pieces(0, 3)]
    reader.say(group(RELEASED, 1, 2, 3))
    reader.advance(3, min_messages=9)
    harness.wait(1.5)
    act = {
        "purge": lambda: harness.do(c.PurgeQueue("dead")),
        "expire": lambda: harness.wait(3),
        "redrive": lambda: harness.do(c.Redrive("dead")),
        "overflow": lambda: harness.publish_to("dead", 3),
        "vanish": harness.restart,
    }
    act[how]()
    expected = [] if how == "vanish" else [(1, "m1", 1), (2, "m2", 1), (3, "m3", 1)]
    assert reader.rows(0, 3) == expected
    if expected:
        found = [piece.origin for piece in reader.pieces(0, 3)]
        assert [o and (o.queue, o.reason, list(o.positions)) for o in found] == [
            o and (o.queue, o.reason, list(o.positions)) for o in origins
        ]
    reader.advance(3)


def test_a_replayed_settle_call_changes_nothing(harness: Harness, reader: Reader) -> None:
    """K2: the batch keeps the outcomes of its accept, and the reply reports that."""
    reader.say(group(REJECTED, 2))
    reader.advance(6, max_messages=1)
    reader.reply = reader.reply._replace(epoch=reader.attach(0, 6, holder=BOB).epoch)
    reader.note(6, run_id="replay")
    owner = reader.owner(run_id="replay")
    records = len(harness.log)
    stage = reader.stage("again", group(REJECTED, 2, 3), owner=owner)
    assert stage[1] == 2
    assert reader.commit(stage, owner=owner) == c.CommittedOutcomes(2, True)
    assert reader.commit(owner=owner) == c.CommittedOutcomes(0, True)
    assert len(harness.log) == records
    with pytest.raises(UnknownDeliveryTagError, match=r"tag 7 .* \(0, 6\]"):
        reader.stage("outside", group(REJECTED, 2, 7), owner=owner)


def test_a_replay_is_known_by_its_batch_when_its_tags_are_not(
    harness: Harness, reader: Reader
) -> None:
    """K2, S6: a fetch without tags counts for the accepted batch."""
    reader.advance(6)
    reader.reply = reader.reply._replace(epoch=reader.attach(0, 6, holder=BOB).epoch)
    reader.note(0, run_id="replay")
    owner = reader.owner(run_id="replay")
    assert reader.commit(reader.stage("a", group(REJECTED, 2), owner=owner), owner=owner)[1]
    reader.note(0, batch_id=8, run_id="replay")
    owner = reader.owner(batch_id=8, run_id="replay")
    assert not reader.commit(reader.stage("b", group(REJECTED, 8), owner=owner), owner=owner)[1]
    reader.advance(10)
    assert harness.browse("dead") == ["m8"]


def test_a_replay_is_settled_by_the_session_s_name(harness: Harness, reader: Reader) -> None:
    """K2: on Spark Connect no fetch names the reader; the tags show the accepted batch."""
    reader.say(group(REJECTED, 2), owner=BY_NAME)
    reader.advance(6, max_messages=2)
    reader.attach(0, 6, holder=BOB)
    stages = [
        reader.stage(name, group(outcome, *tags), owner=BY_NAME)
        for name, outcome, tags in (("again", REJECTED, (2, 3)), ("more", FAILED, (6,)))
    ]
    assert [tags for _, tags in stages] == [2, 1]
    records = len(harness.log)
    assert reader.stage("again", group(REJECTED, 2, 3), owner=BY_NAME) == stages[0]
    assert len(harness.log) == records
    harness.restart()
    assert reader.commit(*stages, owner=BY_NAME) == c.CommittedOutcomes(3, True)
    with pytest.raises(StageMismatchError, match="does not exist"):
        reader.commit((b"unknown".ljust(16), 2), owner=BY_NAME)
    with pytest.raises(UnknownDeliveryTagError, match=r"tag 6 .* \(6, 8\]"):
        reader.stage("both", group(REJECTED, 6, 7), owner=BY_NAME)
    reader.say(group(REJECTED, 7), name="next", owner=BY_NAME)
    assert harness.do(c.AbortOutcomes((stages[0][0],))) == 1
    reader.advance(8, holder=BOB)
    assert harness.browse("dead") == ["m2", "m7"]
    assert harness.core._state.outcome_stages == {}


def test_what_a_replay_said_goes_with_the_kept_lease(harness: Harness, reader: Reader) -> None:
    """K2: stages of a replay are dropped with the kept lease, however it ends."""
    reader.advance(6, min_messages=99)
    reader.attach(0, 6, holder=BOB)
    reader.stage("a", group(REJECTED, 2), owner=BY_NAME)
    assert len(harness.core._state.outcome_stages) == 1
    harness.do(c.ReleaseSession("s"))
    assert harness.core._state.outcome_stages == {}


def test_a_repeated_commit_after_the_accept_is_a_success(harness: Harness, reader: Reader) -> None:
    """S6: the commit names the query or the session."""
    stage = reader.stage("a", group(REJECTED, 2))
    reader.commit(stage)
    reader.advance(6)
    for owner in (reader.owner(), BY_NAME):
        assert reader.commit(stage, owner=owner) == c.CommittedOutcomes(1, True)
    assert harness.browse("dead") == ["m2"]
