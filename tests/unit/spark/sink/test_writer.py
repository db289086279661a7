"""The sink's calls to the broker, with a client that only records them."""

import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ackq.client import Broker, Stage
from ackq.errors import BrokerUnavailableError, InvalidArgumentError
from ackq.spark import connections, task
from ackq.spark.options import options
from ackq.spark.options.table import Use
from ackq.spark.sink import stage, writer
from ackq.spark.sink.edges import home_of
from ackq.spark.sink.stage import WriterBatch
from ackq.spark.sink.writer import TaskPublished, TaskStaged
from ackq.spark.task import Task
from ackq.v1.publishing_pb2 import CommitBatchResponse, EdgeStages, PrepareBatchResponse

SCHEMA = StructType([StructField("body", BinaryType())])
BASE = {"endpoint": "b:1", "queue": "q"}
BROKER = Broker("b:1")
STREAMED = Task("query", "run", 4, "12", "partition 0 attempt 1 task 9")
HIDDEN = Task("query", "", 4, "12", "partition 0 attempt 1 task 9", "enrich")
BATCHED = Task("", "", 0, "12", "partition 0 attempt 0 task 3")
IN_FOREACH = Task("query", "run", 4, "13", "partition 0 attempt 0 task 3")
MICRO_BATCH = WriterBatch("query", 4, "run")
SEALED = Stage(b"s" * 16, 3, 30)
STAGED, NOTHING = TaskStaged(MICRO_BATCH, {"b:1": SEALED}), TaskStaged(MICRO_BATCH, {})
TXN = {"txnAppId": "app", "txnVersion": "7"}


class FakeClient:
    """Stands for `ackq.client`, and records the sink's calls in order."""

    def __init__(self):
        self.did = []
        self.fails_with = None
        self.committed = CommitBatchResponse()

    def StageWriter(self, broker, **fields):  # noqa: N802
        self.did.append(("open", broker, fields))
        return self

    Publisher = StageWriter

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.did.append("left")

    def wait_ready(self, broker, timeout_s):
        self.did.append(("ready", broker, timeout_s))

    def write(self, batch, *, exchange, routing_key):
        self.did.append(("rows", batch.num_rows, exchange, routing_key))

    publish_batch = write

    def seal(self):
        self.did.append("seal")
        return SEALED

    def flush(self):
        self.did.append("flush")

    def commit_batch(self, broker, **fields):
        self.did.append(("commit", broker, fields))
        return self.committed

    def abort_batch(self, broker, **fields):
        self.did.append(("abort", broker, fields))
        if self.fails_with is not None:
            raise self.fails_with


@pytest.fixture
def client(monkeypatch):
    fake = FakeClient()
    for module in (stage, connections):
        monkeypatch.setattr(module, "client", fake)
    return fake


def rows(*counts):
    return iter([pa.record_batch({"body": pa.array([b"x"] * n, pa.binary())}) for n in counts])


def stream_writer(**given):
    return writer.stream_writer(options.sink({**BASE, **given}, Use.SINK), SCHEMA)


def batch_writer(**given):
    return writer.batch_writer(options.sink({**BASE, **given}, Use.BATCH), SCHEMA)


def test_task_stages_and_seals(client, runs_as):
    """K3: a task's rows go to one stage of (query, batch), sealed before its id is returned."""
    runs_as(STREAMED)
    assert stream_writer().write(rows()) == NOTHING
    assert client.did == []
    message = stream_writer().write(rows(2, 0, 1))
    assert message == STAGED
    batch = {"writer": "query", "batch_id": 4, "run_id": "run", "label": STREAMED.label}
    unrouted = {"mandatory": True, "unroutable_queue": ""}
    opened = [("ready", BROKER, 60), ("open", BROKER, {**batch, **unrouted, "single": False})]
    staged = [("rows", 2, "", "q"), ("rows", 1, "", "q"), "seal", "left"]
    assert client.did == opened + staged
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301


