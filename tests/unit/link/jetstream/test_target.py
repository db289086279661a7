"""A producer for a stream whose server does not answer, on a connection without a server."""

import asyncio
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import Limits
from ackq_link.jetstream import target
from ackq_link.jetstream.address import NatsAddress
from tests.fakes.clock import LoopTime, run
from tests.unit.link.jetstream.recorded import Connection

RUN = run
STREAM = target.StreamTarget(NatsAddress("nats://there"), "s", "s.x", "out", Limits(10, 1000))


@pytest.fixture
def clock(monkeypatch):
    """The clock of the producer."""
    clock = LoopTime()
    monkeypatch.setattr(target, "time", clock)
    return clock


@asynccontextmanager
async def publishing():
    """A connection, and two tasks that publish two rows each on it."""
    connection = Connection()
    producer = target.StreamProducer(STREAM, connection, 120.0)
    await producer.start()
    rows = pa.record_batch({"body": [b"1", b"2"], "message_id": ["1", "2"]})
    tasks = [asyncio.create_task(producer.publish(rows)) for _ in range(2)]
    await asyncio.sleep(0)
    yield connection, tasks
    await producer.close()


async def all_confirmed(tasks):
    for published in await asyncio.gather(*tasks):
        assert (published.confirmed, published.cut) == ([0, 1], None)


@pytest.mark.usefixtures("clock")
async def test_lost_answers_are_a_cut():
    """L22: a leader that dies takes its answers along: what has none is published again."""
    async with publishing() as (connection, tasks):
        connection.store(1, 0)
        connection.store(2, 0, 1)
        await all_confirmed(tasks[1:])
        first = await tasks[0]
        assert first.confirmed == [0]
        assert f"the stream 's' has not answered for {LINK_ANSWER_S + 10} s" in first.cut.reason


@pytest.mark.usefixtures("clock")
async def test_a_slow_stream_is_not_cut():
    """L22: the time counts from the last answer to the batch that is next to be answered."""
    async with publishing() as (connection, tasks):
        for batch, row in ((1, 0), (1, 1), (2, 0), (2, 1)):
            await asyncio.sleep(LINK_ANSWER_S - 1)
            connection.store(batch, row)
        await all_confirmed(tasks)


async def test_a_paused_link_reads_its_answers_first(clock):
    """L22: after a pause of the link's process the time without an answer is not the server's."""
    async with publishing() as (connection, tasks):
        clock.paused_s = 2 * LINK_ANSWER_S
        await asyncio.sleep(6)  # a look
        connection.store(1, 0, 1)
        connection.store(2, 0, 1)
        await all_confirmed(tasks)
