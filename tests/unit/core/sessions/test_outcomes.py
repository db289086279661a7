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


def test_stages_go_with_the_accept_and_the_incarnation(harness, reader):
    """S6: a stage without a commit has no effect, and is dropped."""
    first = reader.stage("a", SECOND)
    reader.advance(6, max_messages=2)
    reader.note(batch_id=8)
    second = reader.stage("b", group(REJECTED, 7), owner=reader.owner(batch_id=8))
    harness.do(c.ReleaseSession("s"))
    assert harness.do(c.AbortOutcomes((first[0], second[0]))) == 0
    assert harness.browse("dead") == []
    owner = reader.owner(batch_id=8)
    refused(errors.SessionNotFoundError, "option session", reader.commit, second, owner=owner)


# --- stages and commits ---


def test_a_tag_outside_of_the_lease_is_refused(harness, reader):
    """S6: the error names the lowest such tag and the lease; a hole is inside and skipped."""
    reader.advance(6, max_messages=2)
    reader.note(batch_id=8)
    owner = reader.owner(batch_id=8)
    for tags, lowest in (((8, 9, 12), 9), ((3, 5, 8, 99), 3)):
        told, said = rf"tag {lowest} .* \(6, 8\]", group(REJECTED, *tags)
        refused(errors.UnknownDeliveryTagError, told, reader.stage, "a", said, owner=owner)
    harness.do(c.SettleLease("s", REJECTED, ((7, 7),)))
    reader.command = replace(reader.command, holder=BOB)
    reader.advance(6)
    reader.note(batch_id=8, run_id="second")
    owner = reader.owner(batch_id=8, run_id="second")
    reader.say(group(Outcome.FAILED, 7, 8), owner=owner)
    assert reader.info().settled == 1
    reader.advance(8)
    assert harness.browse("dead") == ["m7"]
    assert harness.info("q").delayed == 1


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


def test_a_replayed_settle_call_changes_nothing(harness, reader):
    """K2: the batch keeps the outcomes of its accept, and the reply reports that."""
    reader.say(SECOND)
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
    told, said = r"tag 7 .* \(0, 6\]", group(REJECTED, 2, 7)
    refused(errors.UnknownDeliveryTagError, told, reader.stage, "outside", said, owner=owner)


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


def test_a_replay_is_settled_by_the_session_s_name(harness, reader):
    """K2: on Spark Connect no fetch names the reader; the tags show the accepted batch."""
    reader.say(SECOND, owner=BY_NAME)
    reader.advance(6, max_messages=2)
    reader.attach(0, 6, holder=BOB)
    again = reader.stage("again", group(REJECTED, 2, 3), owner=BY_NAME)
    more = reader.stage("more", group(Outcome.FAILED, 6), owner=BY_NAME)
    assert (again[1], more[1]) == (2, 1)
    records = len(harness.log)
    assert reader.stage("again", group(REJECTED, 2, 3), owner=BY_NAME) == again
    assert len(harness.log) == records
    harness.restart()
    assert reader.commit(again, more, owner=BY_NAME) == c.CommittedOutcomes(3, True)
    unknown, both = (b"unknown".ljust(16), 2), group(REJECTED, 6, 7)
    told = "does not exist"
    refused(errors.StageMismatchError, told, reader.commit, unknown, owner=BY_NAME)
    told = r"tag 6 .* \(6, 8\]"
    refused(errors.UnknownDeliveryTagError, told, reader.stage, "both", both, owner=BY_NAME)
    reader.say(group(REJECTED, 7), name="next", owner=BY_NAME)
    assert harness.do(c.AbortOutcomes((again[0],))) == 1
    reader.advance(8, holder=BOB)
    assert harness.browse("dead") == ["m2", "m7"]
    assert harness.core._state.outcome_stages == {}


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
    assert harness.browse("dead") == ["m2"]


# --- readers ---


def test_an_owner_that_reads_nothing(reader):
    """S6: another run, batch or query has no lease; a commit without stages is no error."""
    for owner in (
        reader.owner(run_id="other"),
        reader.owner(batch_id=8),
        reader.owner()._replace(query_id="other"),
    ):
        told = "the option session"
        refused(errors.SessionNotFoundError, told, reader.stage, "a", SECOND, owner=owner)
        assert reader.commit(owner=owner) == c.CommittedOutcomes(0, False)
    refused(errors.SessionNotFoundError, "no session 'x'", reader.commit, owner=c.LeaseOwner("x"))


