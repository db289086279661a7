"""K13: the source on Spark 4.0 and 4.1, which do not say where a query stands."""

from functools import partial

import pytest

from ackq import limits
from ackq.errors import InvalidArgumentError, UnsupportedError
from ackq.spark.source.older_reader import OlderStreamReader
from tests.unit.spark.source.conftest import START, advanced, at, attached


@pytest.fixture
def make(make):
    """Makes a reader of the session `s`, as Spark 4.0 and 4.1 have it."""
    return partial(make, kind=OlderStreamReader, session="s")


def accepted(session):
    """The incarnation and start tag of each advance."""
    return [(asked.incarnation, asked.start_tag) for asked in session.asked]


def test_a_query_needs_a_session(make):
    """K13: after a crash before `offsets/0` only the session's name finds the lease."""
    with pytest.raises(InvalidArgumentError, match=r"On Spark 4\.0 and 4\.1") as failure:
        make(session=None)
    assert failure.value.fields["argument"] == "session"


def test_the_first_batch_leases(make, session):
    """K13: the opening leases, as under once and availableNow no second batch follows."""
    assert make(advanced(5, (5, 9))).latestOffset() == at(5)
    (asked,) = session.asked
    assert (asked.session, asked.incarnation, asked.start_tag) == ("s", "", 0)
    assert asked.open_and_lease


@pytest.mark.parametrize(
    ("given", "messages", "size"),
    [
        ({}, 0, 0),
        ({"maxMessagesPerTrigger": "7"}, 7, limits.DEFAULT_MAX_BYTES_PER_TRIGGER),
        ({"maxBytesPerTrigger": "1k"}, limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER, 1024),
    ],
)
def test_a_batch_is_bounded_by_options_alone(make, session, given, messages, size):
    """K13: without options a batch is unbounded, as the trigger is unknown."""
    make(advanced(5, (5, 9)), **given).latestOffset()
    (asked,) = session.asked
    assert (asked.max_messages, asked.max_bytes) == (messages, size)


def test_the_next_call_proves_the_batch_before(make, session):
    """K1, K13: Spark calls again only when the previous batch is in its commit log."""
    reader = make(advanced(5, (5, 9)), advanced(9, (9, 9)), advanced(9))
    reader.latestOffset()
    reader.partitions(START, at(5))
    assert reader.latestOffset() == at(9)
    reader.commit(at(5))
    reader.partitions(at(5), at(9))
    assert reader.latestOffset() == at(9)
    assert accepted(session) == [("", 0), ("i1", 5), ("i1", 9)]


def test_a_batch_that_nothing_reads_is_proven_as_well(make, session):
    """K13: a batch whose rows `foreachBatch` does not use has no planned partitions."""
    reader = make(advanced(5, (5, 9)), advanced(5))
    assert [reader.latestOffset() for _ in range(3)] == [at(5), at(5), at(5)]
    assert accepted(session) == [("", 0), ("i1", 5)]


def test_what_spark_asks_twice_before_the_first_batch_has_one_answer(make, session):
    """K13: the second call, by the availableNow wrapper, proves nothing."""
    reader = make(advanced(5, (5, 9)), advanced(9, (9, 9)))
    assert [reader.latestOffset(), reader.latestOffset()] == [at(5), at(5)]
    assert accepted(session) == [("", 0)]
    reader.partitions(START, at(5))
    assert reader.latestOffset() == at(9)
    assert accepted(session) == [("", 0), ("i1", 5)]


def test_an_end_before_the_place_is_refused(make):
    """K13: under the wrapper a restarted query asks for an end before it names its place."""
    reader = make(advanced(3, (3, 9), incarnation="i2"))
    reader.latestOffset()
    with pytest.raises(UnsupportedError, match=r"triggerAvailableNowWrapper\.enabled"):
        reader.partitions(at(5), at(5))


def test_the_minimum_applies_after_the_opening(make, session):
    """K6, K13: only the opening leases in its call; both calls name the minimum."""
    reader = make(advanced(0), advanced(5, (5, 9)), minMessagesPerTrigger="4", maxTriggerDelay="1h")
    reader.latestOffset()
    reader.latestOffset()
    assert [asked.open_and_lease for asked in session.asked] == [True, False]
    assert [asked.min_messages for asked in session.asked] == [4, 4]


def test_a_batch_that_runs_again_is_proven_after_it(make, session):
    """K2, K13: a replayed batch is in the commit log at the call after it."""
    reader = make(attached(2, (9, 9)), advanced(9))
    reader.partitions(at(9), at(9))
    assert len(reader.partitions(at(5), at(9))) == 1
    assert reader.latestOffset() == at(9)
    assert (session.asked[0].start_tag, session.asked[0].end_tag) == (5, 9)
    assert session.asked[1].start_tag == 9


def test_async_progress_is_refused(make):
    """K11: the offset that the source keeps replaces the start that newer Sparks name."""
    reader = make(advanced(5, (5, 9)), advanced(9, (9, 9)))
    reader.latestOffset()
    reader.partitions(START, at(5))
    reader.latestOffset()
    with pytest.raises(UnsupportedError, match="asynchronous progress"):
        reader.latestOffset()
