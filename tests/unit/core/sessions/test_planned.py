"""Batches that a query planned (S11): refusals, bounds; orders of crashes: tests/model."""

from dataclasses import replace

import pytest

from ackq.errors import BatchChangedError, FencedError, UnreadLeaseError
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, BY_NAME, REJECTED, RELEASED, group, reading, refused

reader = pytest.fixture(reading)
READ = {"refuse_unread": True}


def test_a_batch_id_reads_no_lease_of_a_later_opening(harness):
    """S11: the checkpoint lost its files but not its query id; the first session is absent."""
    harness.declare_filled("q", 3)
    first = harness.open("q", session="", open_and_lease=True)
    first.note(batch_id=0)
    harness.publish_to("q", 2)
    second = harness.open("q", session="", open_and_lease=True, holder=BOB)
    records = len(harness.log)
    told = (
        "Batch 0 of query query would read the tags 1 to 2.*"
        f"batch 0, from the tags 1 to 3 of session '{first.command.session}'.*"
        f"`ackq session release {second.command.session}`"
    )
    refused(BatchChangedError, told, second.note, batch_id=0, run_id="second")
    assert (second.info().proven, len(harness.log)) == (False, records)
    harness.restart()
    refused(BatchChangedError, told, second.note, batch_id=0, run_id="second")
    first.note(batch_id=0, run_id="second")
    second.note(batch_id=1)


def test_a_batch_of_several_sessions(harness):
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


def test_a_lease_that_nobody_fetched_is_not_accepted(harness):
    """S11: a sink skipped the batch before a row was read; a caller may accept it explicitly."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=2)
    told = r"tags 1 to 2 .* any of their 2 messages"
    refused(UnreadLeaseError, told, reader.advance, 2, **READ)
    reader.note(2, batch_id=1)
    harness.restart()
    assert reader.advance(2, **READ).end_tag == 3
    assert reader.advance(3).end_tag == 3


def test_a_lease_that_was_settled_by_name_is_accepted(harness):
    """S6, S11: a batch job has settled rows of the lease."""
    harness.declare_filled("q", 2)
    reader = harness.lease("q")
    reader.say(group(RELEASED, 1), owner=BY_NAME)
    assert reader.advance(2, **READ).end_tag == 2


def test_a_fetch_of_nobody_known_reads_a_lease(harness):
    """S11: a fetch without a query suffices; holes, and leases of older versions, need none."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=1)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "", "", 0, "label", 1)
    for last in (1, 2):
        harness.do(replace(note, last_tag=last))
        reader.advance(last, max_messages=1, **READ)
    harness.do(c.SettleLease("s", REJECTED, ((3, 3),), fence=True, discard=True))
    reader.advance(3, holder=BOB, **READ)
    harness.publish_to("q", 1)
    reader.advance(3, holder=BOB)
    harness.core._state.sessions["s"].lease.sequence = 0
    stale = replace(reader.command, start_tag=4, holder=BOB, **READ)
    assert harness.core.decide(stale, harness.now_us)


def test_the_queries_whose_batch_is_known_are_bounded(harness, reader, monkeypatch):
    """S11, I6: the queries whose last fetch is the oldest are forgotten."""
    monkeypatch.setattr("ackq_broker.core.sessions.planned.MAX_QUERIES", 2)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "", "run", 0, "label", 6)
    for query, batch in (("b", 1), ("query", 8), ("c", 1)):
        harness.do(replace(note, query_id=query, batch_id=batch))
    harness.do(replace(note, query_id="a", user="another"))
    assert list(harness.core._state.queries[""]) == ["query", "c"]
    harness.restart()
    assert list(harness.core._state.queries[""]) == ["query", "c"]


def test_what_nobody_owns_is_known_to_all(harness, reader):
    """S11: a batch that an older version noted is refused to every user."""
    reader.advance(6)
    note = c.NoteFetch("s", reader.command.incarnation, 1, "query", "run", 7, "label", 7, "alice")
    refused(BatchChangedError, "Batch 7 of query query", harness.do, note)


# --- batches without rows ---


def test_each_holder_counts_for_itself(harness):
    """S3, S11: the count restarts with the epoch, and an older holder's is refused."""
    harness.declare_filled("q", 2)
    reader = harness.lease("q", max_messages=1)
    reader.note(batch_id=1)
    reader.advance(1, min_messages=9)
    reader.attach(1, 1, planned=1)
    reader.advance(1, min_messages=9, holder=BOB)
    refused(FencedError, "is held by host-b", reader.attach, 1, 1, planned=2)
    reader.attach(1, 1, planned=1, holder=BOB)
    reader.advance(1, holder=BOB)
    refused(BatchChangedError, "planned batch 3", reader.note, batch_id=3)
    reader.note(batch_id=4)


# --- batches that Spark did not read ---


def test_an_unread_batch_of_a_known_query_is_accepted(harness):
    """S11: this process read an earlier batch, so no sink has a batch of this id."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=1)
    reader.note(batch_id=1)
    reader.advance(1, max_messages=1, **READ)
    assert reader.advance(2, max_messages=1, **READ).end_tag == 3
    reader.advance(2, holder=BOB)
    told = "Most likely Spark did not need the rows"
    refused(UnreadLeaseError, told, reader.advance, 3, holder=BOB, **READ)


def test_an_unread_batch_after_a_named_opening_is_accepted(harness):
    """S11: its task shows that the query is new, also if the batch was read from another source."""
    harness.declare("q", "r")
    one, two = (harness.open(x, session=x) for x in ("q", "r"))
    for each in (one, two):
        each.note(0, batch_id=0, empty=True)  # the task of the opening, a batch without rows
    harness.publish(["q", "r"])
    for each in (one, two):
        each.advance(0)
    two.note(batch_id=1)
    assert one.advance(1, **READ).end_tag == 1