def test_a_batch_that_reads_two_sessions(harness, reader):
    """S6: the call must name the session; a stage id belongs to one session."""
    other = harness.lease("q", session="t", holder=BOB, max_messages=2)
    for each in (reader, other):
        each.note(batch_id=8)
    owner = reader.owner(batch_id=8)
    told = r"several sessions \(s, t\).* option session"
    refused(errors.InvalidArgumentError, told, reader.stage, "a", SECOND, owner=owner)
    reader.say(SECOND, owner=owner._replace(session="t"))
    stage, _ = reader.stage("b", SECOND, owner=BY_NAME)
    told, owner = "another session", c.LeaseOwner("t")
    refused(errors.InvalidArgumentError, told, reader.stage, "b", SECOND, owner=owner)
    other.advance(2)
    assert harness.browse("dead") == ["m8"]
    assert harness.do(c.AbortOutcomes((stage,))) == 1


def test_a_session_is_settled_by_name(harness, reader):
    """S6: a batch job is no run that reads the lease, and its dead letters have no batch."""
    reader.say(SECOND, owner=BY_NAME)
    reader.advance(6, min_messages=99)
    (piece,) = views.browse(harness.core.state, "dead")
    assert (piece.origin.session, piece.origin.batch_id) == ("s", -1)
    told = "end at 6, all accepted"
    refused(errors.UnknownDeliveryTagError, told, reader.stage, "b", SECOND, owner=BY_NAME)


def test_a_fetch_is_noted_once_for_each_run_batch_and_epoch(harness, reader):
    """S6: none for a label alone, an old epoch, an unknown incarnation, an ended lease."""
    records = len(harness.log)
    reader.note()
    harness.do(c.NoteFetch("s", "unknown", 1, "query", "run", 7))
    assert len(harness.log) == records
    reader.note(run_id="other")
    assert len(harness.log) == records + 1
    epoch = reader.reply.epoch
    reader.advance(0, holder=BOB)
    reader.reply = reader.reply._replace(epoch=epoch)
    reader.note(run_id="zombie")
    assert len(harness.log) == records + 2
    harness.restart()
    assert (reader.info().fetch, reader.info().run_id) == (c.FetchLabel("query", 7, ""), "other")
    reader.advance(6, min_messages=99, holder=BOB)
    records = len(harness.log)
    reader.note(8, batch_id=8)
    assert len(harness.log) == records


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


def test_a_run_that_read_nothing_of_its_session_is_fenced(reader):
    """S3, S6: it names the session, and is no run that read it; another query is not fenced."""
    owner = c.LeaseOwner("s", "query", "forgotten", 7)
    told = "Run forgotten of query query has read no message"
    refused(errors.FencedError, told, reader.stage, "a", SECOND, owner=owner)
    assert reader.stage("b", SECOND, owner=owner._replace(query_id="other"))[1] == 1
    assert reader.stage("c", SECOND, owner=owner._replace(run_id="run"))[1] == 1


def test_a_run_of_a_session_that_was_opened_anew_is_fenced(harness, reader):
    """S6, S9: the tags are of other messages now; a query that never read is not fenced."""
    owner = c.LeaseOwner("s", "query", "run", 7)
    assert reader.stage("a", SECOND, owner=owner)[1] == 1
    harness.do(c.ReleaseSession("s"))
    anew = harness.open("q", holder=BOB, open_and_lease=True)
    told = "though it read that session before: the session was"
    refused(errors.FencedError, told, anew.stage, "b", SECOND, owner=owner)
    assert anew.stage("c", SECOND, owner=owner._replace(query_id="other"))[1] == 1


def test_an_owner_that_names_its_epoch_is_fenced(reader):
    """S3, S6: a program without a run names the epoch in which it read."""
    owner = BY_NAME._replace(epoch=1)
    assert reader.stage("a", SECOND, owner=owner)[1] == 1
    reader.advance(0, holder=BOB)
    told = "is held by host-b"
    refused(errors.FencedError, told, reader.stage, "b", SECOND, owner=owner)
    refused(errors.FencedError, told, reader.commit, owner=owner)
    assert reader.stage("c", SECOND, owner=owner._replace(epoch=2))[1] == 1
