"""Batches that a query planned (S11): refusals, bounds; orders of crashes: tests/model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackq.errors import BatchChangedError, FencedError, UnreadLeaseError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, BY_NAME, Harness, Reader, group, reading

REJECTED = Outcome.REJECTED
reader = pytest.fixture(reading)


def test_a_batch_id_reads_no_lease_of_a_later_opening(harness: Harness) -> None:
    """S11: the checkpoint lost its files but not its query id; the first session is absent."""
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


def test_a_batch_of_several_sessions(harness: Harness) -> None:
    """S11: all leases of a batch precede its first fetch, also in a later run."""
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


def test_a_lease_that_nobody_fetched_is_not_accepted(harness: Harness) -> None:
    """S11: a sink skipped the batch before a row was read; a caller may accept it explicitly."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=2)
    with pytest.raises(UnreadLeaseError, match=r"tags 1 to 2 .* any of their 2 messages"):
        reader.advance(2, refuse_unread=True)
    reader.note(2, batch_id=1)
    harness.restart()
    assert reader.advance(2, refuse_unread=True).end_tag == 3
    assert reader.advance(3).end_tag == 3


def test_a_lease_that_was_settled_by_name_is_accepted(harness: Harness) -> None:
    """S6, S11: a batch job has settled rows of the lease."""
    harness.declare_filled("q", 2)
    reader = harness.lease("q")
    reader.say(group(Outcome.RELEASED, 1), owner=BY_NAME)
    assert reader.advance(2, refuse_unread=True).end_tag == 2


def test_a_fetch_of_nobody_known_reads_a_lease(harness: Harness) -> None:
    """S11: a fetch without a query suffices; holes, and leases of older versions, need none."""
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
    """S11, I6: the queries whose last fetch is the oldest are forgotten."""
    monkeypatch.setattr("ackq_broker.core.sessions.planned.MAX_QUERIES", 2)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "", "run", 0, "label", 6)
    for query, batch in (("b", 1), ("query", 8), ("c", 1)):
        harness.do(replace(note, query_id=query, batch_id=batch))
    harness.do(replace(note, query_id="a", user="another"))
    assert list(harness.core._state.queries[""]) == ["query", "c"]
    harness.restart()
    assert list(harness.core._state.queries[""]) == ["query", "c"]


def test_what_nobody_owns_is_known_to_all(harness: Harness, reader: Reader) -> None:
    """S11: a batch that an older version noted is refused to every user."""
    reader.note()
    reader.advance(6)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "query", "run", 7, "label", 7, "alice")
    harness.publish_to("q", 1)
    reader.advance(6)
    with pytest.raises(BatchChangedError):
        harness.do(note)


# --- batches without rows ---


def empty(reader: Reader, batch_id: int = 0) -> None:
    """Notes the task of a batch without rows, as an opening has one."""
    reader.note(0, batch_id=batch_id, empty=True)


def test_each_holder_counts_for_itself(harness: Harness) -> None:
    """S3, S11: the count restarts with the epoch, and an older holder's is refused."""
    harness.declare_filled("q", 2)
    reader = harness.lease("q", max_messages=1)
    reader.note(batch_id=1)
    reader.advance(1, min_messages=9)
    reader.attach(1, 1, planned=1)
    reader.advance(1, min_messages=9, holder=BOB)
    with pytest.raises(FencedError, match="is held by host-b"):
        reader.attach(1, 1, planned=2)
    reader.attach(1, 1, planned=1, holder=BOB)
    reader.advance(1, holder=BOB)
    with pytest.raises(BatchChangedError, match="planned batch 3"):
        reader.note(batch_id=3)
    reader.note(batch_id=4)


# --- batches that Spark did not read ---


def test_an_unread_batch_of_a_known_query_is_accepted(harness: Harness) -> None:
    """S11: this process read an earlier batch, so no sink has a batch of this id."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=1)
    reader.note(batch_id=1)
    reader.advance(1, max_messages=1, refuse_unread=True)
    assert reader.advance(2, max_messages=1, refuse_unread=True).end_tag == 3
    reader.advance(2, holder=BOB)
    with pytest.raises(UnreadLeaseError, match="Most likely Spark did not need the rows"):
        reader.advance(3, holder=BOB, refuse_unread=True)


def test_an_unread_batch_after_a_named_opening_is_accepted(harness: Harness) -> None:
    """S11: the task of the opening shows that the query is new."""
    harness.declare_filled("q", 1)
    reader = harness.open("q")
    empty(reader)
    reader.advance(0)
    assert reader.advance(1, refuse_unread=True).end_tag == 1


def test_another_source_of_the_batch_was_read(harness: Harness) -> None:
    """S11: a fetch of the same batch from another session does not make it an earlier one."""
    harness.declare("q", "r")
    one, two = (harness.open(x, session=x) for x in ("q", "r"))
    for each in (one, two):
        empty(each)
    harness.publish(["q", "r"])
    for each in (one, two):
        each.advance(0)
    two.note(batch_id=1)
    assert one.advance(1, refuse_unread=True).end_tag == 1
