"""The sink with a real Spark and broker: which rows become visible, when, and how often."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException

from tests.spark.ledger import N
from tests.spark.versions import since_start

# mapInArrow looks at pandas, which it does not use.
WITHOUT_PANDAS = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")


def first_attempt_fails(batches):
    """Passes rows on, then fails the first attempt of partition 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    yield from batches
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        raise RuntimeError("this attempt fails")


def first_attempts_fail(batches):
    """Fails the first attempt of every partition before its rows."""
    from pyspark import TaskContext

    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("first attempts fail")
    yield from batches


def always_fails(batches):
    """Fails every attempt after its rows; the opening batch has none."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows:
        raise RuntimeError("every attempt fails")


def test_replayed_batch_is_not_written_twice(kit):
    """K3: a batch whose last commit entry is lost runs again, and the target is unchanged."""
    kit.fill("in", "out")
    rows = kit.source("in", "body binary", **since_start(maxMessagesPerTrigger=5))
    query = kit.sink(rows, "cp", queue="out").trigger(once=True)
    kit.run(query)
    assert kit.bodies("out") == N
    kit.forget("cp", "commits", 0)
    kit.run(query)
    assert kit.bodies("out") == N
    assert kit.depth("out") == (10, 0, 0)


@WITHOUT_PANDAS
@pytest.mark.parametrize("fails", [first_attempt_fails, first_attempts_fail])
def test_failing_task_writes_once(kit, fails):
    """K2, K3: a task that is tried again writes its rows once, in the order of the tasks."""
    kit.fill("in", "out")
    rows = kit.source("in", "body binary", minPartitions=2)
    kit.finish(kit.sink(rows.mapInArrow(fails, "body binary"), "cp", queue="out"))
    assert kit.bodies("out") == N
    assert (kit.depth("in"), kit.depth("out")) == ((0, 0, 0), (10, 0, 0))


@WITHOUT_PANDAS
def test_failed_batch_leaves_nothing_and_comes_again(kit):
    """K3: an aborted batch is not visible, keeps no room, and is not closed for its next run."""
    kit.fill("in", "out")
    rows = kit.source("in", "body binary", minPartitions=2)
    with pytest.raises(StreamingQueryException, match="every attempt fails"):
        kit.run(kit.sink(rows.mapInArrow(always_fails, "body binary"), "cp", queue="out"))
    assert kit.bodies("out") == []
    assert kit.depth("in") == (0, 10, 0)
    kit.finish(kit.sink(rows, "cp", queue="out"))
    assert kit.bodies("out") == N
    assert (kit.depth("in"), kit.depth("out")) == ((0, 0, 0), (10, 0, 0))


def test_full_queue_fails_the_batch_with_the_reason(kit):
    """K4, P8: rows that the broker cannot take fail the query with its reason."""
    kit.declare("in")
    kit.declare("out", max_length=5)
    kit.publish("in", *N)
    rows = kit.source("in", "body binary")
    with pytest.raises(StreamingQueryException, match=r"ackq\.errors\.QueueFullError: .*'out'"):
        kit.run(kit.sink(rows, "cp", queue="out"))
    assert kit.bodies("out") == []


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_unroutable_row_fails_the_batch(kit, guarantee):
    """K4, P7: with mandatory on, a row that no queue takes fails the query with the reason."""
    kit.fill("in")
    rows = kit.source("in", "body binary")
    with pytest.raises(StreamingQueryException, match=r"ackq\.errors\.UnroutableError"):
        kit.run(kit.sink(rows, "cp", queue="nowhere", guarantee=guarantee))


def test_unroutable_rows_go_to_their_queue(kit):
    """P7: unroutable rows go to `unroutableQueue`, with the others' batch, and nothing fails."""
    kit.fill("in", "out", "lost")
    rows = kit.source("in", "body binary").selectExpr(
        "body", "if(body < binary('3'), 'nowhere', 'out') as queue"
    )
    kit.run(kit.sink(rows, "cp", unroutableQueue="lost"))
    assert (kit.bodies("out"), kit.bodies("lost")) == (N[3:], N[:3])
    found = kit.browse("lost", "routing_key string").distinct().collect()
    assert [row.routing_key for row in found] == ["nowhere"]


def test_unroutable_rows_may_be_dropped(kit):
    """P7: without mandatory, rows that no queue takes are dropped."""
    kit.fill("in")
    rows = kit.source("in", "body binary")
    kit.finish(kit.sink(rows, "cp", queue="nowhere", mandatory="false"))
    assert kit.depth("in") == (0, 0, 0)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_text_that_is_not_utf8_is_named(kit, fails, guarantee):
    """P8: bytes cast to a string column are refused if not UTF-8; a body may be any bytes."""
    kit.declare("in", "more", "out")
    for queue in ("in", "more"):
        kit.publish(queue, b"fine", b"\xff\xfe")
    rows = kit.source("in").selectExpr("body", "cast(body as string) as message_id")
    told = fails(kit.sink(rows, "cp", queue="out", guarantee=guarantee))
    assert "Column 'message_id' has text that is not UTF-8" in told
    bodies = kit.source("more").selectExpr("cast(body as string) as body")
    kit.run(kit.sink(bodies, "other", queue="out", guarantee=guarantee))
    assert sorted(kit.bodies("out")) == [b"fine", b"\xff\xfe"]


