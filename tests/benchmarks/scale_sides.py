"""Batches over many queues and routes, bodies of many sizes, deep queues.

Invariant: counted messages were confirmed or settled within the time counted.
"""

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor

import ackq_sides
import harness
import pyarrow as pa
from harness import Measurement

from ackq import limits
from ackq.client import Admin, Channel, Publisher

ROWS = 100_000
# Concurrent calls of an operator, which share the broker's syncs.
_AT_ONCE = 32
BATCH_ROWS = 10_000
# Properties count towards a message's size.
LARGEST_BYTES = limits.MAX_MESSAGE_BYTES - limits.KIB
VOLUME_BYTES = 256 * limits.MIB
# The rows that a consumer without a bound takes ahead of its application.
_AHEAD_ROWS = 10_000
TAKEN = 500_000
ROUND = 10_000


# --- queues and routes ---


def queues(endpoint, count):
    """Declares durable queues, which stay as long as the benchmark's broker; returns the names."""
    stem = f"benchmark-{uuid.uuid4().hex[:8]}"
    names = [f"{stem}-{number}" for number in range(count)]
    with Admin(endpoint) as admin, ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(admin.declare_queue, names))
    return names


@contextlib.contextmanager
def topic(endpoint):
    """A topic exchange that routes all messages to one queue; yields its name."""
    with harness.queue(endpoint) as queue, Admin(endpoint) as admin:
        admin.declare_exchange(queue, kind="topic")
        admin.bind(queue, queue, "eu.*")
        yield queue
        admin.delete_exchange(queue)


def batch_of(keys, size):
    """A batch whose rows have the keys in turn."""
    column = pa.array([keys[number % len(keys)] for number in range(BATCH_ROWS)])
    return harness.bodies(BATCH_ROWS, size).append_column("routing_key", column)


def publish(endpoint, exchange, keys, size):
    """Publishes batches whose rows have the keys in turn; they stay in their queues."""
    batch = batch_of(keys, size)
    with Publisher(endpoint, exchange=exchange, mandatory=True) as publisher:
        publisher.publish(b"", routing_key=keys[0], ack_immediately=True).result()
        with harness.clocked(ROWS) as found:
            answers = [publisher.publish_batch(batch) for _ in range(ROWS // BATCH_ROWS)]
            publisher.flush()
            assert sum(answer.result() for answer in answers) == ROWS
    return found[0]


# --- sizes ---


def publish_batch(endpoint, size):
    """Publishes bodies of a size; the rows of the measurement are bytes."""
    frame, count = _frames(size)
    return _of_bytes(ackq_sides.batches_streamed(endpoint, count, frame), size)


def receive_batch(endpoint, size):
    """Publishes bodies of a size to a consumer that settles each batch, in bytes likewise."""
    frame, count = _frames(size)
    rows = count * frame.num_rows
    with ackq_sides.filled(endpoint, rows, bytes(size), harness.fill) as (channel, queue, found):
        ackq_sides.take_batches(channel, queue, rows, _AHEAD_ROWS)
    return _of_bytes(found[0], size)


def _frames(size):
    """A frame of bodies of a size, and how many of them are the volume."""
    frame = harness.bodies(harness.rows_per_frame(size), size)
    return frame, VOLUME_BYTES // (frame.num_rows * size) or 1


def _of_bytes(measured, size):
    used = {part: each / size for part, each in measured.cpu_us.items()}
    return Measurement(measured.rows * size, measured.seconds, used)


# --- backlogs ---


@contextlib.contextmanager
def backlogs(endpoint, counts, size):
    """A queue for each count, which holds that many messages; yields their names by count."""
    with contextlib.ExitStack() as stack:
        names = {count: stack.enter_context(harness.queue(endpoint)) for count in counts}
        for count, name in names.items():
            harness.fill(endpoint, name, rows=count, size=size)
        yield names


def take(endpoint, queue, size):
    """Takes messages in rounds, each by a consumer of its own, and refills the queue untimed."""
    parts = []
    with Channel(endpoint) as channel:
        for _ in range(TAKEN // ROUND):
            with harness.clocked(ROUND) as found:
                _take_round(channel, queue)
            parts += found
            harness.fill(endpoint, queue, rows=ROUND, size=size)
    return Measurement(
        TAKEN,
        {"wall": sum(part.seconds["wall"] for part in parts)},
        {name: sum(part.cpu_us[name] for part in parts) / len(parts) for name in parts[0].cpu_us},
    )


def _take_round(channel, queue):
    consumer = channel.consume(queue, mode="client", prefetch=ROUND)
    batches, left = [], ROUND
    while left:
        batch = consumer.receive_batch(left)
        assert batch is not None
        batches.append(batch)
        left -= batch.num_rows
    consumer.close()  # before it gets more
    for batch in batches:
        consumer.settle(batch)
    channel.flush()
