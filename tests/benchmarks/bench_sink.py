"""The Spark sink, exactly-once, against a Python Arrow sink that drops its rows.

Invariant: both queries write the same rows, made by the JVM, in equal micro-batches.
"""

import os
from functools import partial

import arrow_baseline
import cpu
import harness
import spark_harness
from harness import Pair

HELP = "rows/s of the Spark sink as a ratio to an Arrow sink that drops its rows"
OPTIONS = {**spark_harness.BATCHES, **spark_harness.BATCH_BYTES}


def run(args, endpoint):
    """A comparison per body size and size of a micro-batch."""
    with spark_harness.session() as spark:
        for load in spark_harness.loads(args):
            ours = partial(to_queue, spark, load, endpoint)
            title = f"sink, {load.whole_name}"
            yield from harness.compare(
                {
                    "discard": partial(discard, spark, load),
                    "exactly once": ours,
                    "at least once": partial(ours, guarantee="at-least-once"),
                },
                {
                    title: Pair("exactly once", "discard", spark_harness.FLOOR),
                    f"{title}, at least once": Pair("at least once", "exactly once"),
                },
                args.reps,
            )


def discard(spark, load):
    """The ceiling: rows that are dropped."""
    rows = made_rows(spark, load)
    return spark_harness.measure(rows, arrow_baseline.FORMAT, {}, load.batches, ends=False)


def to_queue(spark, load, endpoint, *, guarantee="exactly-once", security=None, server=cpu.ACKQ):
    """Writes to a durable queue; by default staged, synced and committed."""
    with harness.queue(endpoint, security) as queue:
        options = {**spark_harness.to_broker(endpoint, security), "guarantee": guarantee}
        options["queue"] = queue
        rows = made_rows(spark, load)
        return spark_harness.measure(rows, "ackq", options, load.batches, ends=False, server=server)


def made_rows(spark, load):
    """A stream of bodies of a counter and filler, with empty headers."""
    options = {"rowsPerBatch": load.rows, "numPartitions": os.cpu_count() or 1}
    return (
        spark.readStream.format("rate-micro-batch")
        .options(**options)
        .load()
        .selectExpr(
            f"{spark_harness.body('value', load.size)} AS body",
            "cast(map() AS MAP<STRING, STRING>) AS headers",
        )
    )
