"""The Spark sink, exactly-once, against a Python Arrow sink that drops its rows.

Invariant: both queries write the same rows, made by the JVM, in equal micro-batches.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import arrow_baseline
import cpu
import harness
import spark_harness
from harness import Comparison, Measurement
from pyspark.sql import DataFrame, SparkSession
from spark_harness import Load

from ackq.client import Security

HELP = "rows/s of the Spark sink as a ratio to an Arrow sink that drops its rows"
AT_LEAST_ONCE = {"guarantee": "at-least-once"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_arguments(parser)
    spark_harness.add_batch_bytes(parser)


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison per body size and size of a micro-batch."""
    with spark_harness.session() as spark:
        for load in spark_harness.loads(args):
            ours = functools.partial(to_queue, spark, load, endpoint)
            title = f"sink, {load.whole_name}"
            yield from harness.compare(
                {
                    "discard": functools.partial(discard, spark, load),
                    "exactly once": ours,
                    "at least once": functools.partial(ours, AT_LEAST_ONCE),
                },
                {
                    title: harness.Pair("exactly once", "discard", args.floor),
                    f"{title}, at least once": harness.Pair("at least once", "exactly once"),
                },
                args.repetitions,
            )


def discard(spark: SparkSession, load: Load) -> Measurement:
    """The ceiling: rows that are dropped."""
    return _measure(made_rows(spark, load), arrow_baseline.FORMAT, {}, load.batches)


def to_queue(
    spark: SparkSession,
    load: Load,
    endpoint: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    *,
    security: Security | None = None,
    server: str = cpu.ACKQ,
) -> Measurement:
    """Writes to a durable queue; by default staged, synced and committed."""
    with harness.queue(endpoint, security) as queue:
        options = {**spark_harness.to_broker(endpoint, security), "queue": queue, **settings}
        return _measure(made_rows(spark, load), "ackq", options, load.batches, server)


def made_rows(spark: SparkSession, load: Load) -> DataFrame:
    """A stream of bodies of a counter and filler, with empty headers."""
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", load.rows)
        .option("numPartitions", os.cpu_count() or 1)
        .load()
    )
    return stream.selectExpr(
        f"{spark_harness.body('value', load.size)} AS body",
        "cast(map() AS MAP<STRING, STRING>) AS headers",
    )


def _measure(
    rows: DataFrame, sink: str, options: dict[str, str], batches: int, server: str = cpu.ACKQ
) -> Measurement:
    return spark_harness.measure(
        rows,
        sink=sink,
        options=options,
        trigger={"processingTime": "1 second"},
        batches=batches,
        server=server,
    )
