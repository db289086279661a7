"""A producer for a stream whose server does not answer, on a connection without a server."""

import asyncio
import json
from types import SimpleNamespace

import pyarrow as pa

from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import Limits
from ackq_link.jetstream import target
from ackq_link.jetstream.address import NatsAddress
from ackq_link.jetstream.connection import Received
from tests.fakes.clock import run

STREAM = target.StreamTarget(NatsAddress("nats://there"), "s", "s.x", "out", Limits(10, 1000))


class Connection:
    """A connection whose server answers what the test says."""

    most_bytes = 0
    paused_s = 0

    def new_inbox(self):
        return "IN"

    async def listen(self, subject, take):
        assert subject == "IN.*.*"
        self.take = take

    def write(self, frames):
        self.frames = list(frames)

    async def flush(self):
        pass

    drain = close = flush

    def end(self, cut):
        self.on_end(cut)

    def answer(self, batch, row):
        body = json.dumps({"stream": "s", "seq": 1}).encode()
        self.take(Received(b"IN.%d.%d" % (batch, row), b"", b"", body))


def with_producer(monkeypatch, work):
    """Runs a coroutine function of a connection and the tasks that publish two rows each.

    The connection's `paused_s` are seconds that the process was paused.
    """
    clock = SimpleNamespace(
        monotonic=lambda: asyncio.get_running_loop().time() + Connection.paused_s
    )
    monkeypatch.setattr(Connection, "paused_s", 0)
    monkeypatch.setattr(target, "time", clock)

    async def done():
        connection = Connection()
        producer = target.StreamProducer(STREAM, connection, 120.0)
        await producer.start()
        rows = pa.record_batch({"body": [b"1", b"2"], "message_id": ["1", "2"]})
        publishing = [asyncio.create_task(producer.publish(rows)) for _ in range(2)]
        await asyncio.sleep(0)
        await work(connection, publishing)
        await producer.close()

    run(done())


def test_lost_answers_are_a_cut(monkeypatch):
    """L22: a leader that dies takes its answers along: what has none is published again."""

    async def work(connection, publishing):
        connection.answer(1, 0)
        connection.answer(2, 0)
        connection.answer(2, 1)
        later = await publishing[1]
        assert (later.confirmed, later.cut) == ([0, 1], None)
        first = await publishing[0]
        assert first.confirmed == [0]
        assert f"the stream 's' has not answered for {LINK_ANSWER_S + 10} s" in first.cut.reason

    with_producer(monkeypatch, work)


def test_a_slow_stream_is_not_cut(monkeypatch):
    """L22: the time counts from the last answer to the batch that is next to be answered."""

    async def work(connection, publishing):
        for batch in (1, 2):
            for row in (0, 1):
                await asyncio.sleep(LINK_ANSWER_S - 1)
                connection.answer(batch, row)
        for each in publishing:
            published = await each
            assert (published.confirmed, published.cut) == ([0, 1], None)

    with_producer(monkeypatch, work)


def test_a_paused_link_reads_its_answers_first(monkeypatch):
    """L22: after a pause of the link's process the time without an answer is not the server's."""

    async def work(connection, publishing):
        monkeypatch.setattr(Connection, "paused_s", 2 * LINK_ANSWER_S)
        await asyncio.sleep(6)  # a look
        for batch in (1, 2):
            for row in (0, 1):
                connection.answer(batch, row)
        for each in publishing:
            published = await each
            assert (published.confirmed, published.cut) == ([0, 1], None)

    with_producer(monkeypatch, work)
