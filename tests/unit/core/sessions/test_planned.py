"""Batches that a query planned (S11): refusals, bounds; orders of crashes: tests/model."""

from dataclasses import replace

import pytest

from ackq.errors import BatchChangedError, FencedError, UnreadLeaseError
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, BY_NAME, RELEASED, group, reading, refused

reader = pytest.fixture(reading)
READ = {"refuse_unread": True}


def test_a_lease_that_nobody_fetched_is_not_accepted(harness):
    """S11: a sink skipped the batch before a row was read; a caller may accept it explicitly."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q", max_messages=2)
    refused(UnreadLeaseError, r"tags 1 to 2 .* any of their 2 messages", reader.advance, 2, **READ)
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
