"""Readers of a lease (S6): each fetch notes the run whose settle calls are about the lease."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackq.errors import (
    FencedError,
    InvalidArgumentError,
    LeaseHeldError,
    SessionNotFoundError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import BOB, BY_NAME, Harness, Reader, group, reading

REJECTED = Outcome.REJECTED
reader = pytest.fixture(reading)


def test_an_owner_that_reads_nothing(reader: Reader) -> None:
    """S6: another run, batch or query has no lease; a commit without stages is no error."""
    for owner in (
        reader.owner(run_id="other"),
        reader.owner(batch_id=8),
        reader.owner()._replace(query_id="other"),
    ):
        with pytest.raises(SessionNotFoundError, match="the option session"):
            reader.stage("a", group(REJECTED, 1), owner=owner)
        assert reader.commit(owner=owner) == c.CommittedOutcomes(0, False)
    with pytest.raises(SessionNotFoundError, match="no session 'x'"):
        reader.commit(owner=c.LeaseOwner("x"))


def test_a_batch_that_reads_two_sessions(harness: Harness, reader: Reader) -> None:
    """S6: the call must name the session; a stage id belongs to one session."""
    other = harness.lease("q", session="t", holder=BOB, max_messages=2)
    for each in (reader, other):
        each.note(batch_id=8)
    owner = reader.owner(batch_id=8)
    with pytest.raises(InvalidArgumentError, match=r"several sessions \(s, t\).* option session"):
        reader.stage("a", group(REJECTED, 1), owner=owner)
    reader.say(group(REJECTED, 1), owner=owner._replace(session="t"))
    stage, _ = reader.stage("b", group(REJECTED, 1), owner=BY_NAME)
    with pytest.raises(InvalidArgumentError, match="another session"):
        reader.stage("b", group(REJECTED, 1), owner=c.LeaseOwner("t"))
    other.advance(2)
    assert harness.browse("dead") == ["m7"]
    assert harness.do(c.AbortOutcomes((stage,))) == 1


def test_a_session_is_settled_by_name(harness: Harness, reader: Reader) -> None:
    """S6: a batch job is no run that reads the lease, and its dead letters have no batch."""
    reader.say(group(REJECTED, 2), owner=BY_NAME)
    reader.advance(6, min_messages=99)
    (piece,) = views.browse(harness.core.state, "dead")
    assert piece.origin is not None
    assert (piece.origin.session, piece.origin.batch_id) == ("s", -1)
    with pytest.raises(UnknownDeliveryTagError, match="end at 6, all accepted"):
        reader.stage("b", group(REJECTED, 2), owner=BY_NAME)


def test_a_fetch_is_noted_once_for_each_run_batch_and_epoch(
    harness: Harness, reader: Reader
) -> None:
    """S6: a label alone makes no record; a fetch of an old epoch is not noted."""
    records = len(harness.log)
    reader.note()
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


def test_a_fetch_without_a_query_proves_the_incarnation(harness: Harness) -> None:
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
    with pytest.raises(LeaseHeldError):
        harness.open("q", holder=BOB)


def test_a_run_that_read_nothing_of_its_session_is_fenced(reader: Reader) -> None:
    """S3, S6: it names the session, and is no run that read it; another query is not fenced."""
    owner = c.LeaseOwner("s", "query", "forgotten", 7)
    with pytest.raises(FencedError, match="Run forgotten of query query has read no message"):
        reader.stage("a", group(REJECTED, 2), owner=owner)
    assert reader.stage("b", group(REJECTED, 2), owner=owner._replace(query_id="other"))[1] == 1
    assert reader.stage("c", group(REJECTED, 2), owner=owner._replace(run_id="run"))[1] == 1


def test_a_run_of_a_session_that_was_opened_anew_is_fenced(
    harness: Harness, reader: Reader
) -> None:
    """S6, S9: the tags are of other messages now; a query that never read is not fenced."""
    owner = c.LeaseOwner("s", "query", "run", 7)
    assert reader.stage("a", group(REJECTED, 2), owner=owner)[1] == 1
    harness.do(c.ReleaseSession("s"))
    anew = harness.open("q", holder=BOB, open_and_lease=True)
    with pytest.raises(FencedError, match="though it read that session before: the session was"):
        anew.stage("b", group(REJECTED, 2), owner=owner)
    assert anew.stage("c", group(REJECTED, 2), owner=owner._replace(query_id="other"))[1] == 1


def test_a_note_of_what_is_not_there(harness: Harness, reader: Reader) -> None:
    """S6: a fetch of an unknown incarnation or an ended lease is not noted."""
    records = len(harness.log)
    harness.do(c.NoteFetch("s", "unknown", 1, "query", "run", 7))
    assert len(harness.log) == records
    reader.advance(6, min_messages=99)
    reader.note(8, batch_id=8)
    assert len(harness.log) == records + 1


def test_an_owner_that_names_its_epoch_is_fenced(reader: Reader) -> None:
    """S3, S6: a program without a run names the epoch in which it read."""
    owner = BY_NAME._replace(epoch=1)
    assert reader.stage("a", group(REJECTED, 2), owner=owner)[1] == 1
    reader.advance(0, holder=BOB)
    for call in (
        lambda: reader.stage("b", group(REJECTED, 2), owner=owner),
        lambda: reader.commit(owner=owner),
    ):
        with pytest.raises(FencedError, match="is held by host-b"):
            call()
    assert reader.stage("c", group(REJECTED, 2), owner=owner._replace(epoch=2))[1] == 1
