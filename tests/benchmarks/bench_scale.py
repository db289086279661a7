"""The change of rates with partitions, edges, queues, routes, sizes, backlogs and channels.

Invariant: a comparison changes one of them, and both sides move the same number of messages; the
first of each is the anchor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import bench_sink
import bench_source
import harness
import many_channels
import scale_sides
import spark_harness
from harness import Comparison, Measurement, Pair

from ackq_broker import embedded

HELP = "rates by partitions, edges, queues, routes, message sizes, backlogs and channels"
PARTITIONS = (1, 2, 4)
EDGES = (1, 2, 3)
QUEUES = (1, 100, 10_000)
ROUTES = (1, 100, 10_000)
BODY_BYTES = (1_024, 100, 16_384, 262_144, 4_194_304, scale_sides.LARGEST_BYTES)
BACKLOGS = (10_000, 100_000, 1_000_000, 10_000_000)
CHANNELS = [10, 100, 500]

Sides = dict[int, Callable[[], Measurement]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the parts, and the micro-batches of those with Spark."""
    parser.set_defaults(sizes=[100])
    spark_harness.add_batches(parser)
    parser.add_argument(
        "--parts",
        type=lambda text: text.split(","),
        default=list(PARTS),
        help=f"which, separated by commas ({','.join(PARTS)})",
    )
    parser.add_argument(
        "--channels",
        type=lambda text: [int(part) for part in text.split(",")],
        default=CHANNELS,
        help="numbers of channels; 2000 need a machine that has nothing else to do (10,100,500)",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Comparisons for each part and body size; the part `sizes` has its own sizes."""
    for part in args.parts:
        for size in args.sizes if part != "sizes" else (0,):
            yield from PARTS[part](args, endpoint, size)


def partitions(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[Comparison]:
    """The Spark source with different numbers of tasks."""
    with spark_harness.session() as spark:
        sides = {
            count: partial(
                bench_source.from_queue,
                spark,
                spark_harness.Load(size, spark_harness.rows_per_batch(size), args.batches),
                endpoint,
                bench_source.COLUMNS,
                partitions=count,
            )
            for count in PARTITIONS
        }
        yield from _compared(f"source, {size:,} B", "partitions", sides, args.repetitions)


def edges(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[Comparison]:
    """The Spark source and the exactly-once sink with different numbers of brokers (S12, K14)."""
    rows = spark_harness.rows_per_batch(size) // 6 * 6  # equal shares
    load = spark_harness.Load(size, rows, args.batches)
    with ExitStack() as stack, spark_harness.session() as spark:
        others = [stack.enter_context(embedded()).endpoint for _ in EDGES[1:]]
        lists = {count: ",".join([endpoint, *others][:count]) for count in EDGES}
        columns = bench_source.COLUMNS
        source, sink = bench_source.from_queue, bench_sink.to_queue
        for what, sides in (
            ("source", {n: partial(source, spark, load, at, columns) for n, at in lists.items()}),
            ("sink", {n: partial(sink, spark, load, at) for n, at in lists.items()}),
        ):
            yield from _compared(f"{what}, {size:,} B", "edges", sides, args.repetitions)


def queues(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[Comparison]:
    """Batches to different numbers of queues, each row to the next queue."""
    names = scale_sides.queues(endpoint, max(QUEUES))
    sides = {
        count: partial(scale_sides.publish, endpoint, "", names[:count], size) for count in QUEUES
    }
    yield from _compared(f"publish_batch, {size:,} B", "queues", sides, args.repetitions)


def routes(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[Comparison]:
    """Batches with different numbers of routing keys, routed by a topic exchange to one queue."""
    with scale_sides.topic(endpoint) as exchange:
        keys = [f"eu.{number}" for number in range(max(ROUTES))]
        sides = {
            count: partial(scale_sides.publish, endpoint, exchange, keys[:count], size)
            for count in ROUTES
        }
        yield from _compared(f"publish_batch, {size:,} B", "routes", sides, args.repetitions)


def sizes(args: argparse.Namespace, endpoint: str, _: int) -> Iterator[Comparison]:
    """Publishing and consuming bodies of different sizes; the rates are of bytes."""
    for verb in ("publish_batch", "receive_batch"):
        move = scale_sides.BY_SIZE[verb]
        sides = {size: partial(move, endpoint, size) for size in BODY_BYTES}
        yield from _compared(f"{verb}, bytes/s", "B a message", sides, args.repetitions)


def backlogs(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[Comparison]:
    """Taking messages from queues of different lengths."""
    with scale_sides.backlogs(endpoint, BACKLOGS, size) as names:
        sides = {
            count: partial(scale_sides.take, endpoint, names[count], size) for count in BACKLOGS
        }
        yield from _compared(f"consume, {size:,} B", "messages waiting", sides, args.repetitions)


def channels(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[Comparison]:
    """One queue to different numbers of channels of one process."""
    sides = {count: partial(many_channels.share, endpoint, count, size) for count in args.channels}
    yield from _compared(f"consume, {size:,} B", "channels", sides, args.repetitions)


PARTS = {
    "partitions": partitions,
    "edges": edges,
    "routes": routes,
    "sizes": sizes,
    "backlogs": backlogs,
    "channels": channels,
    "queues": queues,  # last, as they stay
}


def _compared(title: str, of: str, sides: Sides, repetitions: int) -> list[Comparison]:
    """Compares each side with the first."""
    names = {count: f"{count:,} {of}" for count in sides}
    anchor, *others = names.values()
    return harness.compare(
        {names[count]: side for count, side in sides.items()},
        {f"{title}: {other} / {anchor}": Pair(other, anchor) for other in others},
        repetitions,
    )
