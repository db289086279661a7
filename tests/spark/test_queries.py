"""Queries of all shapes with a real Spark and broker: every message published arrives once.

Replayed batches, retried tasks, complete mode and `txnVersion` used twice are in test_source,
test_sink and test_errors; Delta is in tests/e2e, speculation in test_clusters.
"""

from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.ledger import CARRIED, TIMED, arrived, counted, ids, once, publish

IDS = ids(0, 9)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def column(rows, name="message_id"):
    return [row[name] for row in rows.select(name).collect()]


def write(kit, rows, queue, version):
    """A batch write that may be repeated."""
    rows.write.format("ackq").mode("append").options(
        endpoint=kit.broker.endpoint, queue=queue, txnAppId=kit.app, txnVersion=version
    ).save()


# --- foreachBatch ---


def test_every_action_of_a_batch_sees_the_same_rows(kit):
    """S2: counting, collecting, caching and two writes of one batch agree, row by row."""
    kit.declare("in", "first", "second")
    publish(kit.broker.endpoint, "in", IDS)
    seen = []

    def act(rows, batch_id):
        seen.append((rows.count(), column(rows), column(rows.filter("message_id >= 'm-0005'"))))
        write(kit, rows, "first", batch_id)
        kept = rows.persist()
        write(kit, kept, "second", batch_id)
        kept.unpersist()

    rows = kit.source("in", CARRIED, maxMessagesPerTrigger=6, minPartitions=2)
    kit.run(kit.each(rows, "cp", act))
    assert seen == [(0, [], []), (6, IDS[:6], IDS[5:6]), (4, IDS[6:], IDS[6:])]
    assert arrived(kit.admin, "first") == arrived(kit.admin, "second") == IDS
    assert kit.depth("in") == (0, 0, 0)


# --- several sources ---


def test_union_of_two_queues(kit):
    """K1: two sources in one query keep their own sessions, and both tails are acknowledged."""
    kit.declare("left", "right", "out")
    left, right = ids(0, 6, "left"), ids(0, 2, "right")
    publish(kit.broker.endpoint, "left", left)
    publish(kit.broker.endpoint, "right", right)
    rows = kit.source("left", CARRIED, session="l", maxMessagesPerTrigger=2).union(
        kit.source("right", CARRIED, session="r", maxMessagesPerTrigger=2)
    )
    query = kit.sink(rows, "cp", queue="out")
    kit.run(query)
    assert counted(kit.admin, "out") == once(left, right)
    assert [kit.depth(queue) for queue in ("left", "right")] == [(0, 0, 0)] * 2
    assert [kit.admin.session(name).floor_tag for name in ("l", "r")] == [7, 3]
    # One queue has more messages, the other is empty.
    more = ids(7, 9, "left")
    publish(kit.broker.endpoint, "left", more)
    kit.run(query)
    assert counted(kit.admin, "out") == once(left, right, more)
    assert [kit.depth(queue) for queue in ("left", "right")] == [(0, 0, 0)] * 2


def test_join_of_two_queues(kit):
    """K1, K3: a stream-stream join pairs every message once, over restarts and no-data batches."""
    kit.declare("orders", "payments", "out")

    def side(queue, key):
        rows = kit.source(queue, TIMED, maxMessagesPerTrigger=3)
        return rows.withWatermark("published_at", "1 hour").withColumnRenamed("message_id", key)

    def pay(names):
        publish(kit.broker.endpoint, "payments", names, published_at=NOON)

    publish(kit.broker.endpoint, "orders", IDS, published_at=NOON)
    pay(IDS[:4])
    orders, payments = side("orders", "id"), side("payments", "paid").drop("body")
    rows = orders.join(payments, F.expr("id = paid")).selectExpr("body", "id as message_id")
    query = kit.sink(rows, "cp", queue="out")
    kit.run(query)
    assert counted(kit.admin, "out") == once(IDS[:4])
    pay(IDS[4:])
    kit.run(query)
    assert counted(kit.admin, "out") == once(IDS)
    assert [kit.depth(queue) for queue in ("orders", "payments")] == [(0, 0, 0)] * 2


