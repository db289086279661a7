"""The Spark source against an in-memory Python Arrow source, both into Spark's no-op sink.

Invariant: both queries read the same columns, rows per micro-batch and number of tasks.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator

import arrow_baseline
import cpu
import harness
import spark_harness
from harness import Comparison, Measurement
from pyspark.sql import DataFrame, SparkSession

from ackq.client import Security

HELP = "rows/s of the Spark source as a ratio to an in-memory Arrow source"
COLUMNS = "body BINARY, headers MAP<STRING, STRING>, published_at TIMESTAMP, delivery_tag BIGINT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_arguments(parser)
    parser.add_argument("--columns", default=COLUMNS, help="what both sources read, as Spark DDL")
    parser.add_argument(
        "--plain",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also a load() without a schema, which reads all columns (yes)",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison per body size."""
    with spark_harness.session() as spark:
        for size in args.sizes:
            rows = spark_harness.rows_per_batch(size)
            ours = functools.partial(from_queue, spark, args, size, endpoint)
            sides = {
                "in memory": functools.partial(in_memory, spark, args, size),
                "ackq": functools.partial(ours, args.columns),
            }
            title = f"source, {size:,} B, {rows:,} rows per micro-batch"
            pairs = {title: harness.Pair("ackq", "in memory", args.floor)}
            if args.plain:
                sides["plain load()"] = functools.partial(ours, None)
                pairs[f"{title}, plain load()"] = harness.Pair("plain load()", "ackq")
            yield from harness.compare(sides, pairs, args.repetitions)


def in_memory(spark: SparkSession, args: argparse.Namespace, size: int) -> Measurement:
    """The ceiling: rows prepared in memory."""
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
    spark: SparkSession,
    args: argparse.Namespace,
    size: int,
    endpoint: str,
    columns: str | None,
    *,
    partitions: int | None = None,
    security: Security | None = None,
    server: str = cpu.ACKQ,
) -> Measurement:
    """Reads a queue with exactly the rows of the run; without columns, as `.load()` alone does."""
    rows = spark_harness.rows_per_batch(size)
    with harness.queue(endpoint, security) as queue:
        total = rows * (args.batches + 1)
        harness.fill(endpoint, queue, rows=total, size=size, security=security)
        options: dict[str, str | int] = {
            **spark_harness.to_broker(endpoint, security),
            "queue": queue,
            "maxMessagesPerTrigger": rows,
            "maxBytesPerTrigger": "1g",
            "minPartitions": partitions or os.cpu_count() or 1,
        }
        reader = spark.readStream.format("ackq").options(**options)
        rows_read = (reader.schema(columns) if columns else reader).load()
        return _measure(rows_read, args.batches, server)


def _measure(rows: DataFrame, batches: int, server: str = cpu.ACKQ) -> Measurement:
    return spark_harness.measure(
        rows,
        sink="noop",
        options={},
        trigger={"availableNow": True},
        batches=batches,
        server=server,
    )