def test_forwarded_message_keeps_its_columns(kit):
    """A forwarded message keeps its columns; the option `queue` overrides the column."""
    from ackq.client import Publisher

    kit.declare("in", "out")
    with Publisher(kit.broker.endpoint) as publisher:
        publisher.publish(b"x", routing_key="in", message_id="m", headers={"a": "1"}).result()
        publisher.publish(b"y", routing_key="in").result()
    rows = kit.source("in").drop("delivery_tag", "redelivered", "delivery_count", "expires_at")
    kit.run(kit.sink(rows, "cp", queue="out"))
    found = kit.browse("out", "body binary, message_id string, headers map<string,string>")
    assert [tuple(row) for row in found.collect()] == [(b"x", "m", {"a": "1"}), (b"y", None, {})]


def test_batch_write_and_browse(kit):
    """Q5, K9: a batch write appends; a batch read sees every message and takes none."""
    kit.declare("out")
    rows = kit.spark.createDataFrame([("a",), ("b",)], "body string")
    rows.coalesce(1).write.format("ackq").mode("append").options(
        endpoint=kit.broker.endpoint, queue="out"
    ).save()
    for _ in range(2):
        found = kit.browse("out", "position long, body binary, leased boolean").collect()
        assert [(bytes(row.body), row.leased) for row in found] == [(b"a", False), (b"b", False)]
    full = kit.browse("out").collect()
    assert [(row.delivery_tag, row.queue, row.redelivered) for row in full] == [
        (None, "out", False)
    ] * 2
    assert kit.depth("out") == (2, 0, 0)
    second = kit.browse("out", "body binary", firstPosition=found[1].position).collect()
    assert [bytes(row.body) for row in second] == [b"b"]


def write(kit, rows, version, app=""):
    rows.write.format("ackq").mode("append").options(
        endpoint=kit.broker.endpoint, queue="out", txnAppId=f"{kit.app}{app}", txnVersion=version
    ).save()


def test_transactional_write_is_idempotent(kit):
    """K12: an equal version is a no-op, a lower one an error; each application has its own."""
    kit.declare("out")
    rows = kit.spark.createDataFrame([("a",)], "body string")
    write(kit, rows, 5)
    write(kit, rows, 5)
    assert kit.bodies("out") == [b"a"]
    with pytest.raises(PySparkException, match=r"ackq\.errors\.BatchOrderError"):
        write(kit, rows, 4)
    write(kit, rows, 6)
    write(kit, rows, 5, app="-other")
    assert kit.bodies("out") == [b"a"] * 3


def test_version_used_twice_is_refused_in_every_run(kit):
    """K12: a run after the refusal repeats the first write, is refused too, and loses nothing."""
    kit.fill("in", "out")
    apps = ["", ""]

    def twice(rows, batch_id):
        for app, where in zip(apps, ("<", ">="), strict=True):
            write(kit, rows.filter(f"body {where} binary('5')").select("body"), batch_id, app)

    query = kit.each(kit.source("in"), "cp", twice)
    # Where batch 0 has no rows, its version is used all the same.
    for _ in range(3):
        with pytest.raises(StreamingQueryException, match="has been used in this run"):
            kit.run(query)
    apps[1] = "-other"
    kit.finish(query)
    assert kit.bodies("out") == N
    assert kit.admin.queue("in").accepted == 10


def test_foreach_batch_write_survives_a_replay(kit):
    """K12: a foreachBatch write under its batch id is not doubled when the batch runs again.

    A job description and a job tag leave the run of its query visible.
    """
    kit.fill("in", "out")

    def forward(rows, batch_id):
        kit.spark.sparkContext.setJobDescription("enrich orders")
        kit.spark.sparkContext.addJobTag("enrich")
        write(kit, rows.select("body"), batch_id)

    query = kit.each(kit.source("in"), "cp", forward, once=True)
    kit.run(query)
    kit.forget("cp", "commits", 0)
    kit.run(query)
    assert kit.bodies("out") == N


def test_copies_of_a_checkpoint(kit, fails):
    """K3: two queries of one id write in turn to two queues; a write that would be lost fails."""

    def comes(name, *lines):
        (kit.folder / "files" / name).write_text("".join(f"{line}\n" for line in lines))

    kit.declare("one", "two")
    (kit.folder / "files").mkdir()
    files = kit.spark.readStream.text(str(kit.folder / "files")).withColumnRenamed("value", "body")
    comes("1.txt", *range(5))
    kit.run(kit.sink(files, "cp", queue="one"))
    shutil.copytree(kit.folder / "cp", kit.folder / "copy")
    comes("2.txt", *range(5, 10))
    kit.run(kit.sink(files, "copy", queue="two"))
    told = fails(kit.sink(files, "cp", queue="one"))
    assert "Batch 1 of writer" in told
    assert "5 rows for queue/two by run" in told
    assert "5 rows for queue/one by run" in told
    assert "a checkpoint of its own" in told
    comes("3.txt", *range(10, 15))
    kit.run(kit.sink(files, "cp", queue="one", changedBatch="keep"))
    told = fails(kit.sink(files, "copy", queue="two"))
    assert "Batch 2 of writer" in told
    assert sorted(kit.bodies("two")) == N[5:]
    assert kit.depth("one") == (10, 0, 0)
