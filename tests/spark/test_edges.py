"""One query over two brokers with a real Spark: rows, settling, kills, an edge that goes."""

from collections import Counter
from contextlib import ExitStack

import pytest

import ackq_broker
from ackq.client import Admin
from ackq.spark import settle
from tests.spark.conftest import Kit
from tests.spark.ledger import ids, publish
from tests.spark.versions import needs_start

A, B = 0, 1


class Edges:
    """Two brokers with the queue `in`, whose dead letters go to `dead`."""

    def __init__(self, spark, folder, stack):
        self.spark = spark
        self.folder = folder
        self.brokers = [
            stack.enter_context(ackq_broker.embedded(folder / name / "data")) for name in "ab"
        ]
        self.admins = [Admin(each.endpoint) for each in self.brokers]
        for admin in self.admins:
            admin.declare_queue("dead")
            admin.declare_queue("in", dead_letter_queue="dead")

    @property
    def endpoint(self):
        return ",".join(each.endpoint for each in self.brokers)

    def publish(self, edge, names):
        publish(self.brokers[edge].endpoint, "in", names)

    def source(self, **options):
        given = {"endpoint": self.endpoint, "queue": "in", "session": "job", **options}
        return self.spark.readStream.format("ackq").options(**given).load()

    def accepted(self):
        """The accepted messages of each edge; nothing else is left there."""
        queues = [admin.queue("in") for admin in self.admins]
        assert [(each.ready, each.unacked, each.delayed) for each in queues] == [(0, 0, 0)] * 2
        return [each.accepted for each in queues]


@pytest.fixture
def edges(spark, tmp_path):
    with ExitStack() as stack:
        yield Edges(spark, tmp_path, stack)


@pytest.fixture
def run(spark, tmp_path):
    """Runs a query that keeps the message ids of each batch by edge, until all is accepted."""
    kit = Kit(spark, None, None, tmp_path)

    def run_query(rows, act=lambda _rows, _batch_id: None):
        kept = Counter()

        def each(rows, batch_id):
            kept.update((row.edge, row.message_id) for row in rows.collect())
            act(rows, batch_id)

        kit.finish(kit.each(rows, "cp", each))
        return kept

    return run_query


@needs_start
def test_all_edges_are_read_once(edges, run):
    """S12: a query reads the messages of each edge once, over restarts, and accepts them there."""
    names = ids(1, 30)
    edges.publish(A, names[:20])
    edges.publish(B, names[20:])
    found = run(edges.source(maxMessagesPerTrigger=10))
    a, b = (each.endpoint for each in edges.brokers)
    assert found == Counter([(a, name) for name in names[:20]] + [(b, name) for name in names[20:]])
    assert edges.accepted() == [20, 10]
    edges.publish(B, ids(31, 33))
    assert run(edges.source()) == Counter((b, name) for name in ids(31, 33))
    assert edges.accepted() == [20, 13]


@needs_start
def test_rows_are_settled_at_their_edges(edges, run):
    """S12, K8: equal tags of two edges are two messages, and each is settled at its own."""
    edges.publish(A, ids(1, 4))
    edges.publish(B, ids(5, 8))

    def reject(rows, _batch_id):
        bad = rows.filter("message_id in ('m-0002', 'm-0003', 'm-0005')")
        settle(bad, "rejected", reason="bad", endpoint=edges.endpoint)

    run(edges.source(), reject)
    assert edges.accepted() == [2, 3]
    assert [each.queue("dead").ready for each in edges.admins] == [2, 1]


@needs_start
def test_a_killed_edge_is_skipped_and_comes_back(edges, run):
    """S12: with onEdgeAway=skip the other edge is read; what the killed one holds comes later."""
    edges.publish(A, ids(1, 5))
    edges.publish(B, ids(6, 10))
    edges.brokers[B].kill()
    a, b = (each.endpoint for each in edges.brokers)
    assert run(edges.source(onEdgeAway="skip")) == Counter((a, name) for name in ids(1, 5))
    edges.brokers[B].start()
    edges.publish(A, ids(11, 12))
    expected = [(b, name) for name in ids(6, 10)] + [(a, name) for name in ids(11, 12)]
    assert run(edges.source(onEdgeAway="skip")) == Counter(expected)
    assert edges.accepted() == [7, 5]


@needs_start
def test_an_edge_is_added_and_removed(edges, run):
    """S12: a query of one broker goes on with two, and with the other alone when one is empty."""
    edges.publish(A, ids(1, 5))
    edges.publish(B, ids(6, 10))
    a, b = (each.endpoint for each in edges.brokers)
    schema = "message_id string, edge string"
    alone = edges.spark.readStream.format("ackq").schema(schema)
    options = {"queue": "in", "session": "job"}
    assert run(alone.options(endpoint=a, **options).load()).keys() == {
        (a, name) for name in ids(1, 5)
    }
    assert run(edges.source()) == Counter((b, name) for name in ids(6, 10))
    edges.publish(A, ids(11, 11))
    with pytest.raises(Exception, match=f"Edge {a} .* has 1 messages"):
        run(alone.options(endpoint=b, **options).load())
    assert run(edges.source()) == Counter([(a, "m-0011")])
    edges.publish(B, ids(12, 12))
    assert run(alone.options(endpoint=b, **options).load()) == Counter([(b, "m-0012")])
    assert edges.accepted() == [6, 6]
