"""Consuming messages that were published one by one, against messages in large frames, and pika.

Invariant: all queues hold the same messages. Those of `singles` came from 40 synchronous
publishers, so each is a frame and a block of its own.
"""

import functools

import ackq_sides
import bench_source
import harness
import rabbitmq_sides
import spark_harness
import sync_publishers

HELP = "consuming what was published one by one, as ratios to large frames and pika with RabbitMQ"
OPTIONS = {
    "sizes": ([100], "body sizes"),
    "messages": (40_000, f"in a queue, a multiple of {2 * sync_publishers.FILLING}"),
}
ACK_EVERY = 100


def run(args, endpoint):
    """Comparisons per body size and way to consume."""
    of = functools.partial
    with spark_harness.session() as spark:
        for size in args.sizes:
            # The first micro-batch is not timed.
            load = spark_harness.Load(size, args.messages // 2, 1)
            source = of(bench_source.from_queue, spark, load, endpoint)
            yield from _compared(args, size, "Spark source", source)
    with rabbitmq_sides.running() as port:
        for size in args.sizes:
            given = (endpoint, args.messages, bytes(size))
            each, at_once = (
                {"RabbitMQ": of(rabbitmq_sides.consume, port, *given[1:], every)} if port else {}
                for every in (1, ACK_EVERY)
            )
            receive = of(ackq_sides.receive, *given)
            for way, side, others in (
                ("receive() and accept each", of(receive, every=1), each),
                ("callback and accept each", of(ackq_sides.callback, *given), each),
                (
                    f"receive() and accept {ACK_EVERY} at once",
                    of(receive, every=ACK_EVERY),
                    at_once,
                ),
                ("receive_batch() and accept all", of(ackq_sides.receive_batches, *given), {}),
            ):
                yield from _compared(args, size, way, side, others)


def _compared(args, size, way, side, beside=None):
    """Compares a way to consume singles with frames, and with others beside."""
    anchors = {"frames": functools.partial(side, fill=harness.fill), **(beside or {})}
    singles = functools.partial(side, fill=sync_publishers.fill)
    pairs = harness.against("singles", anchors, f"{way}, {size:,} B")
    return harness.compare({**anchors, "singles": singles}, pairs, args.reps)
