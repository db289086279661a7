"""When messages are redelivered, and at which place (C6, C7, C12, C14)."""

import time

import pytest

from tests.wire.bench import bodies, silent, taken
from tests.wire.brokers.dialect import Outcome

# A silent client is missed after 15 s, on a quiet machine.
PATIENCE_S = 200

# --- C6, C7: requeue ---


def test_requeue_to_the_original_position(bench):
    """C6: requeued messages return to their original positions, in any order of requeueing.

    One message has left meanwhile, one is held, and one is new.
    """
    queue, channel = bench.filled(b"1", b"2", b"3", b"4", b"5", b"6"), bench.channel()
    deliveries = channel.get(queue, 5)
    channel.settle(deliveries[1])
    bench.fill(queue, b"7")
    for index in (2, 0, 3):
        channel.settle(deliveries[index], Outcome.RELEASED)
    assert bodies(channel.get(queue, 10)) == [b"1", b"3", b"4", b"6", b"7"]


def test_delivery_count(bench):
    """C7, C1: the delivery count is 1 the first time and grows by one with each delivery.

    Each redelivery on the same channel has the next tag.
    """
    queue, channel = bench.filled(b"x"), bench.channel()
    counts = []
    for tag in (1, 2, 3):
        (delivery,) = channel.get(queue)
        assert delivery.tag == tag
        counts.append(delivery.count)
        channel.settle(delivery, Outcome.RELEASED)
    bench.expect("delivery counts", counts, [1, 2, 3])


# --- C12: when messages come back ---


@pytest.mark.parametrize("end", ["close", "cut", "silence"])
def test_unacked_come_back_when_the_channel_goes(bench, end):
    """C12: when a channel, its connection or its heartbeats end, others get its unacked messages.

    Until then no other consumer gets them.
    """
    queue = bench.filled(b"a", b"b", b"c")
    connection = bench.connect(**(bench.broker.short_heartbeat if end == "silence" else {}))
    channel = connection.channel()
    channel.consume(queue)
    channel.settle(taken(channel, 3)[1])
    other = bench.channel()
    other.consume(queue)
    assert silent(other)
    assert bench.ready(queue) == 0
    getattr(channel if end == "close" else connection, end)()
    again = [other.delivery(PATIENCE_S) for _ in range(2)]
    assert [(d.body, d.redelivered) for d in again] == [(b"a", True), (b"c", True)]


# --- C14: redelivery delay ---


def test_redelivery_delay(ackq):
    """C14: a failed message is delayed, each time twice as long up to a bound, and not ready."""
    queue = ackq.filled(b"x", redelivery_delay_ms=300, redelivery_delay_max_ms=600)
    channel = ackq.channel()
    channel.consume(queue)
    for delay_s in (0.3, 0.6, 0.6):
        delivery = channel.delivery()
        started = time.monotonic()
        channel.settle(delivery, Outcome.FAILED)
        info = ackq.broker.admin.queue(queue)
        if time.monotonic() - started < delay_s:
            assert (info.ready, info.unacked, info.delayed) == (0, 0, 1)
        again = channel.delivery()
        assert time.monotonic() - started >= delay_s
        channel.settle(again, Outcome.RELEASED)  # without a delay
