"""Crowds and storms on one queue affect neither other queues nor the broker's memory."""

import statistics
import threading
import time
from contextlib import ExitStack

import psutil
import pytest

import ackq_broker
from tests.eventually import meanwhile
from tests.fakes import machine
from tests.fakes.raw_client import Client, last_tag
from tests.wire.consuming.test_stream import RELEASED

# The most that a round trip on a quiet queue may take while another queue is busy, as a median, as
# a single one may meet a busy moment of the machine. It normally takes a millisecond or two; a
# broker that serves the crowd first would need many seconds, or for ever.
ROUND_TRIP_S = 2.0
# For steps that a busy machine may take a while over.
PATIENCE_S = 100
GROWTH_BYTES = 150_000_000


@pytest.fixture
def broker(tmp_path):
    """A broker that closes no channel whose client is silent: a crowd answers no heartbeats."""
    env = machine.with_limits(tmp_path / "env", {"HEARTBEAT_MS": 1_000_000})
    with ackq_broker.embedded(tmp_path / "data", env=env) as running:
        yield running


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


def test_a_thousand_slow_consumers(crowded):
    """C8, C16: a thousand consumers at their prefetch do not slow down other queues."""
    with ExitStack() as crowd:
        channels = [crowd.enter_context(crowded.consume()) for _ in range(1000)]
        for each in channels:
            each.subscribe(queue="crowd", prefetch=1)
        crowded.publish(*[b"m" * 100] * 5000, queue="crowd")
        for each in channels:
            each.deliveries(1)
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
