"""The sink's writers: tasks stage their rows, the driver commits all stages at once (K3).

Exactly-once: `write` uploads a stage and returns its id and counts; `commit` names the winners'
stages to the broker, which makes them visible in one journal record, once per (writer, batch).
At-least-once: `write` publishes and returns when everything is confirmed (K4).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ackq.spark import task
from ackq.spark.options.options import SinkOptions
from ackq.spark.options.values import Guarantee
from ackq.spark.sink import stage as upload
from ackq.spark.sink.rows import Shape
from ackq.spark.sink.stage import Batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ackq.client import Stage


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver. Spark gives the driver no query id, so it travels here.

    Attributes:
        batch: What it wrote for.
        stage: The sealed stage; None when the task had no rows.
    """

    batch: Batch
    stage: Stage | None


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """What an at-least-once task tells the driver: all its rows are confirmed."""

    rows: int


class AckqStreamWriter(DataSourceStreamArrowWriter):
    """The streaming sink. Its batches are the query's, so one that is run again is recognised."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages one task's rows.

        Raises:
            UnroutableError: No queue wants a row, and `mandatory` is on.
            NackError: The broker cannot take the rows, for the reason it gives.
            SchemaError, BrokerUnavailableError: As they say.
        """
        now = task.current()
        assert now.query_id, "a streaming write runs in a streaming query"
        batch = Batch(writer=now.query_id, batch_id=now.batch_id, run_id=now.run_id)
        return _write(self._options, self._shape, batch, now.label, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Makes the batch visible; does nothing when it is visible already."""
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Drops the stages of this try; never final, as the batch may come again."""
        _abort(self._options, messages)


class AckqBatchWriter(DataSourceArrowWriter):
    """A batch write. Spark pickles this one instance into the tasks and the commit."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._write_id = uuid.uuid4().hex
        if options.txn_app_id is None:
            # Nobody can repeat this write, so nobody may be mistaken for it.
            self._writer, self._version = f"write/{self._write_id}", 0
            self._single = True
        else:
            self._single = False
            self._writer = f"txn/{quote(options.txn_app_id, safe='')}/{upload.target(options)}"
            self._version = options.txn_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages one task's rows; errors as `AckqStreamWriter.write`.

        Raises:
            InvalidArgumentError: `foreachBatch` hides the run of its query, and there is a
                `txnAppId` (K12).
        """
        now = task.current()
        if not self._single:
            now.check_run("a write with txnAppId")
        # Outside of a query run nothing distinguishes a repeated write from a second one. But each
        # write is a run: what a program that was killed left staged goes when it writes again.
        execution_id = now.execution_id if now.run_id else ""
        run_id = now.run_id or self._write_id
        batch = Batch(self._writer, self._version, run_id, execution_id, self._single)
        return _write(self._options, self._shape, batch, now.label, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the write visible; does nothing when this `txnVersion` is visible already.

        Raises:
            BatchOrderError: The version is lower than the last one, or another write of this run
                has used it (K12).
        """
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drops the stages of this try."""
        _abort(self._options, messages)


def stream_writer(options: SinkOptions, schema: StructType) -> AckqStreamWriter:
    """The writer of one micro-batch; raises as `Shape.plan`."""
    return AckqStreamWriter(options, Shape.plan(options, schema))


def batch_writer(options: SinkOptions, schema: StructType) -> AckqBatchWriter:
    """The writer of one batch write; raises as `Shape.plan`."""
    return AckqBatchWriter(options, Shape.plan(options, schema))


def _write(
    options: SinkOptions, shape: Shape, batch: Batch, label: str, rows: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    parts = (part for each in rows for part in shape.messages(each))
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return Published(upload.publish(options, parts))
    return Staged(batch, upload.stage(options, batch, label, parts))


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    staged = _staged(messages)
    if staged:
        # Without a single row too: that this batch is done is worth recording, and it costs one
        # call.
        upload.commit(options, _batch(staged), _stages(staged))


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    staged = _staged(messages)
    if _stages(staged):
        upload.abort(options, _batch(staged), _stages(staged))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The messages of tasks that staged, by partition; a failed task has none."""
    return [message for message in messages if isinstance(message, Staged)]


def _stages(staged: list[Staged]) -> list[Stage]:
    return [message.stage for message in staged if message.stage is not None]


def _batch(staged: list[Staged]) -> Batch:
    batch = staged[0].batch
    assert all(message.batch == batch for message in staged), "tasks of one write disagree on it"
    return batch
