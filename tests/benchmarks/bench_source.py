"""The Spark source against an in-memory Python Arrow source, both into Spark's no-op sink.

Invariant: both queries read the same columns, rows per micro-batch and number of tasks.
"""

import os
from functools import partial

import arrow_baseline
import cpu
import harness
import spark_harness
from harness import Pair

from ackq.spark import schema
from ackq.wire import columns as known

HELP = "rows/s of the Spark source as a ratio to an in-memory Arrow source"
OPTIONS = {**spark_harness.BATCHES, **spark_harness.BATCH_BYTES}
COLUMNS = "body BINARY, headers MAP<STRING, STRING>, published_at TIMESTAMP, delivery_tag BIGINT"


def run(args, endpoint):
    """Comparisons per body size and size of a micro-batch: four columns, and all."""
    with spark_harness.session() as spark:
        for load in spark_harness.loads(args):
            title = f"source, {load.whole_name}"
            yield from harness.compare(
                {
                    "in memory": partial(in_memory, spark, load, COLUMNS),
                    "ackq": partial(from_queue, spark, load, endpoint, COLUMNS),
                    "plain load()": partial(from_queue, spark, load, endpoint, None),
                    "in memory, all columns": partial(
                        in_memory, spark, load, schema.default(known.DELIVERED)
                    ),
                },
                {
                    title: Pair("ackq", "in memory", spark_harness.FLOOR),
                    f"{title}, plain load()": Pair("plain load()", "ackq"),
                    f"{title}, in memory": Pair("in memory, all columns", "in memory"),
                },
                args.reps,
            )


def in_memory(spark, load, columns):
    """The ceiling: rows prepared in memory."""
    at_once, tasks = harness.rows_per_frame(load.size), os.cpu_count() or 1
    rows = arrow_baseline.read(spark, load, columns, at_once, tasks)
    return spark_harness.measure(rows, "noop", {}, load.batches)


def from_queue(
    spark,
    load,
    endpoint,
    columns=COLUMNS,
    *,
    partitions=None,
    security=None,
    server=cpu.ACKQ,
    fill=harness.fill,
):
    """Reads a queue with exactly the rows of the run; without columns, as `.load()` alone does."""
    with harness.queue(endpoint, security) as queue:
        secured = {} if security is None else {"security": security}
        fill(endpoint, queue, rows=load.total, size=load.size, **secured)
        rows = spark_harness.read(
            spark, load, endpoint, queue, columns, partitions=partitions, security=security
        )
        return spark_harness.measure(rows, "noop", {}, load.batches, server=server)
