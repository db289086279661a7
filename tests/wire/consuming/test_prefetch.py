"""Prefetch, pulls, and many unacked messages (C8, C9, C16)."""

import pytest

from tests.eventually import eventually
from tests.wire.bench import bodies, refused_as, silent, taken
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


def test_prefetch_is_per_consumer(bench):
    """C8: each consumer of a channel has its own prefetch."""
    queues, channel = [bench.filled(*TEN), bench.filled(*TEN)], bench.channel()
    consumers = [
        channel.consume(queue, prefetch=prefetch)
        for queue, prefetch in zip(queues, (2, 4), strict=True)
    ]
    delivered = sorted((each.queue, each.consumer) for each in taken(channel, 6))
    (one, two) = zip(queues, consumers, strict=True)
    assert delivered == sorted([one] * 2 + [two] * 4)
    assert silent(channel)
    assert [bench.ready(queue) for queue in queues] == [8, 6]


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


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.RELEASED])
def test_every_outcome_opens_the_prefetch(bench, outcome):
    """C8: rejecting and releasing open the prefetch like accepting."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    channel.consume(queue, prefetch=1)
    channel.settle(channel.delivery(), outcome)
    expected = {Outcome.REJECTED: b"b", Outcome.RELEASED: b"a"}[outcome]
    assert channel.delivery().body == expected


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


def test_prefetch_of_a_consumer_changes(ackq):
    """C8: a consumer's prefetch can be changed; AMQP fixes it when the consumer starts."""
    queue, channel = ackq.filled(*TEN), ackq.channel()
    consumer = channel.consume(queue, prefetch=2)
    taken(channel, 2)
    channel.prefetch(5, consumer)
    last = taken(channel, 3)[-1]
    assert silent(channel)
    channel.prefetch(1, consumer)
    channel.settle(last, multiple=True)
    channel.delivery()
    assert silent(channel)


# --- C9: get ---


def test_get_is_not_subject_to_prefetch(bench):
    """C9: a pull is not bounded by the prefetch."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.prefetch(1)
    channel.consume(queue)
    channel.delivery()
    assert silent(channel)
    assert bodies(channel.get(queue, 4)) == TEN[1:5]


def test_get_answers_with_what_there_is(bench):
    """C9: a pull answers with fewer messages than requested if fewer are ready, also with none."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    assert bodies(channel.get(queue, 5)) == [b"a", b"b"]
    assert channel.get(queue, 5) == []


def test_get_from_a_missing_queue(bench):
    """C9: a pull from a missing queue closes the channel."""
    channel = bench.channel()
    with refused_as("not_found"):
        channel.get(bench.name("missing"))


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