def test_abort_does_not_wait_for_a_broker_that_is_gone(client, caplog):
    """K3: it drops only the stages of this attempt, is not retried, and hides no other failure."""
    stream_writer().abort([None, STAGED], 4)
    assert caplog.text == ""
    client.fails_with = BrokerUnavailableError("gone", cause="refused")
    stream_writer().abort([None, STAGED], 4)
    for what, broker, fields in client.did:
        assert (what, broker.retry_ms, fields["stage_ids"]) == ("abort", 0, [SEALED.stage_id])
    assert len(client.did) == 2
    assert "1 stages of batch 4 were not dropped" in caplog.text
    assert "until the batch runs again, or 7 days have passed" in caplog.text
    assert caplog.text.rstrip().endswith("ackq batch drop 'query' 4")
    client.did.clear()
    for messages in ([None], [], [NOTHING], [TaskPublished(3)]):
        stream_writer().abort(messages, 4)
    assert client.did == []


def test_at_least_once_waits_for_every_confirm(client, runs_as):
    """K3: at-least-once tasks return when all publishes are confirmed; the commit is empty."""
    runs_as(STREAMED)
    writer = stream_writer(guarantee="at-least-once", mandatory="false")
    message = writer.write(rows(2, 1))
    assert message == TaskPublished(3)
    assert client.did[1:] == [("rows", 2, "", "q"), ("rows", 1, "", "q"), "flush", "left"]
    assert client.did[0][2]["mandatory"] is False
    writer.commit([message], 4)
    assert len(client.did) == 5


def test_only_a_batch_write_without_a_transaction_is_single(client, runs_as):
    """K3, K12: no run repeats such a write, so the broker need not keep stages or writer."""
    runs_as(BATCHED)
    for given in ({}, TXN):
        batch_writer(**given).commit([batch_writer(**given).write(rows(1))])
    stream_writer().commit([STAGED], 4)
    for step, single in (("open", [True, False]), ("commit", [True, False, False])):
        assert [each[2]["single"] for each in client.did if each[0] == step] == single


def test_a_commit_names_its_target(client, runs_as):
    """K3, K12: target, its stages in order; the writer of a transaction is (txnAppId, target).

    The broker compares the target with the one committed before, unless told to keep.
    """
    runs_as(IN_FOREACH)
    other = Stage(b"t" * 16, 1, 10)
    stream_writer().commit([STAGED, NOTHING, TaskStaged(MICRO_BATCH, {"b:1": other})], 4)
    stream_writer(changedBatch="keep").commit([NOTHING], 4)
    message = batch_writer(**TXN).write(rows(1))
    assert message.batch == WriterBatch("txn/app/queue/q", 7, "run", "13")
    batch_writer(**TXN).commit([message])
    commits = [each[2] for each in client.did if each[0] == "commit"]
    names = ("writer", "batch_id", "run_id", "target", "keep_changed", "execution_id")
    assert [(*(each[name] for name in names), *each["stages"]) for each in commits] == [
        ("query", 4, "run", "queue/q", False, "", SEALED, other),
        ("query", 4, "run", "queue/q", True, ""),
        ("txn/app/queue/q", 7, "run", "queue/q", False, "13", SEALED),
    ]


@pytest.mark.parametrize("changed", ["fail", "keep"])
def test_a_batch_is_finished_without_a_lost_edge(client, caplog, changed):
    """K14: one that is no longer named and does not answer, with changedBatch=keep."""
    home = home_of("query", "a:1,b:1")
    lost = "a:1" if home == "b:1" else "b:1"
    others = [EdgeStages(endpoint=lost)]

    def commit_batch(broker, **_):
        if broker.endpoint == lost:
            raise BrokerUnavailableError("No broker answers.")
        return CommitBatchResponse(edges="a:1,b:1", others=others)

    client.commit_batch = commit_batch
    client.prepare_batch = lambda _broker, **_: PrepareBatchResponse(committed=True)
    commit = partial(stream_writer(endpoint=home, changedBatch=changed).commit, [NOTHING], 4)
    if changed == "keep":
        commit()
        assert f"batch 4 goes on without its rows at edge {lost}" in caplog.text
    else:
        with pytest.raises(BrokerUnavailableError):
            commit()


