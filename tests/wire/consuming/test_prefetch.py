"""Prefetch, pulls, and many unacked messages (C8, C9, C16)."""

import pytest

from tests.eventually import eventually
from tests.wire.bench import bodies, silent, taken
from tests.wire.brokers.dialect import Outcome

# --- C8: prefetch ---

TEN = [b"%d" % number for number in range(10)]


def test_prefetch_of_a_consumer(bench):
    """C8: at the consumer's prefetch deliveries stop; a settlement reopens it by its messages."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.consume(queue, prefetch=3)
    first = taken(channel, 3)
    assert silent(channel)
    assert bench.ready(queue) == 7
    channel.settle(first[0])
    fourth = channel.delivery()
    assert silent(channel)
    channel.settle(fourth, multiple=True)
    assert bodies(taken(channel, 3)) == TEN[4:7]
    assert silent(channel)
    assert bench.ready(queue) == 3


def test_prefetch_of_the_channel(bench):
    """C8: the channel's prefetch bounds its consumers together."""
    queues, channel = [bench.filled(*TEN), bench.filled(*TEN)], bench.channel()
    channel.prefetch(5)
    for queue in queues:
        channel.consume(queue, prefetch=4)
    last = taken(channel, 5)[-1]
    assert silent(channel)
    assert sum(bench.ready(queue) for queue in queues) == 15
    channel.settle(last, multiple=True)
    taken(channel, 5)
    assert silent(channel)


@pytest.mark.parametrize("before", [2, 6])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_prefetch_changes_in_flight(bench, before, after):
    """C8: changing the channel's prefetch while messages are in flight never stalls it."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.prefetch(before)
    channel.consume(queue)
    taken(channel, before)
    channel.prefetch(after)
    seen = before
    if after == 0:
        taken(channel, 10 - seen)
        return
    channel.settle(before, multiple=True)
    while seen < 10:
        channel.settle(channel.delivery())
        seen += 1


def test_cancelled_consumer_gets_nothing_more(bench):
    """C8, C12: a cancelled consumer gets nothing more; its messages stay with the channel."""
    queue, channel = bench.filled(*TEN), bench.channel()
    consumer = channel.consume(queue, prefetch=2)
    held = taken(channel, 2)
    channel.cancel(consumer)
    eventually("the cancel", lambda: bench.broker.counts(queue).consumers == 0)
    channel.settle(held[0])
    assert silent(channel)
    assert bench.ready(queue) == 8
    channel.settle(held[1], Outcome.RELEASED)
    assert bench.ready(queue) == 9


# --- C9: get ---


def test_get_is_not_subject_to_prefetch(bench):
    """C9: a pull is not bounded by the prefetch."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.prefetch(1)
    channel.consume(queue)
    channel.delivery()
    assert silent(channel)
    assert bodies(channel.get(queue, 4)) == TEN[1:5]


# --- C16: depth ---


def test_many_unacked(bench):
    """C16, C8: with 10,000 unacked messages, as no prefetch bounds them, all goes on."""
    queue, channel = bench.queue(), bench.channel()
    publisher = bench.publisher()
    for _ in range(100):
        publisher.publish_and_wait(queue, *[b"x"] * 100)
    channel.consume(queue)
    deliveries = taken(channel, 10_000)
    assert [delivery.tag for delivery in deliveries] == list(range(1, 10_001))
    bench.fill(queue, b"y")
    newest = channel.delivery()
    channel.settle(newest)
    channel.settle(deliveries[-1], multiple=True)
    assert bench.ready(queue) == 0
