"""The settling write's calls to the broker, with a client that only records them."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ackq import errors
from ackq.client import OutcomeStage
from ackq.spark.options import options
from ackq.spark.settlement.writer import AckqSettlementWriter, TaskSettled
from ackq.spark.task import Task
from ackq.v1 import sessions_pb2 as pb

SCHEMA = StructType([StructField("delivery_tag", LongType())])
IN_FOREACH = Task("query", "run", 4, "13", "partition 1 attempt 0 task 9")
HIDDEN = Task("query", "", 4, "13", "partition 1 attempt 0 task 9", "enrich")
OWNER = pb.LeaseOwner(query_id="query", run_id="run", batch_id=4)
ONE, TWO = OutcomeStage(b"1" * 16, 3), OutcomeStage(b"2" * 16, 1)
SETTLED, NOTHING = TaskSettled(OWNER, {"b:1": ONE}), TaskSettled(OWNER, {})


class FakeClient:
    def __init__(self):
        self.did = []
        self.retry_ms = []
        self.fails_with = None
        self.accepted_before = False
        self.answers = ()

    def __call__(self, connection):
        self.retry_ms.append(connection.retry_ms)
        self.endpoint = connection.endpoint
        return self

    def stage_outcomes(self, owner, stage_id, label, groups, *, discard):
        found = [[list(group.tags) for group in frame] for frame in groups]
        self._do("stage", owner, label, found, discard)
        return OutcomeStage(stage_id, sum(len(tags) for frame in found for tags in frame))

    def commit_outcomes(self, owner, stages):
        self._do("commit", owner, list(stages))
        return pb.CommitOutcomesResponse(tags=4, accepted_before=self.accepted_before)

    def abort_outcomes(self, stage_ids):
        self._do("abort", stage_ids)

    def _do(self, *what):
        if self.fails_with is not None and self.endpoint not in self.answers:
            raise self.fails_with
        self.did.append(what if self.endpoint == "b:1" else (self.endpoint, *what))


@pytest.fixture
def client():
    return FakeClient()


@pytest.fixture
def writer(client):
    def make(**given):
        parsed = options.settle({"endpoint": "b:1", "settle": "rejected", **given})
        return AckqSettlementWriter(parsed, SCHEMA, client)

    return make


def rows(*batches):
    return iter([pa.record_batch({"delivery_tag": pa.array(b, pa.int64())}) for b in batches])


def test_task_stages_for_its_query(client, runs_as, writer):
    """S6: a task stages its rows under a random id, for the lease that its query's run reads."""
    runs_as(IN_FOREACH)
    assert writer().write(rows([])) == NOTHING
    assert client.did == []
    messages = [writer().write(rows([1, 2], [3])) for _ in range(2)]
    assert client.did == [("stage", OWNER, IN_FOREACH.label, [[[1, 2, 3]]], False)] * 2
    stages = [message.stages["b:1"] for message in messages]
    assert [(each.tags, len(each.stage_id)) for each in stages] == [(3, 16)] * 2
    assert stages[0] != stages[1]
    assert pickle.loads(pickle.dumps(messages)) == messages  # noqa: S301


def test_a_run_that_is_hidden(client, runs_as, writer):
    """S6: a write whose job group hides the query's run is refused, also with a session."""
    runs_as(HIDDEN)
    said = r"job group 'enrich'.* and settle needs the run"
    for given in ({}, {"session": "s"}):
        with pytest.raises(errors.InvalidArgumentError, match=said):
            writer(**given).write(rows([1]))
    assert client.did == []


def test_a_batch_that_was_accepted_before(client, writer, caplog):
    """K2: logged as INFO in a query, as WARNING if only the session is named."""
    caplog.set_level("INFO")
    client.accepted_before = True
    for owner in (OWNER, pb.LeaseOwner(session="s")):
        writer().commit([TaskSettled(owner, {"b:1": ONE})])
    assert [each.levelname for each in caplog.records] == ["INFO", "WARNING"]
    assert caplog.text.count("accepted before") == 2


def test_commit_names_the_winners_in_order(client, writer):
    """S6: one commit names the stages of all tasks in order; without rows it replaces others."""
    writer().commit([SETTLED, NOTHING, TaskSettled(OWNER, {"b:1": TWO})])
    writer().commit([NOTHING, NOTHING])
    assert client.did == [("commit", OWNER, [ONE, TWO]), ("commit", OWNER, [])]


def test_abort_asks_once(client, writer, caplog):
    """S6: an abort drops its own stages, and does not wait for an absent broker."""
    for messages in ([None, SETTLED], [], [None], [NOTHING]):
        writer().abort(messages)
    assert client.did == [("abort", [ONE.stage_id])]
    assert client.retry_ms == [0]
    client.fails_with = errors.BrokerUnavailableError("gone", cause="refused")
    writer().abort([None, SETTLED])
    assert "1 stages of outcomes were not dropped" in caplog.text


def test_rows_are_settled_at_their_edges(client, runs_as):
    """S12: a task stages at each edge of its rows, and the commit goes to all edges."""
    runs_as(IN_FOREACH)
    by_edge = StructType([*SCHEMA, StructField("edge", StringType())])
    parsed = options.settle({"endpoint": "b:1,c:1,d:1", "settle": "rejected"})
    several = AckqSettlementWriter(parsed, by_edge, client)
    batch = pa.record_batch({"delivery_tag": [1, 1, 2], "edge": ["c:1", "b:1", "c:1"]})
    message = several.write(iter([batch]))
    assert client.did == [
        ("stage", OWNER, IN_FOREACH.label, [[[1]]], False),
        ("c:1", "stage", OWNER, IN_FOREACH.label, [[[1, 2]]], False),
    ]
    client.did.clear()
    # An edge without rows in the batch knows no lease for it; one with rows must.
    client.fails_with, client.answers = errors.SessionNotFoundError("none"), ("b:1", "c:1")
    several.commit([message])
    assert [each[0] for each in client.did] == ["commit", "c:1"]
    client.answers = ("b:1",)
    with pytest.raises(errors.SessionNotFoundError):
        several.commit([message])
    for edge, error in (("e:1", errors.InvalidArgumentError), (None, errors.SchemaError)):
        wrong = pa.record_batch({"delivery_tag": [1], "edge": pa.array([edge], pa.string())})
        with pytest.raises(error, match="Column 'edge' is"):
            several.write(iter([wrong]))
    no_text = pa.StringArray.from_buffers(1, *pa.array([b"\xff"]).buffers()[1:])
    with pytest.raises(errors.InvalidArgumentError, match=r"'edge' has text .* not UTF-8"):
        several.write(iter([pa.record_batch({"delivery_tag": [1], "edge": no_text})]))
    with pytest.raises(errors.SchemaError, match="'edge' is missing"):
        AckqSettlementWriter(parsed, SCHEMA, client)
    one = options.settle({"endpoint": "b:1", "settle": "rejected"})
    with pytest.raises(errors.InvalidArgumentError, match=r"'edge' is 'c:1', .* endpoints b:1\."):
        AckqSettlementWriter(one, by_edge, client).write(iter([batch]))
