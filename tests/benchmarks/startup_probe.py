"""A program of one query, whose start is measured: `startup_probe.py SOURCE SINK ENDPOINT`.

Invariant: neither the JVM nor Python is warm, only the machine's page cache. It prints seconds as
JSON: until the session exists, and from `start()` to the end of the first micro-batch.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import arrow_baseline
import spark_harness
from pyspark.sql import DataFrame, SparkSession

from ackq.spark import schema
from ackq.wire import columns

ROWS = 1_000
BODY_BYTES = 100
_POLL_S = 0.02
_TIMEOUT_S = 300.0


def main(source: str, sink: str, endpoint: str) -> None:
    """Runs the query to its first micro-batch."""
    began = time.perf_counter()
    settings = spark_harness.DELTA if sink == "delta" else {}
    with spark_harness.session(settings) as spark, tempfile.TemporaryDirectory() as folder:
        there = time.perf_counter()
        rows = read(spark, source, endpoint)
        writer = rows.writeStream.format(sink).option("checkpointLocation", f"{folder}/checkpoint")
        options = {"delta": {"path": f"{folder}/table"}}.get(sink, {})
        started = time.perf_counter()
        query = writer.options(**options).trigger(processingTime="0 seconds").start()
        while not any(each["numInputRows"] for each in query.recentProgress):
            assert query.isActive, query.exception()
            assert time.perf_counter() - started < _TIMEOUT_S, "no rows in time"
            time.sleep(_POLL_S)
        first = time.perf_counter()
        query.stop()
    print(json.dumps({"session": there - began, "first rows": first - started}), flush=True)


def read(spark: SparkSession, source: str, endpoint: str) -> DataFrame:
    """The queue `source`, or rows in memory, with the same columns."""
    if source != "memory":
        reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=source)
        return reader.load()
    options = {
        "batches": 1,
        "rowsPerBatch": ROWS,
        "rowsPerArrowBatch": ROWS,
        "bodyBytes": BODY_BYTES,
        "partitions": 1,
    }
    reader = spark.readStream.format(arrow_baseline.FORMAT).options(**options)
    return reader.schema(schema.default(columns.DELIVERED)).load()


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    main(*sys.argv[1:])
