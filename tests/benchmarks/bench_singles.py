"""Consuming messages that were published one by one, against messages in large frames, and pika.

Invariant: all queues hold the same messages. Those of `singles` came from 40 synchronous
publishers, so each is a frame and a block of its own.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator

import ackq_sides
import bench_source
import harness
import rabbitmq_sides
import spark_harness
import sync_publishers
from harness import Comparison, Measurement

HELP = "consuming what was published one by one, as ratios to large frames and pika with RabbitMQ"
MESSAGES = 40_000
ACK_EVERY = 100

Side = Callable[..., Measurement]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.set_defaults(sizes=[100])
    multiple = 2 * sync_publishers.FILLING
    text = f"in a queue, a multiple of {multiple} ({MESSAGES:,})"
    parser.add_argument("--messages", type=int, default=MESSAGES, help=text)


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Comparisons per body size and way to consume."""
    of = functools.partial
    with spark_harness.session() as spark:
        for size in args.sizes:
            # The first micro-batch is not timed.
            load = spark_harness.Load(size, args.messages // 2, 1)
            source = of(bench_source.from_queue, spark, load, endpoint, bench_source.COLUMNS)
            yield from _compared(args, size, "Spark source", source)
    with rabbitmq_sides.running() as port:
        for size in args.sizes:
            given = (endpoint, args.messages, bytes(size))
            consume = of(rabbitmq_sides.consume, port, args.messages, bytes(size), 1)
            beside: dict[str, Side] = {"RabbitMQ": consume} if port else {}
            receive = of(ackq_sides.receive, *given)
            for way, side, others in (
                ("receive() and accept each", of(receive, every=1), beside),
                ("callback and accept each", of(ackq_sides.callback, *given), beside),
                (f"receive() and accept {ACK_EVERY} at once", of(receive, every=ACK_EVERY), {}),
                ("receive_batch() and accept all", of(ackq_sides.receive_batches, *given), {}),
            ):
                yield from _compared(args, size, way, side, others)


def _compared(
    args: argparse.Namespace, size: int, way: str, side: Side, beside: dict[str, Side] | None = None
) -> list[Comparison]:
    """Compares a way to consume singles with frames, and with others beside."""
    anchors = {"frames": functools.partial(side, fill=harness.fill), **(beside or {})}
    singles = functools.partial(side, fill=sync_publishers.fill)
    pairs = harness.against("singles", anchors, f"{way}, {size:,} B")
    return harness.compare({**anchors, "singles": singles}, pairs, args.repetitions)
