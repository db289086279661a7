"""The common parts of the Spark benchmarks: session, micro-batch sizes, and timing.

Invariant: a measurement covers whole micro-batches of equal row counts, and never the first.
"""

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import arrow_baseline
import cpu
from harness import Measurement
from pyspark.sql import SparkSession

from ackq import limits
from ackq.spark import configure

FLOOR = 0.5
BATCH_MEGABYTES = 64
BATCHES = {"batches": (4, "timed micro-batches of a run")}
# For micro-batches of several sizes, each with results of its own.
BATCH_BYTES = {
    "batch-bytes": (
        [BATCH_MEGABYTES],
        "millions of bytes of a micro-batch's bodies, with or without m, separated by commas",
    )
}
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


def to_broker(endpoint, security=None):
    """Options of `format("ackq")` that name a broker, and its security."""
    if security is None:
        return {"endpoint": endpoint}
    return {"endpoint": endpoint, "tlsCa": security.ca, "tokenFile": security.token_file}


def rows_per_batch(size, megabytes=BATCH_MEGABYTES):
    """Rows of a micro-batch for a body size, which counts `LEAST_BYTES` at least."""
    return megabytes * 1_000_000 // max(size, LEAST_BYTES)


@dataclass(frozen=True)
class Load:
    """Bodies of `size` bytes, in micro-batches of `rows`, of which `batches` are timed."""

    size: int
    rows: int
    batches: int
    skipped: int = 1

    @property
    def total(self):
        """Rows of all micro-batches, with the first, which is not timed."""
        return self.rows * (self.batches + self.skipped)

    @property
    def whole_name(self):
        """The sizes of a body and of a micro-batch."""
        return f"{self.size:,} B, {self.rows:,} rows per micro-batch"

    @property
    def name(self):
        """The size of a body, and of a micro-batch if it is not the usual one."""
        usual = self.rows == rows_per_batch(self.size)
        return f"{self.size:,} B" if usual else self.whole_name


def loads(args):
    """A load for each body size and size of a micro-batch that the options name."""
    sizes, points = args.sizes, getattr(args, "batch_bytes", [BATCH_MEGABYTES])
    return [Load(size, rows_per_batch(size, at), args.batches) for size in sizes for at in points]


def body(counter, size):
    """SQL of bodies of a size: a counter and filler."""
    filler = "x" * (size - COUNTER_DIGITS)
    digits = f"lpad(cast({counter} AS STRING), {COUNTER_DIGITS}, '0')"
    return f"cast(concat({digits}, '{filler}') AS BINARY)"


@contextlib.contextmanager
def session(settings=None):
    """A quiet local Spark with the anchors; enter it before a gRPC channel is open."""
    # Workers import the anchors from this folder.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    builder = builder.config(map={**SETTINGS, **(settings or {})})
    spark = configure(builder, max_message_bytes=64 * limits.KIB).getOrCreate()
    try:
        spark.dataSource.register(arrow_baseline.Baseline)
        yield spark
    finally:
        spark.stop()


def read(spark, load, endpoint, queue, columns, *, partitions=None, security=None):
    """A stream of a queue in equal micro-batches; without columns, as `.load()` alone reads it."""
    options = {
        **to_broker(endpoint, security),
        "queue": queue,
        "maxMessagesPerTrigger": load.rows,
        "maxBytesPerTrigger": "4g",
        "minPartitions": partitions or os.cpu_count() or 1,
    }
    reader = spark.readStream.format("ackq").options(**options)
    return (reader.schema(columns) if columns else reader).load()


def measure(rows, sink, options, batches, *, ends=True, server=cpu.ACKQ):
    """Runs a query and times micro-batches 2 to `batches` + 1 of those with rows.

    Args:
        rows: A stream of equal micro-batches.
        sink: A format.
        options: Options of the sink.
        batches: Micro-batches to time.
        ends: The stream ends by itself; one that never ends is stopped.
        server: The server whose CPU is the broker's.

    Returns:
        Rows, seconds by `CLOCKS`, and CPU.

    Raises:
        RuntimeError: There were too few micro-batches, or unequal ones.
        StreamingQueryException: The query failed.
    """
    meter = cpu.Meter(server, skip=1)
    timed = follow(rows, sink, options, batches, ends=ends, meter=meter)
    seconds = {
        clock: sum(progress["durationMs"][name] for progress in timed) / 1000
        for clock, name in CLOCKS.items()
    }
    rows_timed = sum(progress["numInputRows"] for progress in timed)
    return Measurement(rows_timed, seconds, meter.per_row(timed[0]["numInputRows"]))


def follow(rows, sink, options, batches, *, ends=True, skip=1, meter=None):
    """Runs a query; returns the progress of `batches` micro-batches with rows after `skip`.

    Arguments and errors as in `measure`.
    """
    trigger = {"availableNow": True} if ends else {"processingTime": "1 second"}
    with tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as checkpoint:
        writer = rows.writeStream.format(sink).options(**options).trigger(**trigger)
        query = writer.option("checkpointLocation", checkpoint).start()
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        ended, timed = False, []
        while not ended and time.monotonic() < deadline:
            ended = query.awaitTermination(POLL_S) or False
            full = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
            timed = full[skip : skip + batches]
            if meter is not None:
                meter.at(min(len(full), skip + batches))
            if len(timed) == batches and not ends:
                break
        query.stop()
    counts = [progress["numInputRows"] for progress in timed]
    if len(counts) < batches or len(set(counts)) != 1:
        raise RuntimeError(f"Expected {batches} equal micro-batches, timed these rows: {counts}.")
    return timed
