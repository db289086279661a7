"""K13: the source on Spark 4.0 and 4.1, which do not say where a query stands."""

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from ackq import limits
from ackq.errors import InvalidArgumentError, UnsupportedError
from ackq.spark.options import options
from ackq.spark.source.older_reader import OlderStreamReader
from ackq.v1 import sessions_pb2 as pb

SCHEMA = StructType([StructField("delivery_tag", LongType()), StructField("body", BinaryType())])
START = {"v": 1}


def at(tag):
    return {"v": 1, "session": "s", "incarnation": "i1", "tag": tag}


@pytest.fixture
def make(session):
    def make_reader(**given):
        wanted = {"endpoint": "b:1", "queue": "q", "session": "s", **given}
        parsed = options.source({name: text for name, text in wanted.items() if text is not None})
        return OlderStreamReader(parsed, SCHEMA, lambda _connection: session, session.find)

    return make_reader


def accepted(session):
    """The incarnation and start tag of each advance."""
    return [(asked.incarnation, asked.start_tag) for asked in session.asked]


def test_a_query_needs_a_session(make):
    """K13: after a crash before `offsets/0` only the session's name finds the lease."""
    with pytest.raises(InvalidArgumentError, match=r"On Spark 4\.0 and 4\.1") as failure:
        make(session=None)
    assert failure.value.fields["argument"] == "session"


def test_the_first_batch_leases(make, session, advanced):
    """K13: the opening leases, as under once and availableNow no second batch follows."""
    session.answers.append(advanced(5, (5, 9)))
    assert make().latestOffset() == at(5)
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
def test_a_batch_is_bounded_by_options_alone(make, session, advanced, given, messages, size):
    """K13: without options a batch is unbounded, as the trigger is unknown."""
    session.answers.append(advanced(5, (5, 9)))
    make(**given).latestOffset()
    (asked,) = session.asked
    assert (asked.max_messages, asked.max_bytes) == (messages, size)


def test_the_next_call_proves_the_batch_before(make, session, advanced):
    """K1, K13: Spark calls again only when the previous batch is in its commit log."""
    session.answers += [advanced(5, (5, 9)), advanced(9, (9, 9)), advanced(9)]
    reader = make()
    reader.latestOffset()
    reader.partitions(START, at(5))
    assert reader.latestOffset() == at(9)
    reader.commit(at(5))
    reader.partitions(at(5), at(9))
    assert reader.latestOffset() == at(9)
    assert accepted(session) == [("", 0), ("i1", 5), ("i1", 9)]


def test_a_batch_that_nothing_reads_is_proven_as_well(make, session, advanced):
    """K13: a batch whose rows `foreachBatch` does not use has no planned partitions."""
    session.answers += [advanced(5, (5, 9)), advanced(5)]
    reader = make()
    assert [reader.latestOffset() for _ in range(3)] == [at(5), at(5), at(5)]
    assert accepted(session) == [("", 0), ("i1", 5)]


def test_what_spark_asks_twice_before_the_first_batch_has_one_answer(make, session, advanced):
    """K13: the second call, by the availableNow wrapper, proves nothing."""
    session.answers += [advanced(5, (5, 9)), advanced(9, (9, 9))]
    reader = make()
    assert [reader.latestOffset(), reader.latestOffset()] == [at(5), at(5)]
    assert accepted(session) == [("", 0)]
    reader.partitions(START, at(5))
    assert reader.latestOffset() == at(9)
    assert accepted(session) == [("", 0), ("i1", 5)]


def test_an_end_before_the_place_is_refused(make, session, advanced):
    """K13: under the wrapper a restarted query asks for an end before it names its place."""
    session.answers.append(advanced(3, (3, 9), incarnation="i2"))
    reader = make()
    reader.latestOffset()
    with pytest.raises(UnsupportedError, match=r"triggerAvailableNowWrapper\.enabled"):
        reader.partitions(at(5), at(5))


def test_the_minimum_applies_after_the_opening(make, session, advanced):
    """K6, K13: only the opening leases in its call; both calls name the minimum."""
    session.answers += [advanced(0), advanced(5, (5, 9))]
    reader = make(minMessagesPerTrigger="4", maxTriggerDelay="1h")
    reader.latestOffset()
    reader.latestOffset()
    assert [asked.open_and_lease for asked in session.asked] == [True, False]
    assert [asked.min_messages for asked in session.asked] == [4, 4]


def test_a_batch_that_runs_again_is_proven_after_it(make, session, advanced):
    """K2, K13: a replayed batch is in the commit log at the call after it."""
    session.answers += [
        pb.AttachResponse(epoch=2, chunks=[pb.LeaseChunk(last_tag=9, payload_bytes=9)]),
        advanced(9),
    ]
    reader = make()
    reader.partitions(at(9), at(9))
    assert len(reader.partitions(at(5), at(9))) == 1
    assert reader.latestOffset() == at(9)
    assert (session.asked[0].start_tag, session.asked[0].end_tag) == (5, 9)
    assert session.asked[1].start_tag == 9


def test_async_progress_is_refused(make, session, advanced):
    """K11: the offset that the source keeps replaces the start that newer Sparks name."""
    session.answers += [advanced(5, (5, 9)), advanced(9, (9, 9))]
    reader = make()
    reader.latestOffset()
    reader.partitions(START, at(5))
    reader.latestOffset()
    with pytest.raises(UnsupportedError, match="asynchronous progress"):
        reader.latestOffset()
