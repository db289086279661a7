"""The cost of an idle query in calls and journal records, measured without a JVM."""

from unittest.mock import Mock

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from ackq import limits
from ackq.spark import connections, schema
from ackq.spark.options import options
from ackq.spark.source.reader import AckqStreamReader
from ackq.wire import columns
from tests.spark.ledger import ids, publish

POLLS = 5


@pytest.fixture
def session(broker, admin):
    """The real client of a broker with an empty queue, wrapped to record every call."""
    admin.declare_queue("in")
    connection = options.source({"endpoint": broker.endpoint, "queue": "in"}).broker
    return Mock(wraps=connections.session(connection))


@pytest.fixture
def reader(broker, session):
    found = AckqStreamReader(
        # No task reads a batch in this test (S11).
        options.source({"endpoint": broker.endpoint, "queue": "in", "unreadBatch": "accept"}),
        schema.default(columns.DELIVERED),
        connect=lambda _: session,
    )
    yield found
    found.stop()


def test_an_idle_query_waits_at_the_broker(admin, session, reader):
    """K6: each poll of an idle query is one call, which the broker holds, and writes no record."""
    limit = ReadMaxRows(limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER)
    start = reader.latestOffset(reader.initialOffset(), limit)
    assert reader.latestOffset(start, limit) == start  # the session is proven by now (S9)
    session.reset_mock()
    written = admin.info().sequence
    for _ in range(POLLS):
        assert reader.latestOffset(start, limit) == start
        assert reader.reportLatestOffset() is not None
        assert reader.partitions(start, start) == []
    assert [name for name, *_ in session.mock_calls] == ["advance"] * POLLS
    waits = [each.args[0].wait_ms for each in session.advance.mock_calls]
    assert waits == [limits.ADVANCE_WAIT_MS] * POLLS
    assert admin.info().sequence == written


def test_what_a_micro_batch_asks_the_broker(broker, session, reader):
    """S4, K1: a whole micro-batch costs the driver one call, whatever Spark asks the source."""
    limit = ReadMaxRows(limits.DEFAULT_MAX_MESSAGES_PER_TRIGGER)
    start = reader.latestOffset(reader.initialOffset(), limit)
    session.reset_mock()
    for batch in range(3):
        publish(broker.endpoint, "in", ids(batch, batch))
        end = reader.latestOffset(start, limit)
        reader.reportLatestOffset()
        reader.commit(start)
        assert len(reader.partitions(start, end)) == 1
        start = end
    assert [name for name, *_ in session.mock_calls] == ["advance"] * 3