@pytest.mark.usefixtures("client")
def test_no_two_transactions_share_a_writer(runs_as):
    """K12: each (txnAppId, target) has its own writer name, or a write would be skipped."""
    runs_as(BATCHED)
    exchanges = ("x", None), ("x", ""), ("x", "k"), ("x/k", None), ("x/k", "l"), ("x", "k/l")
    given = [{"exchange": name, "routingKey": key} for name, key in exchanges]
    given += [{"queue": "b/queue/c"}, {"txnAppId": "a/queue/b", "queue": "c"}, {"queue": "x"}]
    writers = set()
    for each in given:
        named = {"endpoint": "b:1", "txnAppId": "a", "txnVersion": "1", **each}
        kept = {key: value for key, value in named.items() if value is not None}
        parsed = options.sink(kept, Use.BATCH)
        writers.add(writer.batch_writer(parsed, SCHEMA).write(rows(1)).batch.writer)
    assert len(writers) == len(given)


def test_a_run_that_is_hidden(client, runs_as):
    """K12: a guarded write needs the run of its query, a write without txnAppId does not."""
    for group, said in (("enrich", r"job group 'enrich'.* setJobDescription or"), ("", "cleared")):
        runs_as(HIDDEN._replace(job_group=group))
        with pytest.raises(InvalidArgumentError, match=said):
            batch_writer(**TXN).write(rows())
    assert client.did == []
    assert batch_writer().write(rows(1)).stages == {"b:1": SEALED}


RUN = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("query_id", "job_group", "run_id"),
    [
        ("query", RUN, RUN),
        ("query", "enrich", ""),
        ("query", RUN.replace("-", "").upper(), ""),
        (None, RUN, ""),
    ],
)
def test_a_task_knows_its_run(monkeypatch, query_id, job_group, run_id):
    """K12, S6: the job group is the run of a query unless another group was set."""
    said = {"sql.streaming.queryId": query_id, "spark.jobGroup.id": job_group}
    context = Mock(**{"getLocalProperty": said.get, "taskAttemptId.return_value": 3})
    context.partitionId.return_value = context.attemptNumber.return_value = 0
    monkeypatch.setattr(task, "TaskContext", SimpleNamespace(get=lambda: context))
    assert task.current() == Task(query_id or "", run_id, 0, "", BATCHED.label, job_group or "")


TRANSACTION = WriterBatch("txn/app/queue/q", 7, "write")


@pytest.mark.parametrize(
    ("given", "batch", "before", "told"),
    [
        ({}, MICRO_BATCH, 3, ""),
        ({}, MICRO_BATCH, 2, "with 2 rows. It was run again with 3 rows for 'queue/q', which"),
        (TXN, TRANSACTION, 3, "3 rows were not written again: txnVersion 7 of"),
        (TXN, replace(TRANSACTION, execution_id="9"), 3, ""),
        (TXN, replace(TRANSACTION, execution_id="9"), 4, "with 4 rows. It was run again"),
    ],
)
def test_a_repetition_that_may_be_none_is_told(client, caplog, given, batch, before, told):
    """K3, K12: warns if the rows differ or the write may be a new one, not a repetition."""
    client.committed = CommitBatchResponse(rows=before, repeated=True)
    batch_writer(**given).commit([TaskStaged(batch, {"b:1": SEALED}), TaskStaged(batch, {})])
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)
    caplog.clear()
    client.committed.repeated = False
    batch_writer(**given).commit([TaskStaged(batch, {"b:1": SEALED})])
    assert caplog.text == ""
