"""Channel streams in virtual time: the sync gate, retransmission, heartbeats, reconnects."""

import asyncio

import pytest

from ackq import limits
from ackq.errors import ClosedError
from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.engine.block_cache import BlockCache
from tests.fakes.clock import run
from tests.unit.service.channel_streams import Broker, run_until_idle, subscribed

RUN = run
HEARTBEAT_S = limits.HEARTBEAT_MS / 1000
RESUME_S = limits.CHANNEL_RESUME_MS / 1000


async def alive(stream, seconds):
    """Advances the time while the client sends heartbeats."""
    for _ in range(round(seconds)):
        stream.beat()
        await asyncio.sleep(1)


async def test_small_new_messages_need_no_thread():
    """C16: small new messages are sent without a thread, which would cost more than the frame."""
    broker, stream = await subscribed()
    broker.engine.block_cache = BlockCache(broker.engine.journal.read_block)
    broker.engine.run = None
    broker.publish(b"m")
    broker.publish(b"m")
    await run_until_idle()
    assert stream.tags() == [1, 2]


async def test_a_client_that_does_not_read_is_sent_nothing_twice():
    """C11, I6: unwritten frames are not overdue, and little is buffered for a slow reader."""
    broker = Broker()
    stream = broker.open(window_messages=1_000_000)
    await run_until_idle()
    stream.reading.clear()
    stream.subscribe()
    for _ in range(20):
        broker.publish(*[b"m" * 100] * limits.FRAME_TARGET_ROWS)
        await run_until_idle()
    await alive(stream, 30)
    assert broker.queue().unacked <= 5 * limits.FRAME_TARGET_ROWS
    stream.reading.set()
    for _ in range(20):
        await run_until_idle()
    assert stream.tags() == list(range(1, 20 * limits.FRAME_TARGET_ROWS + 1))


async def test_what_the_broker_is_late_by_is_not_the_clients_silence():
    """C11, C12: of 24 s without a heartbeat the 10 s in which the broker was late do not count.

    The grace of a cut channel is extended once by the time that the broker was late by.
    """
    broker, stream = await subscribed(b"a")
    await asyncio.sleep(HEARTBEAT_S - 1)
    broker.late_s += 10
    await asyncio.sleep(10)
    assert (broker.queue().unacked, stream.task.done()) == (1, False)
    await asyncio.sleep(1.5)
    assert isinstance(stream.task.exception(), ClosedError)
    assert broker.queue().ready == 1
    stream = await broker.subscribed()
    await stream.disconnect()
    broker.late_s += 5
    await asyncio.sleep(RESUME_S + 4.9)
    assert broker.queue().unacked == 1
    await asyncio.sleep(0.2)
    assert (broker.queue().ready, broker.queue().unacked) == (1, 0)


async def test_heartbeats_overtake_what_waits_for_the_disk():
    """C12, I1, I6: heartbeats leave while a sync takes a minute, so the broker does not seem dead.

    Only one waits for a client that does not read, and not one more each 5 s.
    """
    broker = Broker(prompt=False)
    stream = await broker.subscribed()
    broker.engine.sync()
    broker.publish(b"a")
    await alive(stream, 60)
    assert (stream.beats, stream.tags()) == (pytest.approx(12, abs=1), [])
    broker.engine.sync()
    await run_until_idle()
    assert stream.tags() == [1]
    stream.reading.clear()
    beats = stream.beats
    await alive(stream, 60)
    assert stream.beats == beats
    stream.reading.set()
    await run_until_idle()
    assert stream.beats == beats + 1


async def test_without_acks_frames_can_be_sent_again():
    """C10, C11: without acks bodies are kept for retransmission, and freed by the transport ack."""
    broker, stream = await subscribed(b"a", no_ack=True)
    assert (stream.tags(), broker.queue().accepted) == ([1], 1)
    stream = await broker.reconnected(stream)
    assert stream.tags() == [1]
    assert broker.engine.journal.freed == []
    stream.transport_ack(1)
    await run_until_idle()
    broker.publish(b"b")
    assert len(broker.engine.journal.freed) == 1


async def test_a_half_closed_channel_ends_even_while_messages_flow():
    """C12: a half-closed channel ends under load, and its answers do not wait for deliveries."""
    broker, stream = await subscribed()
    stream.half_close()
    for _ in range(10):
        broker.publish(b"m")
        await run_until_idle()
    assert stream.task.done()
    assert (broker.queue().ready, broker.queue().unacked) == (10, 0)


async def test_a_deleted_queue_leaves_its_pulls_empty():
    """C9, Q4: a pull that waits for the transport window ends when its queue is deleted."""
    broker = Broker()
    broker.publish(b"a", b"b")
    stream = broker.open(window_messages=1)
    stream.send(get=pb.Get(queue="q", messages=2, number=1))
    await run_until_idle()
    broker.engine.decide(commands.DeleteQueue("q", force=True))
    stream.transport_ack(1)
    await run_until_idle()
    assert stream.kinds() == ["opened", "delivery", "get_empty"]
