"""The fixed cost of a small micro-batch, queue to queue, against an in-memory source and sink.

Invariant: all queries run the same few rows per micro-batch in as many tasks, in one Spark.
"""

import statistics
from functools import partial

import arrow_baseline
import harness
import spark_harness
from harness import Measurement, Pair

HELP = "small micro-batches per second, queue to queue, as a ratio to an in-memory source and sink"
OPTIONS = {"sizes": ([100], "body sizes"), "batches": (20, "timed micro-batches of a run")}
ROWS = 10
FLOOR = 0.77
# The whole micro-batch, by which the floor is, and its tasks with the sink's commit.
CLOCKS = ("triggerExecution", "addBatch")
# A query's first micro-batches start processes.
SKIP = 3


def run(args, endpoint):
    """Measures queue to queue."""
    with spark_harness.session() as spark:
        for size in args.sizes:
            load = spark_harness.Load(size, ROWS, args.batches, skipped=SKIP)
            yield from harness.compare(
                {
                    "in memory": partial(in_memory, spark, load),
                    "ackq": partial(queue_to_queue, spark, load, endpoint),
                },
                {f"micro-batch of {ROWS} rows, {size:,} B": Pair("ackq", "in memory", FLOOR)},
                args.reps,
            )


def in_memory(spark, load):
    """Prepared rows, which are dropped; source and sink treat garbage collection as ackq does."""
    rows = arrow_baseline.read(spark, load, "body BINARY", ROWS, 1, lean="1")
    return _medians(rows, arrow_baseline.FORMAT, {"lean": "1"}, load)


def queue_to_queue(spark, load, endpoint):
    """Moves a queue with exactly the rows of the run."""
    with harness.queue(endpoint) as source, harness.queue(endpoint) as target:
        harness.fill(endpoint, source, rows=load.total, size=load.size)
        rows = spark_harness.read(spark, load, endpoint, source, "body BINARY", partitions=1)
        return _medians(rows, "ackq", {"endpoint": endpoint, "queue": target}, load)


def _medians(rows, sink, options, load):
    """The median micro-batch of a query."""
    timed = spark_harness.follow(rows, sink, options, load.batches, skip=SKIP)
    durations = [each["durationMs"] for each in timed]
    clocks = {each: statistics.median(ms[each] for ms in durations) / 1000 for each in CLOCKS}
    return Measurement(ROWS, clocks)
