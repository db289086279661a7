"""The Spark source against an in-memory Python Arrow source, both into Spark's no-op sink.

Invariant: both queries read the same columns, rows per micro-batch and number of tasks.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterator

import arrow_baseline
import cpu
import harness
import spark_harness
from harness import Comparison, Measurement
from pyspark.sql import DataFrame, SparkSession
from spark_harness import Load

from ackq.client import Security

HELP = "rows/s of the Spark source as a ratio to an in-memory Arrow source"
COLUMNS = "body BINARY, headers MAP<STRING, STRING>, published_at TIMESTAMP, delivery_tag BIGINT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_arguments(parser)
    spark_harness.add_batch_bytes(parser)
    parser.add_argument("--columns", default=COLUMNS, help="what both sources read, as Spark DDL")
    parser.add_argument(
        "--plain",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also a load() without a schema, which reads all columns (yes)",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison per body size and size of a micro-batch."""
    with spark_harness.session() as spark:
        for load in spark_harness.loads(args):
            ours = functools.partial(from_queue, spark, load, endpoint)
            sides = {
                "in memory": functools.partial(in_memory, spark, load, args.columns),
                "ackq": functools.partial(ours, args.columns),
            }
            title = f"source, {load.whole_name}"
            pairs = {title: harness.Pair("ackq", "in memory", args.floor)}
            if args.plain:
                sides["plain load()"] = functools.partial(ours, None)
                pairs[f"{title}, plain load()"] = harness.Pair("plain load()", "ackq")
            yield from harness.compare(sides, pairs, args.repetitions)


def in_memory(spark: SparkSession, load: Load, columns: str) -> Measurement:
    """The ceiling: rows prepared in memory."""
    options = {
        "batches": load.batches + 1,
        "rowsPerBatch": load.rows,
        "rowsPerArrowBatch": harness.rows_per_frame(load.size),
        "bodyBytes": load.size,
        "partitions": os.cpu_count() or 1,
    }
    reader = spark.readStream.format(arrow_baseline.FORMAT).options(**options)
    return _measure(reader.schema(columns).load(), load.batches)


def from_queue(
    spark: SparkSession,
    load: Load,
    endpoint: str,
    columns: str | None,
    *,
    partitions: int | None = None,
    security: Security | None = None,
    server: str = cpu.ACKQ,
    fill: Callable[..., None] | None = None,
) -> Measurement:
    """Reads a queue with exactly the rows of the run; without columns, as `.load()` alone does."""
    fill = fill or functools.partial(harness.fill, security=security)
    with harness.queue(endpoint, security) as queue:
        fill(endpoint, queue, rows=load.total, size=load.size)
        options: dict[str, str | int] = {
            **spark_harness.to_broker(endpoint, security),
            "queue": queue,
            "maxMessagesPerTrigger": load.rows,
            "maxBytesPerTrigger": "4g",
            "minPartitions": partitions or os.cpu_count() or 1,
        }
        reader = spark.readStream.format("ackq").options(**options)
        rows_read = (reader.schema(columns) if columns else reader).load()
        return _measure(rows_read, load.batches, server)


def _measure(rows: DataFrame, batches: int, server: str = cpu.ACKQ) -> Measurement:
    return spark_harness.measure(
        rows,
        sink="noop",
        options={},
        trigger={"availableNow": True},
        batches=batches,
        server=server,
    )
