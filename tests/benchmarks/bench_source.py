"""The Spark source against an in-memory Python Arrow source, both into Spark's no-op sink.

Invariant: both queries read the same columns, rows per micro-batch and number of tasks.
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

HELP = "rows/s of the Spark source as a ratio to an in-memory Arrow source"
COLUMNS = "body BINARY, headers MAP<STRING, STRING>, published_at TIMESTAMP, delivery_tag BIGINT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_arguments(parser)
    parser.add_argument("--columns", default=COLUMNS, help="what both sources read, as Spark DDL")


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison per body size."""
    with spark_harness.session() as spark:
        for size in args.sizes:
            rows = spark_harness.rows_per_batch(size)
            comparison = Comparison(
                title=f"source, {size:,} B, {rows:,} rows per micro-batch",
                anchor="in memory",
                subject="ackq",
                floor=args.floor,
            )
            yield harness.interleave(
                comparison,
                args.repetitions,
                functools.partial(in_memory, spark, args, size),
                functools.partial(from_queue, spark, args, size, endpoint),
            )


def in_memory(spark: SparkSession, args: argparse.Namespace, size: int) -> Measurement:
    """The ceiling: rows that are there already."""
    options = {
        "batches": args.batches + 1,
        "rowsPerBatch": spark_harness.rows_per_batch(size),
        "rowsPerArrowBatch": harness.rows_per_frame(size),
        "bodyBytes": size,
        "partitions": os.cpu_count() or 1,
    }
    reader = spark.readStream.format(arrow_baseline.FORMAT).options(**options)
    return _measure(reader.schema(args.columns).load(), args.batches)


def from_queue(
    spark: SparkSession, args: argparse.Namespace, size: int, endpoint: str
) -> Measurement:
    """A queue with exactly the rows of the run."""
    rows = spark_harness.rows_per_batch(size)
    with harness.queue(endpoint) as queue:
        harness.fill(endpoint, queue, rows=rows * (args.batches + 1), size=size)
        options: dict[str, str | int] = {
            "endpoint": endpoint,
            "queue": queue,
            "maxMessagesPerTrigger": rows,
            "maxBytesPerTrigger": "1g",
            "minPartitions": os.cpu_count() or 1,
        }
        reader = spark.readStream.format("ackq").options(**options)
        return _measure(reader.schema(args.columns).load(), args.batches)


def _measure(rows: DataFrame, batches: int) -> Measurement:
    return spark_harness.measure(
        rows, sink="noop", options={}, trigger={"availableNow": True}, batches=batches
    )
