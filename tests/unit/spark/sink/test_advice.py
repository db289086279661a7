"""Advice of a write under Spark's default byte bound of a batch, logged once."""

from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ackq.client import Stage
from ackq.spark.options import options
from ackq.spark.options.table import Use
from ackq.spark.sink import advice, stage, writer
from ackq.spark.sink.stage import WriterBatch
from ackq.spark.sink.writer import TaskPublished, TaskStaged
from ackq.v1.publishing_pb2 import CommitBatchResponse

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
SCHEMA_OF_A_BODY = StructType([StructField("body", BinaryType())])
BATCH = WriterBatch("query", 4, "run")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    advice._advise_once.cache_clear()
    fake = SimpleNamespace(commit_batch=lambda *_args, **_fields: CommitBatchResponse())
    monkeypatch.setattr(stage, "client", fake)


def test_a_task_knows_whether_its_rows_are_sized(monkeypatch):
    """Spark passes to a task the session's settings, but no defaults."""
    for said, sized in (({}, True), ({BYTES: "2147483647"}, False)):
        context = SimpleNamespace(getLocalProperty=said.get)
        monkeypatch.setattr(advice, "TaskContext", SimpleNamespace(get=lambda now=context: now))
        assert advice.sizes_every_row() is sized


def staged(rows, *, sized):
    return TaskStaged(BATCH, {"b:1": Stage(b"1" * 16, rows, 1)}, sized)


@pytest.mark.parametrize(
    ("messages", "times"),
    [
        ([staged(6_000, sized=True)] * 2, 1),
        ([TaskPublished(6_000, True), TaskPublished(4_000, True), None], 1),
        ([staged(60_000, sized=False), TaskPublished(9_999, True)], 0),
    ],
)
def test_the_remedy_is_told_once(caplog, messages, times):
    """The driver logs the advice once, for many rows, however many batches follow."""
    parsed = options.sink({"endpoint": "b:1", "queue": "q"}, Use.SINK)
    sink = writer.stream_writer(parsed, SCHEMA_OF_A_BODY)
    for batch_id in (4, 5):
        sink.commit(messages, batch_id)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == times
    assert all("max_message_bytes" in each and f"{BYTES} to 2147483647" in each for each in told)
