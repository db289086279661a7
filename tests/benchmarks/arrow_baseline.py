"""The anchors of the Spark benchmarks: a source with its rows in memory, a sink that drops them.

Invariant: both do the least that a Python Arrow source or sink can do, so their rate is the upper
bound of any. The source's rows have the columns, types and batch sizes of the ackq source. The sink
runs on Spark 4.0 and 4.1, too.
"""

# ruff: noqa: N802, N803 - the method names are Spark's

import functools
import gc
import itertools
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from ackq.spark.engine import (
    ReadAllAvailable,
    StreamArrowWriter,
    SupportsTriggerAvailableNow,
    arrow_schema,
)

FORMAT = "arrow_baseline"

_tasks = itertools.count(1)


def spare_collector():
    """Freezes imported objects at a worker's second task, so that later collections skip them."""
    if next(_tasks) == 2:
        gc.freeze()


@functools.cache
def arrow_batch(schema, rows, body_bytes):
    """Rows as the ackq source yields them; made once per worker, so that they cost nothing."""
    values = {
        "body": bytes(body_bytes),
        "headers": {},
        "published_at": 1_700_000_000_000_000,
        "queue": "benchmark",
        "redelivered": False,
        "delivery_count": 1,
    }
    values = {name: [value] * rows for name, value in values.items()}
    values["delivery_tag"] = range(1, rows + 1)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values[field.name], field.type)
            if field.name in values
            else pa.nulls(rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def read(spark, load, columns, at_once, partitions, **more):
    """A stream of prepared rows in memory, in as many micro-batches as the load has."""
    options = {
        "batches": load.batches + load.skipped,
        "rowsPerBatch": load.rows,
        "rowsPerArrowBatch": at_once,
        "bodyBytes": load.size,
        "partitions": partitions,
        **more,
    }
    return spark.readStream.format(FORMAT).options(**options).schema(columns).load()


class Baseline(DataSource):
    """A read takes `batches`, `rowsPerBatch`, `rowsPerArrowBatch`, `bodyBytes` and `partitions`.

    With `lean` a read or write treats Spark's garbage collection per task as ackq does.
    """

    @classmethod
    def name(cls):
        return FORMAT

    def schema(self):
        return "body BINARY"

    def streamReader(self, schema):
        return MemoryReader(schema, {name: int(value) for name, value in self.options.items()})

    def streamWriter(self, schema, overwrite):  # noqa: ARG002
        return DiscardWriter(lean="lean" in self.options)


@dataclass(frozen=True)
class Rows(InputPartition):
    """A partition of `count` rows."""

    count: int


class MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields one prepared batch repeatedly."""

    def __init__(self, schema, options):
        self._schema = arrow_schema(schema)
        self._options = options

    def initialOffset(self):
        return {"batch": 0}

    def getDefaultReadLimit(self):
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self):
        """Does nothing: the end is known from the options."""

    def latestOffset(self, start, limit):  # noqa: ARG002
        return {"batch": min(start["batch"] + 1, self._options["batches"])}

    def partitions(self, start, end):
        parts, rows = self._options["partitions"], self._options["rowsperbatch"]
        return [] if start == end else [Rows(rows // parts) for _ in range(parts)]

    def read(self, partition):
        assert isinstance(partition, Rows)
        if "lean" in self._options:
            spare_collector()
        size = self._options["rowsperarrowbatch"]
        whole = arrow_batch(self._schema, size, self._options["bodybytes"])
        for first in range(0, partition.count, size):
            yield whole.slice(0, min(size, partition.count - first))


class DiscardWriter(StreamArrowWriter):
    """Takes every batch and keeps none."""

    def __init__(self, *, lean):
        self._lean = lean

    def write(self, iterator):
        if self._lean:
            spare_collector()
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages, batchId):
        """Does nothing: no rows are kept."""

    def abort(self, messages, batchId):
        """Does nothing: no rows are kept."""
