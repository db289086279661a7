"""Synchronous publishers, from a lone one to many in several processes, against pika and Kafka.

Invariant: every side has a publisher (connection, producer) for each thread, in as many processes,
and each waits for its confirm before it publishes the next message.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import confluent_sides
import cpu
import harness
import kafka_server
import rabbitmq_sides
import sync_publishers
from harness import Figures, Measurement, Result

HELP = "publishers that wait for each confirm, as ratios to pika with RabbitMQ and Kafka's C client"
PUBLISHERS = "1,8,40,2x40"


# The address of a server, its name in `cpu`, and how to make a queue in it for a run.
Side = tuple[str, str, Callable[[], AbstractContextManager[str]]]


def points(text: str) -> list[tuple[int, int]]:
    """Processes and publishers in each: `8` is one process of 8, `2x40` are two of 40."""
    pairs = (part.rpartition("x") for part in text.split(","))
    return [(int(processes or 1), int(threads)) for processes, _, threads in pairs]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.set_defaults(sizes=[100])
    parser.add_argument(
        "--publishers",
        type=points,
        default=PUBLISHERS,
        help=f"their numbers; 2x40 are two processes of 40 ({PUBLISHERS})",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Result]:
    """Comparisons per body size and number of publishers, and how long a message waited."""
    with rabbitmq_sides.running() as port, confluent_sides.running() as kafka:
        theirs = functools.partial(rabbitmq_sides.full_queue, port, 0, b"")
        sides: dict[str, Side] = {
            "RabbitMQ": (str(port or ""), rabbitmq_sides.NAME, theirs),
            "Kafka": (kafka, kafka_server.NAME, functools.partial(contextlib.nullcontext, "topic")),
            "ackq": (endpoint, cpu.ACKQ, functools.partial(harness.queue, endpoint)),
        }
        there = [name for name, (address, *_) in sides.items() if address]
        for size, point in itertools.product(args.sizes, args.publishers):
            number = "{} x {}".format(*point).removeprefix("1 x ")
            times = Figures(f"synchronous publishers: {number}, {size:,} B", "ms")
            of = functools.partial(measure, times, args.seconds, size, point)
            yield from harness.compare(
                {name: functools.partial(of, name, sides[name]) for name in there},
                harness.against("ackq", there[:-1], times.title),
                args.repetitions,
            )
            yield times.without_warm_up()


def measure(
    times: Figures, seconds: float, size: int, point: tuple[int, int], client: str, side: Side
) -> Measurement:
    """Publishes for some seconds by all publishers; adds how long the messages waited."""
    (processes, threads), (address, server, queue_of_run) = point, side
    with queue_of_run() as queue, contextlib.ExitStack() as stack:
        start = functools.partial(sync_publishers.opened, client, address, queue, size)
        publishers = [
            stack.enter_context(start(threads=threads, seconds=seconds)) for _ in range(processes)
        ]
        before = cpu.seconds(server)
        wall, waits = sync_publishers.run(*publishers)
        used = cpu.per_row(before, cpu.seconds(server), len(waits))
    times.add(harness.percentiles(waits, client))
    return Measurement(len(waits), {"wall": wall}, used)
