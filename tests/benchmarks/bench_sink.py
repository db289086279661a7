"""The Spark sink, exactly-once, against a Python Arrow sink that drops its rows.

Invariant: both queries write the same rows, made by the JVM, in equal micro-batches.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator

import arrow_baseline
import harness
import spark_harness
from harness import Comparison, Measurement
from pyspark.sql import DataFrame, SparkSession

HELP = "rows/s of the Spark sink as a ratio to an Arrow sink that drops its rows"
COUNTER_DIGITS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_arguments(parser)


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison per body size."""
    with spark_harness.session() as spark:
        for size in args.sizes:
            rows = spark_harness.rows_per_batch(size)
            comparison = Comparison(
                title=f"sink, {size:,} B, {rows:,} rows per micro-batch",
                anchor="discard",
                subject="ackq",
                floor=args.floor,
            )
            yield harness.interleave(
                comparison,
                args.repetitions,
                functools.partial(discard, spark, args, size),
                functools.partial(to_queue, spark, args, size, endpoint),
            )


def discard(spark: SparkSession, args: argparse.Namespace, size: int) -> Measurement:
    """The ceiling: rows that go nowhere."""
    return _measure(made_rows(spark, size), arrow_baseline.FORMAT, {}, args.batches)


def to_queue(
    spark: SparkSession, args: argparse.Namespace, size: int, endpoint: str
) -> Measurement:
    """Staged, synced and committed to a durable queue."""
    with harness.queue(endpoint) as queue:
        options = {"endpoint": endpoint, "queue": queue}
        return _measure(made_rows(spark, size), "ackq", options, args.batches)


def made_rows(spark: SparkSession, size: int) -> DataFrame:
    """Bodies of a counter and filler, with empty headers."""
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", spark_harness.rows_per_batch(size))
        .option("numPartitions", os.cpu_count() or 1)
        .load()
    )
    filler = "x" * (size - COUNTER_DIGITS)
    counter = f"lpad(cast(value AS STRING), {COUNTER_DIGITS}, '0')"
    return stream.selectExpr(
        f"cast(concat({counter}, '{filler}') AS BINARY) AS body",
        "cast(map() AS MAP<STRING, STRING>) AS headers",
    )


def _measure(rows: DataFrame, sink: str, options: dict[str, str], batches: int) -> Measurement:
    return spark_harness.measure(
        rows, sink=sink, options=options, trigger={"processingTime": "1 second"}, batches=batches
    )
