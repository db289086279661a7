"""Outcomes from a query (S6, K2): staged and committed by its readers, applied by the accept.

The outcomes themselves: `test_model_sessions`.
"""

from dataclasses import replace

import pytest

from ackq import errors
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.core.sessions import outcomes
from tests.unit.core.harness import BOB, BY_NAME, REJECTED, RELEASED, group, reading, refused

reader = pytest.fixture(reading)
SECOND = group(REJECTED, 2)


@pytest.mark.parametrize("session", ["", "s"], ids=["noted", "named"])
def test_a_call_without_bad_rows_takes_back_an_older_epoch_s(harness, reader, session):
    """S6: the newer run wrote every row; a program that names no query is not known to be one."""
    nothing = c.CommittedOutcomes(0, False)
    reader.say(SECOND)
    assert reader.commit() == nothing
    reader.advance(0, holder=BOB)
    assert reader.commit(owner=BY_NAME) == nothing
    assert reader.info().settled == 1
    if not session:
        reader.note(run_id="second")
    owner = reader.owner(run_id="second")._replace(session=session)
    assert reader.commit(owner=owner) == nothing
    assert reader.info().settled == 0
    reader.advance(6)
    assert (harness.browse("dead"), harness.info("q").accepted) == ([], 6)


# --- accepts, and replays of what was accepted ---


def test_rows_put_back_do_not_keep_availablenow_alive(harness, reader):
    """K5, S6: rows requeued with a delay are not eligible, whenever the delay ends."""
    horizon = harness.core.sequence
    reader.say(group(Outcome.FAILED, 1, 2), group(RELEASED, 3, delay_ms=1))
    assert reader.advance(6, horizon=horizon).end_tag == 10
    harness.wait(2)
    assert harness.ready("q") == 3
    assert reader.advance(10, horizon=horizon).end_tag == 10
    assert reader.advance(10).end_tag == 13


def test_a_replay_is_known_by_its_batch_when_its_tags_are_not(harness, reader):
    """K2, S6: a fetch without tags counts for the accepted batch."""
    reader.advance(6)
    reader.reply = reader.reply._replace(epoch=reader.attach(0, 6, holder=BOB).epoch)
    reader.note(0, run_id="replay")
    owner = reader.owner(run_id="replay")
    assert reader.commit(reader.stage("a", SECOND, owner=owner), owner=owner)[1]
    reader.note(0, batch_id=8, run_id="replay")
    owner = reader.owner(batch_id=8, run_id="replay")
    assert not reader.commit(reader.stage("b", group(REJECTED, 8), owner=owner), owner=owner)[1]
    reader.advance(10)
    assert harness.browse("dead") == ["m8"]


def test_a_commit_is_whole_or_nothing(harness, reader):
    """S6: with one stage missing, short or named twice, no stage counts."""
    stage = reader.stage("a", SECOND)
    wrong = {
        "does not exist": (b"other".ljust(16), 1),
        "has 1 tag, not 2": (stage[0], 2),
        "is named twice": stage,
    }
    for told, other in wrong.items():
        refused(errors.StageMismatchError, told, reader.commit, stage, other)
    assert reader.info().settled == 0
    reader.advance(6)
    assert harness.browse("dead") == []


def test_a_repeated_commit_after_the_accept_is_a_success(harness, reader):
    """S6: the commit names the query or the session."""
    stage = reader.stage("a", SECOND)
    reader.commit(stage)
    reader.advance(6)
    for owner in (reader.owner(), BY_NAME):
        assert reader.commit(stage, owner=owner) == c.CommittedOutcomes(1, True)
    assert reader.commit(owner=reader.owner(batch_id=9)) == c.CommittedOutcomes(0, False)
    assert harness.browse("dead") == ["m2"]


# --- readers ---


