"""Crowds and storms on one queue affect neither other queues nor the broker's memory."""

import asyncio
import secrets
import statistics
import threading
import time
from contextlib import contextmanager

import psutil
import pytest
from grpc import aio

from ackq.v1 import consuming_pb2 as pb
from ackq.v1 import consuming_pb2_grpc
from tests.fakes.raw_client import Client
from tests.wire.consuming.test_stream import RELEASED

# The most that a round trip on a quiet queue may take while another queue is busy, as a median, as
# a single one may meet a busy moment of the machine. It normally takes a millisecond or two; a
# broker that serves the crowd first would need many seconds, or for ever.
ROUND_TRIP_S = 2.0
# For steps that a busy machine may take a while over.
PATIENCE_S = 100
GROWTH_BYTES = 150_000_000


@pytest.fixture
def crowded(broker, own):
    """A broker with queue `crowd`, its client, and a check of its memory at the end."""
    own.declare("crowd")
    process = psutil.Process(broker.pid)
    round_trips(own, 3)
    before = process.memory_info().rss
    yield own
    grown = process.memory_info().rss - before
    assert grown < GROWTH_BYTES, grown


def last_tag(delivery):
    return delivery.runs.first_tag[-1] + delivery.runs.rows[-1] - 1


def round_trips(client, count):
    """Sends messages over the quiet queue and back; returns the median time of a round trip."""
    took = []
    with client.publisher() as publisher, client.consume() as channel:
        channel.subscribe()
        for number in range(1, count + 1):
            began = time.monotonic()
            publisher.publish(number, b"ping", routing_key="q")
            (ping,) = channel.deliveries(1)
            channel.transport_ack(ping.tag)
            channel.settled(channel.settle(ping.tag))
            took.append(time.monotonic() - began)
    return statistics.median(took)


@contextmanager
def meanwhile(work):
    """Runs work in a thread, and tells it to stop at the end by its event."""
    stop = threading.Event()
    working = threading.Thread(target=work, args=(stop,))
    working.start()
    try:
        yield
    finally:
        stop.set()
        working.join(PATIENCE_S)


class Crowd:
    """Consumers that take one message each and keep it, on their own channels, in a thread.

    `served` is set when each of them has a message.
    """

    def __init__(self, endpoint, count):
        self.served = threading.Event()
        self._count = count
        self._got = 0
        self._endpoint = endpoint
        self._over = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self):
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self):
        async with aio.insecure_channel(self._endpoint) as connection:
            stub = consuming_pb2_grpc.ConsumingServiceStub(connection)
            await asyncio.gather(*(self._consume(stub) for _ in range(self._count)))

    async def _consume(self, stub):
        call = stub.Consume()
        opening = pb.ChannelOpen(channel_id=secrets.token_bytes(16))
        await call.write(pb.ConsumeRequest(open=opening))
        subscription = pb.Subscribe(consumer="c", queue="crowd", prefetch=1)
        await call.write(pb.ConsumeRequest(subscribe=subscription))
        while True:
            response = await call.read()
            if response.header.HasField("delivery"):
                break
        self._got += 1
        if self._got == self._count:
            self.served.set()
        await self._over.wait()
        call.cancel()


def test_a_thousand_slow_consumers(broker, crowded):
    """C8, C16: a thousand consumers at their prefetch do not slow down other queues."""
    with Crowd(broker.endpoint, 1000) as crowd:
        crowded.publish(*[b"m" * 100] * 5000, queue="crowd")
        assert crowd.served.wait(PATIENCE_S)
        assert crowded.queue("crowd").unacked == 1000
        assert round_trips(crowded, 20) < ROUND_TRIP_S
        crowded.publish(*[b"m" * 100] * 5000, queue="crowd")
        assert round_trips(crowded, 20) < ROUND_TRIP_S


def test_a_requeue_storm(broker, crowded):
    """C12: channels that keep ending with 100,000 unacked messages do not slow other queues."""
    for _ in range(10):
        crowded.publish(*[b"m" * 100] * 10_000, queue="crowd")
    rounds = []

    def storm(stop):
        with Client(broker.endpoint) as client:
            while not stop.is_set():
                with client.consume(window_messages=1_000_000) as channel:
                    channel.subscribe(queue="crowd")
                    while last_tag(channel.answer("delivery")) < 100_000:
                        pass
                    channel.half_close()
                    rest = [each.header.delivery for each in channel.call if each.block]
                    # Without transport acks for 2 s a frame is resent, under its tags (C11).
                    assert all(last_tag(again) <= 100_000 for again in rest)
                    rounds.append(channel)

    with meanwhile(storm):
        assert round_trips(crowded, 50) < ROUND_TRIP_S
    assert rounds
    assert crowded.queue("crowd").ready == 100_000


def test_a_redelivery_loop(broker, crowded):
    """C4: a consumer that releases every message at once does not slow down other queues."""
    crowded.publish(*[b"m" * 100] * 10_000, queue="crowd")
    enough, loops = threading.Event(), []

    def loop(stop):
        with Client(broker.endpoint) as client, client.consume() as channel:
            channel.subscribe(queue="crowd")
            while not stop.is_set():
                last = last_tag(channel.response().header.delivery)
                channel.transport_ack(last)
                channel.settle(last, RELEASED, multiple=True, number=0)
                loops.append(last)
                if last > 20_000:
                    enough.set()

    with meanwhile(loop):
        assert round_trips(crowded, 50) < ROUND_TRIP_S
        assert enough.wait(PATIENCE_S)
    assert loops[-1] > 20_000
