"""Readers of a lease (S6): whose lease a settle call is about, noted with each fetch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackq.errors import (
    BatchChangedError,
    FencedError,
    InvalidArgumentError,
    LeaseHeldError,
    SessionNotFoundError,
    UnknownDeliveryTagError,
    UnreadLeaseError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import (
    BOB,
    BY_NAME,
    Harness,
    Reader,
    group,
    reading,
)

REJECTED = Outcome.REJECTED
reader = pytest.fixture(reading)


def test_an_owner_that_reads_nothing(reader: Reader) -> None:
    """S6: another run, batch or query is not found; nothing to settle is no error."""
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
    """S6: the call must say which; a stage id belongs to one."""
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
    """S6: from a batch job, which is no run that reads it; it has no batch either."""
    reader.say(group(REJECTED, 2), owner=BY_NAME)
    reader.advance(6, min_messages=99)
    (piece,) = harness.core.browse("dead")
    assert piece.origin is not None
    assert (piece.origin.session, piece.origin.batch_id) == ("s", -1)
    with pytest.raises(UnknownDeliveryTagError, match="end at 6, all accepted"):
        reader.stage("b", group(REJECTED, 2), owner=BY_NAME)


def test_a_fetch_is_noted_once_for_each_run_batch_and_epoch(
    harness: Harness, reader: Reader
) -> None:
    """S6: the label alone makes no record; an old epoch's fetch is none of this lease."""
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
    """S9: as on Spark Connect under Trigger.Once; one record, and no reader of it."""
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
    """S3, S6: it names the session, and is none of the runs that read it; another query may."""
    owner = c.LeaseOwner("s", "query", "forgotten", 7)
    with pytest.raises(FencedError, match="Run forgotten of query query has read nothing"):
        reader.stage("a", group(REJECTED, 2), owner=owner)
    assert reader.stage("b", group(REJECTED, 2), owner=owner._replace(query_id="other"))[1] == 1
    assert reader.stage("c", group(REJECTED, 2), owner=owner._replace(run_id="run"))[1] == 1


def test_a_run_of_a_session_that_was_opened_anew_is_fenced(
    harness: Harness, reader: Reader
) -> None:
    """S6, S9: the same tags are those of other messages: one of a query that never read is not."""
    owner = c.LeaseOwner("s", "query", "run", 7)
    assert reader.stage("a", group(REJECTED, 2), owner=owner)[1] == 1
    harness.do(c.ReleaseSession("s"))
    anew = harness.open("q", holder=BOB, open_and_lease=True)
    with pytest.raises(FencedError, match="though it read that session before: it was opened"):
        anew.stage("b", group(REJECTED, 2), owner=owner)
    assert anew.stage("c", group(REJECTED, 2), owner=owner._replace(query_id="other"))[1] == 1


def test_an_owner_that_names_its_epoch_is_fenced(reader: Reader) -> None:
    """S3, S6: a program that reads a session has no run; it says when it has read."""
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


# --- S11 ---


def test_a_batch_id_reads_no_lease_of_a_later_opening(harness: Harness) -> None:
    """S11: the checkpoint lost its files and kept its query's id, and the first session is away."""
    harness.declare_filled("q", 3)
    first = harness.open("q", session="", open_and_lease=True)
    first.note(batch_id=0)
    harness.publish_to("q", 2)
    second = harness.open("q", session="", open_and_lease=True, holder=BOB)
    records = len(harness.log)
    for _ in range(2):
        with pytest.raises(BatchChangedError) as caught:
            second.note(batch_id=0, run_id="second")
        told = str(caught.value)
        assert "Batch 0 of query query would read the tags 1 to 2" in told
        assert f"batch 0, from the tags 1 to 3 of session '{first.command.session}'" in told
        assert f"`ackq session release {second.command.session}`" in told
        assert not second.info().proven
    assert len(harness.log) == records
    harness.restart()
    with pytest.raises(BatchChangedError):
        second.note(batch_id=0, run_id="second")
    first.note(batch_id=0, run_id="second")
    second.note(batch_id=1)


@pytest.mark.parametrize("options", [{}, {"takeover": True}], ids=["released", "taken over"])
def test_no_remedy_for_a_held_lease_lets_a_batch_read_another(
    harness: Harness, options: dict[str, bool]
) -> None:
    """S9, S11: released or taken over, the messages are leased anew, and that is another lease."""
    harness.declare_filled("q", 3)
    harness.open("q", open_and_lease=True).note(batch_id=0)
    if not options:
        harness.do(c.ReleaseSession("s"))
    again = harness.open("q", open_and_lease=True, **options)
    with pytest.raises(BatchChangedError, match="leased after the query had read batch 0"):
        again.note(batch_id=0)
    again.note(batch_id=1)


def test_a_batch_of_several_sessions(harness: Harness) -> None:
    """S11: what a batch reads is leased before any of it is fetched, in a later run as well."""
    harness.declare("q", "r")
    harness.publish(["q", "r"])
    one, two = (harness.open(x, session=x, open_and_lease=True) for x in ("q", "r"))
    one.note(batch_id=0)
    one.note(batch_id=0, run_id="second")
    two.note(batch_id=0, run_id="second")
    harness.publish(["q", "r"])
    for reader in (one, two):
        reader.advance(1)
    two.note(batch_id=1)
    one.note(batch_id=1)