def test_who_was_replaced_may_not_settle(harness, reader):
    """S3, S6, S9: an older epoch, a run that read nothing, and one of the session of before."""
    run, owner = c.LeaseOwner("s", "query", "run", 7), BY_NAME._replace(epoch=1)
    assert reader.stage("a", SECOND, owner=owner)[1] == 1
    reader.advance(0, holder=BOB)
    refused(errors.FencedError, "is held by host-b", reader.stage, "b", SECOND, owner=owner)
    refused(errors.FencedError, "is held by host-b", reader.commit, owner=owner)
    told, never = "Run other of query query has read no message", run._replace(run_id="other")
    refused(errors.FencedError, told, reader.stage, "b", SECOND, owner=never)
    left, _ = reader.stage("left", SECOND, owner=BY_NAME)
    harness.do(c.ReleaseSession("s"))
    assert harness.do(c.AbortOutcomes((left,))) == 0
    anew = harness.open("q", holder=BOB, open_and_lease=True)
    told = "though it read that session before: the session was"
    refused(errors.FencedError, told, anew.stage, "b", SECOND, owner=run)
    assert anew.stage("c", SECOND, owner=run._replace(query_id="other"))[1] == 1


def test_a_batch_that_reads_two_sessions(harness, reader):
    """S6: the call must name the session; its outcomes are of that one alone."""
    other = harness.lease("q", session="t", holder=BOB, max_messages=2)
    for each in (reader, other):
        each.note(batch_id=8)
    owner = reader.owner(batch_id=8)
    told = r"several sessions \(s, t\).* option session"
    refused(errors.InvalidArgumentError, told, reader.stage, "a", SECOND, owner=owner)
    reader.say(SECOND, owner=owner._replace(session="t"))
    other.advance(2)
    assert harness.browse("dead") == ["m8"]


def test_a_session_is_settled_by_name(harness, reader):
    """S6: a batch job is no run that reads the lease, and its dead letters have no batch."""
    reader.say(SECOND, owner=BY_NAME)
    reader.advance(6, min_messages=99)
    (piece,) = views.browse(harness.core.state, "dead")
    assert (piece.origin.session, piece.origin.batch_id) == ("s", -1)
    told = "end at 6, all accepted"
    refused(errors.UnknownDeliveryTagError, told, reader.stage, "b", SECOND, owner=BY_NAME)


def test_a_fetch_without_a_query_proves_the_incarnation(harness):
    """S9: such a fetch, as on Spark Connect under Trigger.Once, makes one record, and no reader."""
    harness.declare_filled("q", 2)
    reader = harness.open("q", open_and_lease=True)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "", "", 0, "label", 2)
    harness.do(replace(note, epoch=2))
    assert not reader.info().proven
    records = len(harness.log)
    for _ in range(2):
        harness.do(note)
        assert reader.info().proven
    assert len(harness.log) == records + 1
    assert harness.core._state.runs == {}
    refused(errors.LeaseHeldError, "2 messages", harness.open, "q", holder=BOB)


def test_what_a_lease_can_have_said_of_it_is_bounded(reader, monkeypatch):
    """I6: the stages of a lease are bounded, and so are its different outcomes."""
    monkeypatch.setattr(outcomes, "MAX_STAGES", 2)
    monkeypatch.setattr(outcomes, "MAX_TAG_OUTCOMES", 3)
    reader.say(group(REJECTED, 1), group(REJECTED, 2, reason="other"))
    more = group(RELEASED, 1), group(REJECTED, 2)
    refused(errors.LimitError, "different outcomes", reader.stage, "a", *more)
    reader.stage("b", group(RELEASED, 1))
    refused(errors.LimitError, "stages", reader.stage, "c", group(RELEASED, 1))


def test_rejecting_without_a_dead_letter_queue(harness):
    """S6: refused unless the call has `discard`; then the messages are dropped."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q")
    reader.note()
    told, said = "2 messages of queue 'q' .* discard", group(REJECTED, 1, 2)
    refused(errors.PreconditionFailedError, told, reader.stage, "a", said, group(RELEASED, 3))
    reader.say(said, discard=True)
    before = reader.rows(0, 3)
    reader.advance(3)
    info = harness.info("q")
    assert (info.ready, info.delayed, info.unacked) == (0, 0, 0)
    assert (info.accepted, info.dropped) == (1, 2)
    assert reader.rows(0, 3) == before


def test_a_fetch_of_an_older_epoch_is_not_noted(harness, reader):
    """S3, S6: nor one of an unknown incarnation, nor one that was noted before."""
    reader.note()
    epoch = reader.reply.epoch
    reader.advance(0, holder=BOB)
    reader.reply = reader.reply._replace(epoch=epoch)
    records = len(harness.log)
    reader.note(run_id="zombie")
    harness.do(c.NoteFetch("s", "unknown", 1, "query", "run", 7))
    assert len(harness.log) == records
