"""The change of rates with partitions, edges, queues, routes, sizes, backlogs and channels.

Invariant: a comparison changes one of them, and both sides move the same number of messages; the
first of each is the anchor. A part is a function that yields a title, what is counted, and a side
for each count.
"""

from contextlib import ExitStack
from functools import partial

import bench_sink
import bench_source
import harness
import many_channels
import scale_sides
import spark_harness
from harness import Pair

from ackq_broker import embedded

HELP = "rates by partitions, edges, queues, routes, message sizes, backlogs and channels"
PARTITIONS = (1, 2, 4)
EDGES = (1, 2, 3)
QUEUES = (1, 100, 10_000)
ROUTES = (1, 100, 10_000)
BODY_BYTES = (1_024, 100, 16_384, 262_144, 4_194_304, scale_sides.LARGEST_BYTES)
BACKLOGS = (10_000, 100_000, 1_000_000, 10_000_000)
OPTIONS = {
    "sizes": ([100], "body sizes"),
    **spark_harness.BATCHES,
    "parts": (
        # The queues come last, as they stay.
        ["partitions", "edges", "routes", "sizes", "backlogs", "channels", "queues"],
        "which, separated by commas",
    ),
    "channels": (
        [10, 100, 500],
        "numbers of channels; 2000 need a machine that has nothing else to do",
    ),
}


def run(args, endpoint):
    """Comparisons for each part and body size; the part `sizes` has its own sizes."""
    for part in args.parts:
        for size in args.sizes if part != "sizes" else (0,):
            for title, of, sides in globals()[part](args, endpoint, size):
                names = {count: f"{count:,} {of}" for count in sides}
                anchor, *others = names.values()
                yield from harness.compare(
                    {names[count]: side for count, side in sides.items()},
                    {f"{title}: {other} / {anchor}": Pair(other, anchor) for other in others},
                    args.reps,
                )


def partitions(args, endpoint, size):
    """The Spark source with different numbers of tasks."""
    load = spark_harness.Load(size, spark_harness.rows_per_batch(size), args.batches)
    with spark_harness.session() as spark:
        sides = {
            count: partial(bench_source.from_queue, spark, load, endpoint, partitions=count)
            for count in PARTITIONS
        }
        yield (f"source, {size:,} B", "partitions", sides)


def edges(args, endpoint, size):
    """The Spark source and the exactly-once sink with different numbers of brokers (S12, K14)."""
    rows = spark_harness.rows_per_batch(size) // 6 * 6  # equal shares
    load = spark_harness.Load(size, rows, args.batches)
    with ExitStack() as stack, spark_harness.session() as spark:
        others = [stack.enter_context(embedded()).endpoint for _ in EDGES[1:]]
        lists = {count: ",".join([endpoint, *others][:count]) for count in EDGES}
        for what, side in (("source", bench_source.from_queue), ("sink", bench_sink.to_queue)):
            sides = {count: partial(side, spark, load, at) for count, at in lists.items()}
            yield f"{what}, {size:,} B", "edges", sides


def queues(_, endpoint, size):
    """Batches to different numbers of queues, each row to the next queue."""
    names = scale_sides.queues(endpoint, max(QUEUES))
    sides = {
        count: partial(scale_sides.publish, endpoint, "", names[:count], size) for count in QUEUES
    }
    yield (f"publish_batch, {size:,} B", "queues", sides)


def routes(_, endpoint, size):
    """Batches with different numbers of routing keys, routed by a topic exchange to one queue."""
    with scale_sides.topic(endpoint) as exchange:
        keys = [f"eu.{number}" for number in range(max(ROUTES))]
        sides = {
            count: partial(scale_sides.publish, endpoint, exchange, keys[:count], size)
            for count in ROUTES
        }
        yield (f"publish_batch, {size:,} B", "routes", sides)


def sizes(_, endpoint, __):
    """Publishing and consuming bodies of different sizes; the rates are of bytes."""
    for verb in ("publish_batch", "receive_batch"):
        move = getattr(scale_sides, verb)
        sides = {size: partial(move, endpoint, size) for size in BODY_BYTES}
        yield (f"{verb}, bytes/s", "B a message", sides)


def backlogs(_, endpoint, size):
    """Taking messages from queues of different lengths."""
    with scale_sides.backlogs(endpoint, BACKLOGS, size) as names:
        sides = {
            count: partial(scale_sides.take, endpoint, names[count], size) for count in BACKLOGS
        }
        yield (f"consume, {size:,} B", "messages waiting", sides)


def channels(args, endpoint, size):
    """One queue to different numbers of channels of one process."""
    sides = {count: partial(many_channels.share, endpoint, count, size) for count in args.channels}
    yield (f"consume, {size:,} B", "channels", sides)
