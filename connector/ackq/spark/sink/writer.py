"""The sink's Spark writers: tasks stage their rows, the driver commits all stages at once (K3).

Exactly-once: `write` uploads a stage and returns its id and counts; `commit` names the winners'
stages to the broker, which makes them visible in one journal record, once per (writer, batch).
At-least-once: `write` publishes and returns when everything is confirmed (K4).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ackq.spark import task
from ackq.spark.engine import StreamArrowWriter
from ackq.spark.options.options import SinkOptions
from ackq.spark.options.values import Guarantee
from ackq.spark.sink import advice
from ackq.spark.sink.rows import RowMapping
from ackq.spark.sink.stage import WriterBatch, abort, commit, publish, stage, transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ackq.client import Stage


@dataclass(frozen=True)
class TaskStaged(WriterCommitMessage):
    """Commit message of an exactly-once task.

    Attributes:
        batch: Its batch; Spark gives the driver no query id, so the message carries it.
        stages: The sealed stages by endpoint; none where no row of the task goes.
        sized: Whether Spark computed the size of each row (`advice`).
    """

    batch: WriterBatch
    stages: dict[str, Stage]
    sized: bool = False

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(stage.rows for stage in self.stages.values())


@dataclass(frozen=True)
class TaskPublished(WriterCommitMessage):
    """Commit message of an at-least-once task, all of whose rows are confirmed."""

    rows: int
    sized: bool = False


class AckqStreamWriter(StreamArrowWriter):
    """The streaming sink. Query and batch id identify a batch, so a replay is recognised."""

    def __init__(self, options: SinkOptions, mapping: RowMapping) -> None:
        self._options = options
        self._mapping = mapping

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages one task's rows.

        Raises:
            UnroutableError: A row is unroutable, and `mandatory` is on.
            NackError: The broker refuses the rows, for the reason it gives.
            SchemaError, BrokerUnavailableError: As named.
        """
        now = task.current()
        assert now.query_id, "a streaming write runs in a streaming query"
        batch = WriterBatch(writer=now.query_id, batch_id=now.batch_id, run_id=now.run_id)
        return _write(self._options, self._mapping, batch, now.label, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Makes the batch visible; idempotent."""
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Drops the stages of this attempt; never final, as the batch may run again."""
        _abort(self._options, messages)


class AckqBatchWriter(DataSourceArrowWriter):
    """A batch write. Spark pickles this one instance into the tasks and the commit."""

    def __init__(self, options: SinkOptions, mapping: RowMapping) -> None:
        self._options = options
        self._mapping = mapping
        self._write_id = uuid.uuid4().hex
        if options.txn_app_id is None:
            # This write has no name under which it could be repeated.
            self._writer, self._version = f"write/{self._write_id}", 0
            self._single = True
        else:
            self._single = False
            self._writer = transaction(options)
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
        # Outside of a query run a repeated write and a second one are indistinguishable. Each write
        # counts as a run, so that stages of a killed program are dropped when it writes again.
        execution_id = now.execution_id if now.run_id else ""
        run_id = now.run_id or self._write_id
        batch = WriterBatch(self._writer, self._version, run_id, execution_id, self._single)
        return _write(self._options, self._mapping, batch, now.label, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the write visible; idempotent by `txnVersion`.

        Raises:
            BatchOrderError: The version is lower than the last one, or another write of this run
                has used it (K12).
        """
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drops the stages of this attempt."""
        _abort(self._options, messages)


def stream_writer(options: SinkOptions, schema: StructType) -> AckqStreamWriter:
    """The writer of one micro-batch; raises as `RowMapping.plan`."""
    return AckqStreamWriter(options, RowMapping.plan(options, schema))


def batch_writer(options: SinkOptions, schema: StructType) -> AckqBatchWriter:
    """The writer of one batch write; raises as `RowMapping.plan`."""
    return AckqBatchWriter(options, RowMapping.plan(options, schema))


def _write(
    options: SinkOptions,
    mapping: RowMapping,
    batch: WriterBatch,
    label: str,
    rows: Iterator[pa.RecordBatch],
) -> WriterCommitMessage:
    parts = (part for each in rows for part in mapping.messages(each))
    sized = advice.sizes_every_row()
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return TaskPublished(publish(options, label, parts), sized)
    return TaskStaged(batch, stage(options, batch, label, parts), sized)


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = (each for each in messages if isinstance(each, TaskStaged | TaskPublished))
    advice.advise(sum(each.rows for each in written if each.sized))
    staged = _staged(messages)
    if staged:
        # Also without rows: recording that the batch is done costs one call.
        commit(options, _batch(staged), _stages(staged))


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    staged = _staged(messages)
    if _stages(staged):
        abort(options, _batch(staged), _stages(staged))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[TaskStaged]:
    """The messages of tasks that staged, by partition; a failed task has none."""
    return [message for message in messages if isinstance(message, TaskStaged)]


def _stages(staged: list[TaskStaged]) -> dict[str, list[Stage]]:
    """The stages at each edge, by partition."""
    found: dict[str, list[Stage]] = {}
    for message in staged:
        for name, sealed in message.stages.items():
            found.setdefault(name, []).append(sealed)
    return found


def _batch(staged: list[TaskStaged]) -> WriterBatch:
    batch = staged[0].batch
    assert all(message.batch == batch for message in staged), "tasks of one write disagree on it"
    return batch
