"""The anchors of the Spark benchmarks: a source with its rows in memory, a sink that drops them.

Invariant: both do the least that a Python Arrow source or sink can do, so their rate is the upper
bound of any. The source's rows have the columns, types and batch sizes of the ackq source. The sink
runs on Spark 4.0 and 4.1, too.
"""

# ruff: noqa: N802, N803 - the method names are Spark's

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ackq.spark.engine import (
    ReadAllAvailable,
    ReadLimit,
    StreamArrowWriter,
    SupportsTriggerAvailableNow,
    arrow_schema,
)

FORMAT = "arrow_baseline"

_tasks = itertools.count(1)


def spare_collector() -> None:
    """Freezes imported objects at a worker's second task, so that later collections skip them."""
    if next(_tasks) == 2:
        gc.freeze()


@functools.cache
def arrow_batch(schema: pa.Schema, rows: int, body_bytes: int) -> pa.RecordBatch:
    """Rows as the ackq source yields them; made once per worker, so that they cost nothing."""
    values: dict[str, Any] = {
        "body": [bytes(body_bytes)] * rows,
        "headers": [{}] * rows,
        "published_at": [1_700_000_000_000_000] * rows,
        "delivery_tag": range(1, rows + 1),
        "queue": ["benchmark"] * rows,
        "redelivered": [False] * rows,
        "delivery_count": [1] * rows,
    }
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values[field.name], field.type)
            if field.name in values
            else pa.nulls(rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


class Baseline(DataSource):
    """A read takes `batches`, `rowsPerBatch`, `rowsPerArrowBatch`, `bodyBytes` and `partitions`.

    With `lean` a read or write treats Spark's garbage collection per task as ackq does.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "body BINARY"

    def streamReader(self, schema: StructType) -> MemoryReader:
        return MemoryReader(schema, {name: int(value) for name, value in self.options.items()})

    def streamWriter(self, schema: StructType, overwrite: bool) -> DiscardWriter:  # noqa: ARG002, FBT001
        return DiscardWriter(lean="lean" in self.options)


@dataclass(frozen=True)
class Rows(InputPartition):
    """A partition of `count` rows."""

    count: int


class MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields one prepared batch repeatedly."""

    def __init__(self, schema: StructType, options: dict[str, int]) -> None:
        self._schema = arrow_schema(schema)
        self._options = options

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Does nothing: the end is known from the options."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002
        return {"batch": min(start["batch"] + 1, self._options["batches"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        parts, rows = self._options["partitions"], self._options["rowsperbatch"]
        return [] if start == end else [Rows(rows // parts) for _ in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        if "lean" in self._options:
            spare_collector()
        size = self._options["rowsperarrowbatch"]
        whole = arrow_batch(self._schema, size, self._options["bodybytes"])
        for first in range(0, partition.count, size):
            yield whole.slice(0, min(size, partition.count - first))


class DiscardWriter(StreamArrowWriter):
    """Takes every batch and keeps none."""

    def __init__(self, *, lean: bool) -> None:
        self._lean = lean

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._lean:
            spare_collector()
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: no rows are kept."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: no rows are kept."""
