"""Replays after outcomes (S6, K2); the outcomes themselves: `test_model_sessions`."""

from __future__ import annotations

import pytest

from ackq.errors import StageMismatchError, UnknownDeliveryTagError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, BY_NAME, Harness, Reader, counts, group, reading

REJECTED, FAILED, RELEASED, ACCEPTED = (
    Outcome.REJECTED,
    Outcome.FAILED,
    Outcome.RELEASED,
    Outcome.ACCEPTED,
)
reader = pytest.fixture(reading)


def test_rows_put_back_do_not_keep_availablenow_alive(harness: Harness, reader: Reader) -> None:
    """K5, S6: rows requeued with a delay are not eligible, whenever the delay ends."""
    horizon = harness.core.sequence
    reader.say(group(FAILED, 1, 2), group(RELEASED, 3, delay_ms=1))
    assert reader.advance(6, horizon=horizon).end_tag == 10
    harness.wait(2)
    assert counts(harness)[0] == 3
    assert reader.advance(10, horizon=horizon).end_tag == 10
    assert reader.advance(10).end_tag == 13


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
