"""A producer for a stream whose server does not answer, on a connection without a server."""

import asyncio
import base64
from contextlib import asynccontextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import Limits
from ackq_link.jetstream import target
from ackq_link.jetstream.address import NatsAddress, cut_of
from ackq_link.jetstream.messages import encoded
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
async def publishing(own=("s.>",), stream=STREAM, **given):
    """A connection, and two tasks that publish two rows each on it, to a stream's own subjects."""
    connection = Connection()
    producer = target.StreamProducer(stream, connection, 120.0, own, **given)
    await producer.start()
    keys = ["s.x", 's."é']
    rows = pa.record_batch({"body": [b"1", b"2"], "message_id": ["1", "2"], "routing_key": keys})
    connection.publish = lambda: asyncio.create_task(producer.publish(rows))
    tasks = [connection.publish() for _ in range(2)]
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


@pytest.mark.usefixtures("clock")
async def test_a_subscriber_that_does_not_answer():
    """L22: what something else than the stream took, and did not answer, is refused by itself."""
    async with publishing(["t.>"]) as (connection, tasks):
        connection.store(1, 0)
        await asyncio.sleep(LINK_ANSWER_S)
        connection.store(2, 0, 1)
        await all_confirmed(tasks[1:])
        published = await tasks[0]
        assert (published.confirmed, published.cut, [*published.refused]) == ([0], None, [1])


@pytest.mark.parametrize(
    "body",
    [
        *(b"OK", b"\xff", b"[" * 10_000, b"[]", b"1", b"{}", b'{"stream": "s"}'),
        b'{"stream": "s", "seq": "1", "duplicate": true}',
        b'{"stream": "t", "seq": 1}',
    ],
    ids=range(9),
)
async def test_an_answer_that_is_none_of_the_stream(body):
    """L22: it refuses its row."""
    async with publishing() as (connection, tasks):
        connection.store(1, 0, body=body)
        connection.store(1, 1)
        published = await tasks[0]
        assert (published.confirmed, published.cut, [*published.refused]) == ([1], None, [0])


async def test_a_subject_that_the_user_may_not_publish_to():
    """L22: it refuses its rows; if it is that of the link, or of a call, it ends the connection."""
    async with publishing(stream=replace(STREAM, subject="")) as (connection, tasks):
        assert connection.on_denied('s."é')
        assert connection.on_denied('s."é')  # again, for a row that is answered
        assert not connection.on_denied("$JS.API.STREAM.INFO.s")
        connection.store(1, 0)
        connection.store(2, 0)
        for published in await asyncio.gather(*tasks):
            assert (published.confirmed, published.cut, [*published.refused]) == ([0], None, [1])
    async with publishing() as (connection, _):
        assert not connection.on_denied("s.x")


DUPLICATE = b'{"stream": "s", "seq": 1, "duplicate": true}'


async def test_a_user_who_may_not_look_at_messages(caplog):
    """L22, L23: duplicates are taken for what they are, and the connection stays."""
    async with publishing() as (connection, tasks):
        for _ in range(2):
            assert connection.on_denied("$JS.API.STREAM.MSG.GET.s")
        connection.store(1, 0, 1, body=DUPLICATE)
        await all_confirmed(tasks[:1])
    assert [each.event for each in caplog.records] == ["link_duplicates"]


@pytest.mark.parametrize(("said", "confirmed"), [("no message found", [0, 1]), ("timeout", [1])])
async def test_a_duplicate_that_cannot_be_compared(said, confirmed):
    """L23: unless the stream's message has been taken, it is a cut, and goes out again."""

    async def ask(*_):
        raise cut_of(said, STREAM.address)

    async with publishing() as (connection, tasks):
        connection.ask = ask
        connection.store(1, 1)
        connection.store(1, 0, body=DUPLICATE)
        published = await tasks[0]
        assert (sorted(published.confirmed), published.cut is None) == (confirmed, 0 in confirmed)


@pytest.mark.parametrize(
    ("own", "transforms", "refused"),
    [(["s.>"], False, [0]), (["s.>"], True, []), (["t.>"], False, [])],
    ids=["its own", "transformed by the stream", "mapped by the account"],
)
async def test_a_duplicate_under_another_subject(own, transforms, refused):
    """L23: it is another message, unless the server gives the subject that it is stored under."""

    async def ask(*_):
        block = base64.b64encode(encoded([("Nats-Msg-Id", "1")]))
        return {"message": {"subject": "t.x", "hdrs": block, "data": base64.b64encode(b"1")}}

    async with publishing(own, transforms=transforms) as (connection, tasks):
        connection.ask = ask
        connection.store(1, 0, body=DUPLICATE)
        connection.store(1, 1)
        assert [*(await tasks[0]).refused] == refused


@pytest.mark.parametrize("body", [b"", b', "error": {"code": 400, "description": "no"}'])
async def test_a_subject_that_another_stream_has(body):
    """L22: the stream's name goes along where it does not list the subject, or no longer has it."""
    expected = b"\r\nNats-Expected-Stream: s\r\n\r\n"
    async with publishing() as (connection, tasks):
        assert not connection.sent(expected)
        connection.store(1, 0, 1, body=b'{"stream": "t", "seq": 1%b}' % body)
        assert (await tasks[0]).refused == dict.fromkeys((0, 1), "the subject is of stream 't'")
        tasks.append(connection.publish())
        await asyncio.sleep(0)
        assert len(connection.sent(expected)) == 2


async def test_a_paused_link_reads_its_answers_first(clock):
    """L22: after a pause of the link's process the time without an answer is not the server's."""
    async with publishing() as (connection, tasks):
        clock.paused_s = 2 * LINK_ANSWER_S
        await asyncio.sleep(6)  # a look
        connection.store(1, 0, 1)
        connection.store(2, 0, 1)
        await all_confirmed(tasks)