def test_a_replay_of_the_kept_lease_is_of_its_batch(harness: Harness) -> None:
    """K2, S11: also once the query has read a later batch, when the files of both were lost."""
    harness.declare_filled("q", 2)
    reader = harness.lease("q", max_messages=1)
    reader.note(1, batch_id=0)
    reader.advance(1)
    reader.note(2, batch_id=1)
    reader.attach(0, 1)
    reader.note(1, batch_id=0, run_id="second")
    reader.note(2, batch_id=1, run_id="second")


def test_a_lease_that_nobody_fetched_is_not_accepted(harness: Harness) -> None:
    """S11: a sink skipped its batch before a row was read; a caller may say that this is meant."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=2)
    with pytest.raises(UnreadLeaseError, match=r"tags 1 to 2 .* any of their 2 messages"):
        reader.advance(2, refuse_unread=True)
    reader.note(2, batch_id=0)
    harness.restart()
    assert reader.advance(2, refuse_unread=True).end_tag == 3
    assert reader.advance(3).end_tag == 3


def test_a_lease_that_was_settled_by_name_is_accepted(harness: Harness) -> None:
    """S6, S11: a batch job said what becomes of it."""
    harness.declare_filled("q", 2)
    reader = harness.lease("q")
    reader.say(group(Outcome.RELEASED, 1), owner=BY_NAME)
    assert reader.advance(2, refuse_unread=True).end_tag == 2


def test_a_fetch_of_nobody_known_reads_a_lease(harness: Harness) -> None:
    """S11: as on Spark Connect; holes alone, and what an older version leased, need no reader."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=1)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "", "", 0, "label", 1)
    for last in (1, 2):
        harness.do(replace(note, last_tag=last))
        reader.advance(last, refuse_unread=True, max_messages=1)
    harness.do(c.SettleLease("s", REJECTED, ((3, 3),), fence=True, discard=True))
    reader.advance(3, refuse_unread=True, holder=BOB)
    harness.publish_to("q", 1)
    reader.advance(3, holder=BOB)
    lease = harness.core._state.sessions["s"].lease
    assert lease is not None
    lease.sequence = 0
    stale = replace(reader.command, start_tag=4, holder=BOB, refuse_unread=True)
    assert harness.core.decide(stale, harness.now_us)


def test_the_queries_whose_batch_is_known_are_bounded(
    harness: Harness, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S11, I6: those that read longest ago are forgotten."""
    monkeypatch.setattr("ackq_broker.core.sessions.readers.MAX_QUERIES", 2)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "", "run", 0, "label", 6)
    for query, batch in (("b", 0), ("query", 8), ("c", 0)):
        harness.do(replace(note, query_id=query, batch_id=batch))
    harness.do(replace(note, query_id="a", user="another"))
    assert list(harness.core._state.queries[""]) == ["query", "c"]
    harness.restart()
    assert list(harness.core._state.queries[""]) == ["query", "c"]


def test_a_batch_that_another_user_claims(harness: Harness) -> None:
    """S11: who fetches under the id of another user's query changes nothing for that query."""
    harness.declare_filled("q", 2)
    harness.declare_filled("p", 2)
    reader, other = harness.lease("q", max_messages=1), harness.lease("p", session="t", holder=BOB)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "query", "run", 0, "label", 1, "alice")
    harness.do(note)
    claim = c.NoteFetch(
        "t", other.command.incarnation, 1, "query", "run", 1 << 62, "label", 1, "mallory"
    )
    harness.do(claim)
    harness.restart()
    reader.advance(1)
    harness.do(replace(note, batch_id=1, last_tag=2))
    with pytest.raises(BatchChangedError):
        harness.do(replace(claim, user="", incarnation=note.incarnation, session="s", last_tag=2))
    owner = c.LeaseOwner("", "query", "run", 1, user="alice")
    assert not harness.do(c.CommitOutcomes(owner, ())).accepted_before
    assert harness.core.sessions_of_run("run", "alice") == ["s"]
    assert harness.core.sessions_of_run("run", "mallory") == ["t"]


def test_what_nobody_owns_is_known_to_all(harness: Harness, reader: Reader) -> None:
    """S11: a batch that an older version noted is refused to each user."""
    reader.note()
    reader.advance(6)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "query", "run", 7, "label", 7, "alice")
    harness.publish_to("q", 1)
    reader.advance(6)
    with pytest.raises(BatchChangedError):
        harness.do(note)


def test_a_note_of_what_is_not_there(harness: Harness, reader: Reader) -> None:
    """S6: an incarnation that is gone, a lease that was let go: nothing is noted."""
    records = len(harness.log)
    harness.do(c.NoteFetch("s", "unknown", 1, "query", "run", 7))
    assert len(harness.log) == records
    reader.advance(6, min_messages=99)
    reader.note(8, batch_id=8)
    assert len(harness.log) == records + 1
