"""The common parts of the Spark benchmarks: session, micro-batch sizes, and timing.

Invariant: a measurement covers whole micro-batches of equal row counts, and never the first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arrow_baseline
import cpu
from harness import Measurement
from pyspark.sql import DataFrame, SparkSession

from ackq import limits
from ackq.client import Security
from ackq.spark import configure

FLOOR = 0.5
BATCH_BYTES = 64_000_000
# What a body counts at least in a micro-batch: small rows cost more than their bodies.
LEAST_BYTES = 200
QUERY_TIMEOUT_S = 300
POLL_S = 0.05
COUNTER_DIGITS = 12
# Clock of a measurement: Spark's name for it in the progress report. `trigger` is the whole
# micro-batch, by which Spark counts its own `processedRowsPerSecond`, and the floor is by it;
# `addBatch` leaves out Spark's planning and checkpoint files.
CLOCKS = {"trigger": "triggerExecution", "addBatch": "addBatch"}

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    # A sink's query is stopped in mid-batch, which Spark logs as errors; real ones are raised.
    "spark.log.level": "FATAL",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
# Settings of a session for Delta tables, as in the jobs.
DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def add_batches(parser: argparse.ArgumentParser) -> None:
    """The option that every Spark benchmark has."""
    parser.add_argument("--batches", type=int, default=4, help="timed micro-batches of a run (4)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a benchmark with a floor."""
    add_batches(parser)
    parser.add_argument("--floor", type=float, default=FLOOR, help=f"least median ratio ({FLOOR})")


def to_broker(endpoint: str, security: Security | None = None) -> dict[str, str]:
    """Options of `format("ackq")` that name a broker, and its security."""
    if security is None:
        return {"endpoint": endpoint}
    return {"endpoint": endpoint, "tlsCa": security.ca, "tokenFile": security.token_file}


def add_batch_bytes(parser: argparse.ArgumentParser) -> None:
    """The option for micro-batches of several sizes, each with results of its own."""
    parser.add_argument(
        "--batch-bytes",
        type=lambda text: [1_000_000 * int(part.removesuffix("m")) for part in text.split(",")],
        default=[BATCH_BYTES],
        help="millions of bytes of a micro-batch's bodies, separated by commas: 64m,400m (64m)",
    )


def rows_per_batch(size: int, batch_bytes: int = BATCH_BYTES) -> int:
    """Rows of a micro-batch for a body size, which counts `LEAST_BYTES` at least."""
    return batch_bytes // max(size, LEAST_BYTES)


@dataclass(frozen=True)
class Load:
    """Bodies of `size` bytes, in micro-batches of `rows`, of which `batches` are timed."""

    size: int
    rows: int
    batches: int

    @property
    def total(self) -> int:
        """Rows of all micro-batches, with the first, which is not timed."""
        return self.rows * (self.batches + 1)

    @property
    def whole_name(self) -> str:
        """The sizes of a body and of a micro-batch."""
        return f"{self.size:,} B, {self.rows:,} rows per micro-batch"

    @property
    def name(self) -> str:
        """The size of a body, and of a micro-batch if it is not the usual one."""
        usual = self.rows == rows_per_batch(self.size)
        return f"{self.size:,} B" if usual else self.whole_name


def loads(args: argparse.Namespace) -> list[Load]:
    """A load for each body size and size of a micro-batch that the options name."""
    sizes, points = args.sizes, getattr(args, "batch_bytes", [BATCH_BYTES])
    return [Load(size, rows_per_batch(size, at), args.batches) for size in sizes for at in points]


def body(counter: str, size: int) -> str:
    """SQL of bodies of a size: a counter and filler."""
    filler = "x" * (size - COUNTER_DIGITS)
    digits = f"lpad(cast({counter} AS STRING), {COUNTER_DIGITS}, '0')"
    return f"cast(concat({digits}, '{filler}') AS BINARY)"


@contextlib.contextmanager
def session(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A quiet local Spark with the anchors; enter it before a gRPC channel is open."""
    # Workers import the anchors from this folder.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = configure(builder, max_message_bytes=64 * limits.KIB).getOrCreate()
    try:
        spark.dataSource.register(arrow_baseline.Baseline)
        yield spark
    finally:
        spark.stop()


def measure(
    rows: DataFrame,
    *,
    sink: str,
    options: Mapping[str, str],
    trigger: dict[str, Any],
    batches: int,
    server: str = cpu.ACKQ,
) -> Measurement:
    """Runs a query and times micro-batches 2 to `batches` + 1 of those with rows.

    Args:
        rows: A stream of equal micro-batches.
        sink: A format.
        options: Options of the sink.
        trigger: As `DataStreamWriter.trigger` takes it; one that never ends is stopped.
        batches: Micro-batches to time.
        server: The server whose CPU is the broker's.

    Returns:
        Rows, seconds by `CLOCKS`, and CPU.

    Raises:
        RuntimeError: There were too few micro-batches, or unequal ones.
        StreamingQueryException: The query failed.
    """
    meter = cpu.Meter(server, skip=1)
    timed = follow(
        rows, sink=sink, options=options, trigger=trigger, batches=batches, skip=1, meter=meter
    )
    seconds = {
        clock: sum(progress["durationMs"][name] for progress in timed) / 1000
        for clock, name in CLOCKS.items()
    }
    rows_timed = sum(progress["numInputRows"] for progress in timed)
    return Measurement(rows_timed, seconds, meter.per_row(timed[0]["numInputRows"]))


def follow(
    rows: DataFrame,
    *,
    sink: str,
    options: Mapping[str, str],
    trigger: dict[str, Any],
    batches: int,
    skip: int,
    meter: cpu.Meter | None = None,
) -> list[Any]:
    """Runs a query; returns the progress of `batches` micro-batches with rows after `skip`.

    Arguments and errors as in `measure`.
    """
    with tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as checkpoint:
        writer = rows.writeStream.format(sink).options(**options).trigger(**trigger)
        query = writer.option("checkpointLocation", checkpoint).start()
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        ended, timed = False, list[Any]()
        while not ended and time.monotonic() < deadline:
            ended = query.awaitTermination(POLL_S) or False  # type: ignore[arg-type]
            full = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
            timed = full[skip : skip + batches]
            if meter is not None:
                meter.at(min(len(full), skip + batches))
            if len(timed) == batches and "availableNow" not in trigger:
                break
        query.stop()
    counts = [progress["numInputRows"] for progress in timed]
    if len(counts) < batches or len(set(counts)) != 1:
        raise RuntimeError(f"Expected {batches} equal micro-batches, timed these rows: {counts}.")
    return timed
