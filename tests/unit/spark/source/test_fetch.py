"""The fetch of a Spark task."""

from ackq.spark.source.fetch import LeaseRange, fetch
from ackq.spark.task import Task
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import columns


def test_fetch_names_its_reader(session):
    """S2, K7, A4: a task fetches its range and columns only, with its key and its batch id."""
    task = Task("query", "run", 4, "", "partition 0 attempt 0 task 9")
    session.batches = [object()]
    part = LeaseRange("s", "i1", 2, 10, 14, b"key")
    assert list(fetch(session, part, ["body", "delivery_tag"], task)) == session.batches
    ((request, names),) = session.asked
    assert names == ["body", "delivery_tag"]
    wanted = pb.FetchRequest(session="s", incarnation="i1", epoch=2, after_tag=10, last_tag=14)
    wanted.columns, wanted.label, wanted.key = columns.bits(names), task.label, b"key"
    wanted.query_id, wanted.run_id, wanted.batch_id = "query", "run", 4
    assert request == wanted