def test_union_of_a_source_with_itself(kit):
    """S1: each row comes twice and each batch is leased once: the tags are used up once."""
    kit.declare("in")
    publish(kit.broker.endpoint, "in", IDS)
    rows = kit.source("in", CARRIED, session="job", maxMessagesPerTrigger=6)
    seen = []

    def look(batch, _batch_id):
        seen.append((Counter(column(batch)), kit.depth("in")))

    other = rows.select(F.reverse("body").alias("body"), "message_id")
    kit.run(kit.each(rows.union(other), "cp", look))
    twice = [Counter(names * 2) for names in (IDS[:6], IDS[6:])]
    assert seen == list(zip(twice, [(4, 6, 0), (0, 4, 0)], strict=True))
    shown = kit.admin.session("job")
    assert (shown.floor_tag, shown.end_tag) == (10, 10)
    assert kit.depth("in") == (0, 0, 0)


# --- shuffles and state ---


# --- other partitions after a restart ---


def test_replay_with_other_partitions(kit):
    """K2: a batch that failed half-way has the same rows when it is split in another way."""
    kit.declare("in")
    publish(kit.broker.endpoint, "in", IDS)
    runs = []

    def act(rows, batch_id):
        runs.append((batch_id, rows.rdd.getNumPartitions() if batch_id else 0, column(rows)))
        if len(runs) == 2:
            raise RuntimeError("crash in mid-batch")

    def query(partitions):
        rows = kit.source("in", CARRIED, maxMessagesPerTrigger=6, minPartitions=partitions)
        return kit.each(rows, "cp", act)

    with pytest.raises(StreamingQueryException, match="crash in mid-batch"):
        kit.run(query(1))
    kit.run(query(4))
    assert runs == [(0, 0, []), (1, 1, IDS[:6]), (1, 4, IDS[:6]), (2, 4, IDS[6:])]
    assert kit.depth("in") == (0, 0, 0)


def test_committed_batch_with_other_partitions_is_written_once(kit):
    """K3: a batch that was committed in one split is recognised when it is repeated in another."""
    kit.declare("in", "out")
    publish(kit.broker.endpoint, "in", IDS)

    def query(read, written):
        rows = kit.source("in", CARRIED, minPartitions=read).repartition(written)
        return kit.sink(rows, "cp", queue="out")

    kit.run(query(1, 3))
    kit.forget("cp", "commits", 1)
    more = ids(10, 14)
    publish(kit.broker.endpoint, "in", more)
    kit.run(query(4, 2))
    assert counted(kit.admin, "out") == once(IDS, more)
    assert (kit.depth("in"), kit.depth("out")) == ((0, 0, 0), (15, 0, 0))


# --- browse ---


def test_browse_with_filters(kit):
    """Q5: filters on any column, pushed down or not, leave the rows that they name."""
    kit.declare("in")
    publish(kit.broker.endpoint, "in", IDS, published_at=NOON)
    found = kit.browse("in", "position bigint, leased boolean, message_id string")
    positions = dict(zip(IDS, column(found, "position"), strict=True))
    assert column(found.filter("message_id = 'm-0003'")) == IDS[3:4]
    assert column(found.filter(F.col("position") > positions[IDS[6]])) == IDS[7:]
    assert found.filter("leased").count() == 0
    whole = kit.browse("in", minPartitions=3)
    assert column(whole.filter(whole.published_at == F.lit(NOON)).orderBy("message_id")) == IDS
    assert whole.filter("redelivered or delivery_tag is not null").count() == 0
    kit.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = kit.browse("in", "message_id string, queue string")
        assert column(pushed.filter("message_id in ('m-0001', 'm-0002')")) == IDS[1:3]
    finally:
        kit.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert kit.depth("in") == (10, 0, 0)
