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

from ackq.client import Security

HELP = "rows/s of the Spark sink as a ratio to an Arrow sink that drops its rows"
AT_LEAST_ONCE = {"guarantee": "at-least-once"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_arguments(parser)


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison per body size."""
    with spark_harness.session() as spark:
        for size in args.sizes:
            rows = spark_harness.rows_per_batch(size)
            ours = functools.partial(to_queue, spark, args, size, endpoint)
            title = f"sink, {size:,} B, {rows:,} rows per micro-batch"
            yield from harness.compare(
                {
                    "discard": functools.partial(discard, spark, args, size),
                    "exactly once": ours,
                    "at least once": functools.partial(ours, AT_LEAST_ONCE),
                },
                {
                    title: harness.Pair("exactly once", "discard", args.floor),
                    f"{title}, at least once": harness.Pair("at least once", "exactly once"),
                },
                args.repetitions,
            )


def discard(spark: SparkSession, args: argparse.Namespace, size: int) -> Measurement:
    """The ceiling: rows that are dropped."""
    return _measure(made_rows(spark, size), arrow_baseline.FORMAT, {}, args.batches)


def to_queue(
    spark: SparkSession,
    args: argparse.Namespace,
    size: int,
    endpoint: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    *,
    security: Security | None = None,
    server: str = cpu.ACKQ,
) -> Measurement:
    """Writes to a durable queue; by default staged, synced and committed."""
    with harness.queue(endpoint, security) as queue:
        options = {**spark_harness.to_broker(endpoint, security), "queue": queue, **settings}
        return _measure(made_rows(spark, size), "ackq", options, args.batches, server)


def made_rows(spark: SparkSession, size: int) -> DataFrame:
    """A stream of bodies of a counter and filler, with empty headers."""
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", spark_harness.rows_per_batch(size))
        .option("numPartitions", os.cpu_count() or 1)
        .load()
    )
    return stream.selectExpr(
        f"{spark_harness.body('value', size)} AS body",
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
