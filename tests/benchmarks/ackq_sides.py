"""The client without Spark, used message by message.

Invariant: counted messages were confirmed or settled, so synced, within the time counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import harness
from harness import Measurement

from ackq.client import Channel, Message, Publisher, TransactionalPublisher

PREFETCH = 1_000
# Publishes messages to a queue: `harness.fill`, or another one with its arguments.
Fill = Callable[..., None]


@contextlib.contextmanager
def waiting(endpoint: str, queue: str) -> Iterator[Callable[[bytes], object]]:
    """A publisher that waits for the confirm of each message."""
    with Publisher(endpoint, routing_key=queue) as publisher:
        yield lambda body: publisher.publish(body).result()


def commit_each(endpoint: str, count: int, body: bytes) -> Measurement:
    """Publishes and commits, one message at a time."""
    with (
        harness.queue(endpoint) as queue,
        TransactionalPublisher(endpoint, routing_key=queue) as publisher,
    ):
        publisher.publish(b"")
        publisher.commit()  # opens the stream
        with harness.clocked(count) as found:
            for _ in range(count):
                publisher.publish(body)
                publisher.commit()
    return found[0]


def confirm_each(endpoint: str, count: int, body: bytes, times_s: list[float]) -> Measurement:
    """Publishes and waits for each confirm, one message at a time; adds each one's seconds."""
    with harness.queue(endpoint) as queue, Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        with harness.clocked(count) as found:
            for _ in range(count):
                started = time.perf_counter()
                publisher.publish(body, ack_immediately=True).result()
                times_s.append(time.perf_counter() - started)
    return found[0]


def confirms_streamed(endpoint: str, count: int, body: bytes) -> Measurement:
    """Publishes one by one, and collects every confirm."""
    with harness.queue(endpoint) as queue, Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        with harness.clocked(count) as found:
            answers = [publisher.publish(body) for _ in range(count)]
            publisher.flush()
            for answer in answers:
                answer.result()
    return found[0]


def receive(
    endpoint: str, count: int, body: bytes, every: int, fill: Fill = harness.fill
) -> Measurement:
    """Receives message by message, with an accept for every `every` messages."""
    with harness.queue(endpoint) as queue, Channel(endpoint) as channel:
        fill(endpoint, queue, rows=count, size=len(body))
        with harness.clocked(count) as found:
            consumer = channel.consume(queue, mode="client", prefetch=PREFETCH)
            for number in range(1, count + 1):
                message = consumer.receive()
                assert message is not None
                if every == 1:
                    message.accept()
                elif number % every == 0:
                    channel.acknowledge(message)
            channel.flush()
        assert channel.unacked == 0
    return found[0]


def receive_batches(
    endpoint: str, count: int, body: bytes, fill: Fill = harness.fill
) -> Measurement:
    """Receives Arrow batches, and settles each."""
    with harness.queue(endpoint) as queue, Channel(endpoint) as channel:
        fill(endpoint, queue, rows=count, size=len(body))
        with harness.clocked(count) as found:
            take_batches(channel, queue, count)
    return found[0]


def take_batches(channel: Channel, queue: str, count: int, prefetch: int = PREFETCH) -> None:
    """Takes messages as Arrow batches, and settles each batch."""
    consumer = channel.consume(queue, mode="client", prefetch=prefetch)
    while count:
        batch = consumer.receive_batch()
        assert batch is not None
        count -= batch.num_rows
        consumer.settle(batch)
    channel.flush()


def callback(endpoint: str, count: int, body: bytes, fill: Fill = harness.fill) -> Measurement:
    """Takes messages by a callback that accepts each."""
    done = threading.Event()
    taken = 0

    def on_message(message: Message) -> None:
        nonlocal taken
        message.accept()
        taken += 1
        if taken == count:
            done.set()

    with harness.queue(endpoint) as queue, Channel(endpoint) as channel:
        fill(endpoint, queue, rows=count, size=len(body))
        with harness.clocked(count) as found:
            channel.consume(queue, on_message, mode="client", prefetch=PREFETCH)
            done.wait()
            channel.flush()
    return found[0]
