"""Delivery limits and dead letters (C13)."""

import time

import pytest

from tests.eventually import eventually
from tests.wire.bench import bodies
from tests.wire.brokers.dialect import Outcome, Refused


def test_delivery_limit(bench):
    """C13: one failure more than the limit moves a message to the dead-letter queue."""
    queue, dead = bench.dead_lettering(b"x", delivery_limit=2)
    channel = bench.channel()
    for _ in range(3):
        bench.wait_ready(queue, 1)
        assert bench.ready(dead) == 0
        channel.settle(channel.get(queue)[0], Outcome.FAILED)
    (letter,) = bench.dead(dead)
    assert (letter.body, letter.death.reason) == (b"x", "delivery_limit")


@pytest.mark.parametrize(
    ("cause", "properties"), [("rejected", {}), ("expired", {"message_ttl_ms": 50})]
)
def test_provenance(bench, cause, properties):
    """C13: a dead letter says why, when and in which queue it died, and keeps its own headers."""
    queue, dead = bench.dead_lettering(**properties)
    before = time.time()
    bench.fill(queue, b"x", headers={"tenant": "blue"})
    if cause == "rejected":
        channel = bench.channel()
        channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    (letter,) = bench.dead(dead)
    death = letter.death
    assert (letter.body, letter.headers["tenant"]) == (b"x", "blue")
    assert (death.reason, death.queue, death.first_queue) == (cause, queue, queue)
    assert death.count == 1
    assert before - 1 <= death.at <= time.time() + 1
    bench.expect(
        "names of the headers of a dead letter",
        sorted(name for name in letter.headers if name != "tenant"),
        [
            "ackq-dead-at",
            "ackq-dead-cause",
            "ackq-dead-count",
            "ackq-dead-deliveries",
            "ackq-dead-first-queue",
            "ackq-dead-position",
            "ackq-dead-queue",
            "ackq-dead-reason",
        ],
    )


def test_dropped_from_the_head(bench):
    """C13, Q3: a message that a full queue drops from its head is no dead letter."""
    queue, dead = bench.dead_lettering(max_length=1, overflow="drop-head")
    for body in (b"a", b"b", b"c"):
        bench.fill(queue, body)
    assert bench.drain(queue) == [b"c"]
    bench.expect("dead letters of a queue that drops its head", bodies(bench.dead_now(dead)), [])


def test_deaths_count_by_queue_and_cause(bench):
    """C13: a dead letter counts how often it died of that cause in that queue, not all deaths.

    It names the newest queue in which it died, and still the first.
    """
    first, second = bench.name("first"), bench.name("second")
    bench.queue(first, dead_letter_queue=second)
    bench.queue(second, dead_letter_queue=first)
    bench.fill(first, b"x")
    channel = bench.channel()
    deaths = []
    for queue in (first, second, first, second, first):
        bench.wait_ready(queue, 1)
        (delivery,) = channel.get(queue)
        if death := delivery.death:
            assert death.first_queue == first
        deaths.append(death and (death.queue, death.count))
        channel.settle(delivery, Outcome.REJECTED)
    assert deaths == [None, (first, 1), (second, 1), (first, 2), (second, 2)]


def test_dead_lettering_ignores_reject_publish(bench):
    """C13: a full dead-letter queue takes dead letters all the same."""
    dead = bench.filled(b"full", max_length=1)
    queue = bench.queue(dead_letter_queue=dead)
    bench.fill(queue, b"x")
    channel = bench.channel()
    channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    channel.close()
    bench.fill(bench.queue(), b"later")
    bench.expect("messages in the full dead-letter queue", bench.drain(dead), [b"full", b"x"])


def test_dead_letter_target_is_gone(bench):
    """C13: a dead letter whose target queue was deleted goes to the built-in queue."""
    queue, dead = bench.dead_lettering(b"x")
    bench.broker.delete(dead, force=True)
    channel = bench.channel()
    channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    try:
        letters = [d.body for d in channel.get("ackq.dead", 1_000) if d.death.queue == queue]
    except Refused:
        letters = []
    bench.expect("letters in the built-in dead-letter queue", letters, [b"x"])


def test_expiry_in_a_circle(bench):
    """C13: a message that expires into a queue that it expired from before is dropped."""
    first, second = bench.name("first"), bench.name("second")
    dead = bench.queue()
    bench.queue(second, message_ttl_ms=100, dead_letter_queue=first)
    bench.queue(first, message_ttl_ms=100, dead_letter_queue=second)
    watch = bench.queue(message_ttl_ms=600, dead_letter_queue=dead)
    bench.fill(first, b"x")
    bench.fill(watch, b"clock")
    bench.wait_ready(dead, 1)  # well after the message has been through both queues
    eventually("its end", lambda: bench.ready(first) + bench.ready(second) == 0)


def test_limit_without_a_dead_letter_queue(bench):
    """C13: without a dead-letter queue no limit applies."""
    queue, channel = bench.filled(b"x", delivery_limit=1), bench.channel()
    failures = 0
    while failures < 4 and (deliveries := channel.get(queue)):
        channel.settle(deliveries[0], Outcome.FAILED)
        failures += 1
        bench.fill(bench.queue(), b"later")
    bench.expect("failures that a limit of one allows", failures, 4)


def test_drop_on_limit(ackq):
    """C13: a queue with drop_on_limit and no dead-letter queue drops at its delivery limit."""
    queue = ackq.filled(b"x", delivery_limit=1, drop_on_limit=True)
    channel = ackq.channel()
    for _ in range(2):
        channel.settle(channel.get(queue)[0], Outcome.FAILED)
    assert channel.get(queue) == []
    assert ackq.broker.admin.queue(queue).dropped == 1
