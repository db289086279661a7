"""Queries of two brokers with a real Spark: rows, settling, writes, kills, an edge that goes."""

from collections import Counter
from contextlib import ExitStack, suppress

import pyarrow as pa
import pytest

import ackq_broker
from ackq import client
from ackq.client import Admin
from ackq.spark import settle
from ackq.spark.options import options as parse
from ackq.spark.options.table import Use
from ackq.spark.sink import edges as edges_module
from ackq.spark.sink import stage
from ackq.spark.sink.rows import RoutedBatch
from ackq.spark.sink.stage import WriterBatch
from tests.spark.conftest import Kit, clear, soon_broker
from tests.spark.ledger import ids, publish

A, B = 0, 1


class Edges:
    """Two brokers with the queue `in`, whose dead letters go to `dead`."""

    def __init__(self, spark, brokers):
        self.spark = spark
        self.brokers = brokers
        self.admins = [Admin(each.endpoint) for each in self.brokers]
        for admin in self.admins:
            admin.declare_queue("dead")
            admin.declare_queue("in", dead_letter_queue="dead")
            admin.declare_queue("out")

    @property
    def endpoint(self):
        return ",".join(each.endpoint for each in self.brokers)

    def publish(self, edge, names):
        publish(self.brokers[edge].endpoint, "in", names)

    def source(self, **options):
        given = {"endpoint": self.endpoint, "queue": "in", "session": "job", **options}
        return self.spark.readStream.format("ackq").options(**given).load()

    def bodies(self, queue="out"):
        """The bodies in a queue of each edge, in order."""
        found = []
        for admin in self.admins:
            batches = admin.browse(queue, columns=["body"]) if admin.plan_browse(queue) else []
            found.append([body for batch in batches for body in batch.column(0).to_pylist()])
        return found

    def accepted(self):
        """The accepted messages of each edge; nothing else is left there."""
        queues = [admin.queue("in") for admin in self.admins]
        assert [(each.ready, each.unacked, each.delayed) for each in queues] == [(0, 0, 0)] * 2
        return [each.accepted for each in queues]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    with ExitStack() as stack:
        yield [stack.enter_context(soon_broker(tmp_path_factory.mktemp(name))) for name in "ab"]


@pytest.fixture
def edges(spark, brokers):
    made = Edges(spark, brokers)
    yield made
    for admin in made.admins:
        clear(admin)


@pytest.fixture
def forks(tmp_path):
    """Two brokers of the test's own, which start sooner, without Spark."""
    with ExitStack() as stack:
        both = [ackq_broker.embedded(tmp_path / name / "data") for name in "ab"]
        yield Edges(None, [stack.enter_context(each) for each in both])


@pytest.fixture
def run(spark, tmp_path):
    """Runs a query that keeps the message ids of each batch by edge, until all is accepted."""
    kit = Kit(spark, None, None, tmp_path)

    def run_query(rows, act=lambda _rows, _batch_id: None, checkpoint="cp"):
        kept = Counter()

        def each(rows, batch_id):
            kept.update((row.edge, row.message_id) for row in rows.collect())
            act(rows, batch_id)

        kit.finish(kit.each(rows, checkpoint, each))
        return kept

    return run_query


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


def test_a_new_checkpoint_reads_all_edges_again(edges, run):
    """S14, S12, K13: `startFrom` rewinds each edge at the opening, and not at later starts."""
    edges.publish(A, ids(1, 5))
    edges.publish(B, ids(6, 7))
    again = {"retain": "1h", "startFrom": "earliest"}
    found = run(edges.source(**again))
    assert len(found) == 7
    edges.publish(B, ids(8, 8))
    new = Counter([(edges.brokers[B].endpoint, "m-0008")])
    assert run(edges.source(**again), checkpoint="another") == found + new
    edges.publish(B, ids(8, 8))
    assert run(edges.source(**again), checkpoint="another") == new


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


def test_a_query_writes_to_all_edges_once(edges, spark, tmp_path):
    """K14: each row is on one edge, by its key and in order, also when batches run again."""
    names = ids(1, 60)
    edges.publish(A, names[:40])
    edges.publish(B, names[40:])
    kit = Kit(spark, edges.brokers[A], None, tmp_path)
    rows = edges.source(maxMessagesPerTrigger=20).selectExpr("body", "message_id")
    for _ in range(3):
        writer = rows.writeStream.format("ackq").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
        kit.finish(writer.options(endpoint=edges.endpoint, queue="out", shardBy="message_id"))
        last = max(int(each.name) for each in (tmp_path / "cp/commits").glob("[0-9]*"))
        kit.forget("cp", "commits", last)  # the next start runs the last batch again
    a, b = edges.bodies()
    bodies = [f"body of {name}".encode() for name in names]
    assert sorted(a + b) == bodies
    assert min(len(a), len(b)) > 10
    for found in (a, b):
        for source in (bodies[:40], bodies[40:]):
            assert [body for body in found if body in source] == sorted({*found} & {*source})
    assert edges.accepted() == [40, 20]


class DiedError(Exception):
    """The driver ends at this call."""


@pytest.mark.parametrize("step", range(6))
def test_a_write_is_finished_after_any_step(forks, monkeypatch, step):
    """K14: the driver ends and an edge is killed; another run, with other rows, goes on."""
    given = {"endpoint": forks.endpoint, "queue": "out"}
    options = parse.sink(given, Use.SINK)

    def rows(*counts):
        """Parts of rows, which go to the edges in turn."""
        for count in counts:
            batch = pa.record_batch({"body": pa.array([b"%d" % count] * count, pa.binary())})
            yield RoutedBatch(batch, "", "out")

    calls = []

    def counted(call):
        def counting(broker, **fields):
            if len(calls) == step:
                forks.brokers[A if step % 2 else B].kill()
                raise DiedError
            calls.append(broker.endpoint)
            return call(broker, **fields)

        return counting

    first = WriterBatch("query", 0, "run 1")
    staged = stage.stage(options, first, "task", rows(2, 6))
    monkeypatch.setattr(edges_module, "_each", lambda names, one: [one(each) for each in names])
    both = {name: getattr(client, name) for name in ("prepare_batch", "commit_batch")}
    for name, call in both.items():
        monkeypatch.setattr(client, name, counted(call))
    ended = suppress(DiedError) if step > 4 else pytest.raises(DiedError)
    with ended:
        stage.commit(options, first, {name: [each] for name, each in staged.items()})
    for name, call in both.items():
        monkeypatch.setattr(client, name, call)
    for broker in forks.brokers:
        broker.restart()
    second = WriterBatch("query", 0, "run 2")
    staged = stage.stage(options, second, "task", rows(3, 5))
    stage.commit(options, second, {name: [each] for name, each in staged.items()})
    counts = tuple(len(found) for found in forks.bodies())
    # Looks, prepare, commit, finish: from the commit on the first run's stages are the batch.
    assert sorted(counts) == ([2, 6] if step >= 4 else [3, 5])
    assert [admin.queue("out").staged for admin in forks.admins] == [0, 0]
