"""The client without Spark, used message by message.

Invariant: counted messages were confirmed or settled, so synced, within the time counted.
"""

import contextlib
import threading

import harness

from ackq.client import Channel, Publisher, TransactionalPublisher

PREFETCH = 1_000


@contextlib.contextmanager
def waiting(endpoint, queue):
    """A publisher that waits for the confirm of each message."""
    with Publisher(endpoint, routing_key=queue) as publisher:
        yield lambda body: publisher.publish(body).result()


@contextlib.contextmanager
def opened(endpoint, kind=Publisher):
    """A publisher to an unused queue, whose stream is open."""
    with harness.queue(endpoint) as queue, kind(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"")
        publisher.flush() if kind is Publisher else publisher.commit()
        yield publisher


def commit_each(endpoint, count, body):
    """Publishes and commits, one message at a time."""
    with opened(endpoint, TransactionalPublisher) as publisher, harness.clocked(count) as found:
        for _ in range(count):
            publisher.publish(body)
            publisher.commit()
    return found[0]


def confirm_each(endpoint, count, body):
    """Publishes and waits for each confirm, one message at a time."""
    with opened(endpoint) as publisher, harness.clocked(count) as found:
        for _ in range(count):
            publisher.publish(body, ack_immediately=True).result()
    return found[0]


def confirms_streamed(endpoint, count, body):
    """Publishes one by one, and collects every confirm; the client makes the frames."""
    with opened(endpoint) as publisher, harness.clocked(count) as found:
        answers = [publisher.publish(body) for _ in range(count)]
        publisher.flush()
        for answer in answers:
            answer.result()
    return found[0]


def batches_streamed(endpoint, count, batch):
    """Publishes a batch again and again, and collects every confirm."""
    rows = count * batch.num_rows
    with opened(endpoint) as publisher, harness.clocked(rows) as found:
        answers = [publisher.publish_batch(batch) for _ in range(count)]
        publisher.flush()
        assert sum(answer.result() for answer in answers) == rows
    return found[0]


@contextlib.contextmanager
def filled(endpoint, count, body, fill):
    """A channel, the name of a queue with so many messages, and the measurement of the block."""
    with harness.queue(endpoint) as queue, Channel(endpoint) as channel:
        fill(endpoint, queue, rows=count, size=len(body))
        with harness.clocked(count) as found:
            yield channel, queue, found


def receive(endpoint, count, body, every, fill=harness.fill):
    """Receives message by message, with an accept for every `every` messages."""
    with filled(endpoint, count, body, fill) as (channel, queue, found):
        consumer = channel.consume(queue, mode="client", prefetch=PREFETCH)
        for number in range(1, count + 1):
            message = consumer.receive()
            if every == 1:
                message.accept()
            elif number % every == 0:
                channel.acknowledge(message)
        channel.flush()
        assert channel.unacked == 0
    return found[0]


def receive_batches(endpoint, count, body, fill=harness.fill):
    """Receives Arrow batches, and settles each."""
    with filled(endpoint, count, body, fill) as (channel, queue, found):
        take_batches(channel, queue, count)
    return found[0]


def take_batches(channel, queue, count, prefetch=PREFETCH):
    """Takes messages as Arrow batches, and settles each batch."""
    consumer = channel.consume(queue, mode="client", prefetch=prefetch)
    while count:
        batch = consumer.receive_batch()
        count -= batch.num_rows
        consumer.settle(batch)
    channel.flush()


def callback(endpoint, count, body, fill=harness.fill):
    """Takes messages by a callback that accepts each."""
    done, left = threading.Event(), iter(range(count - 1, -1, -1))

    def on_message(message):
        message.accept()
        if not next(left):
            done.set()

    with filled(endpoint, count, body, fill) as (channel, queue, found):
        channel.consume(queue, on_message, mode="client", prefetch=PREFETCH)
        done.wait()
        channel.flush()
    return found[0]
