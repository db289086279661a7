"""The errors that users see in Spark's own exceptions: the cause and the remedy."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException

from tests.spark.ledger import N


@pytest.mark.parametrize(
    ("given", "nearest"), [("maxMessagePerTrigger", "maxMessagesPerTrigger"), ("path", "queue")]
)
def test_unknown_option_at_load(kit, given, nearest):
    """An unknown option fails load() itself and names the nearest; a path is one, too."""
    said = rf"no option '{given.lower()}'.*Did you mean '{nearest}'"
    with pytest.raises(PySparkException, match=said):
        kit.source("in", **{given: "5"})


def test_missing_queue(kit, kept, fails):
    """The error names a queue that does not exist."""
    text = fails(kit.each(kit.source("nowhere"), "cp", kept))
    assert "ackq.errors.QueueNotFoundError" in text
    assert "'nowhere'" in text


def test_no_broker(kit, kept, fails):
    """Without a broker the query gives up after its bound, naming endpoint and cause."""
    source = kit.spark.readStream.format("ackq").options(
        endpoint="127.0.0.1:1", queue="in", retryTimeout="300ms"
    )
    text = fails(kit.each(source.load(), "cp", kept))
    assert "ackq.errors.BrokerUnavailableError" in text
    assert "127.0.0.1:1" in text
    assert "0.3 s" in text


def test_row_without_body(kit, fails):
    """K4: a null body fails the batch with column and row; no row of it becomes visible."""
    kit.fill("in", "out")
    rows = kit.source("in").selectExpr("nullif(body, binary('3')) as body")
    text = fails(kit.sink(rows, "cp", queue="out"))
    assert "Column 'body' is null in 1 rows (the first is row 3" in text
    assert kit.bodies("out") == []


def test_complete_mode(kit, fails):
    """Complete mode is refused, as a result cannot replace a queue's content."""
    kit.declare("in", "out")
    rows = kit.source("in").groupBy("body").count().select("body")
    text = fails(kit.sink(rows, "cp", queue="out").outputMode("complete"))
    assert "output mode 'complete'" in text


def test_checkpoint_of_another_queue(kit, kept, fails):
    """S10: a checkpoint whose lease holds another queue's messages is refused with both names."""
    kit.fill("in", "other")

    def crash(_rows, batch_id):
        if batch_id:
            raise RuntimeError("crash")

    fails(kit.each(kit.source("in"), "cp", crash))
    kit.forget("cp", "offsets", 1)
    text = fails(kit.each(kit.source("other"), "cp", kept))
    assert "ackq.errors.CheckpointMismatchError" in text
    assert "'in'" in text


def test_finished_checkpoint_of_another_queue(kit, kept, fails):
    """S10: the same without a lease, or when the first step is to run a batch again."""
    kit.fill("in", "other")
    kit.run(kit.each(kit.source("in"), "cp", kept))
    query = kit.each(kit.source("other"), "cp", kept)
    assert "of queue 'in'" in fails(query)
    kit.forget("cp", "commits", 1)
    assert "of queue 'in'" in fails(query)
    kit.publish("other", b"1")
    kit.run(kit.each(kit.source("in"), "cp", kept))
    assert kept.bodies == N * 2


def test_queues_of_a_query_change(kit, kept):
    """S10: a query changes from one queue to another by naming both for a while."""
    kit.declare("in", "other")
    kit.publish("in", b"1")
    kit.run(kit.each(kit.source("in"), "cp", kept))
    kit.publish("other", b"2")
    reader = kit.spark.readStream.format("ackq").option("endpoint", kit.broker.endpoint)
    kit.run(kit.each(reader.option("queues", "in,other").load(), "cp", kept))
    kit.publish("other", b"3")
    kit.run(kit.each(kit.source("other"), "cp", kept))
    assert kept.bodies == [b"1", b"2", b"3"]


def test_copied_checkpoint(kit, kept, fails):
    """S4: of a checkpoint and its copy one goes on, the other is refused; no row comes twice."""
    kit.declare("in")
    kit.publish("in", *N[:5])
    kit.run(kit.each(kit.source("in"), "cp", kept))
    shutil.copytree(kit.folder / "cp", kit.folder / "copy")
    kit.publish("in", *N[5:])
    kit.run(kit.each(kit.source("in"), "copy", kept))
    assert "ackq.errors.CheckpointMismatchError" in fails(kit.each(kit.source("in"), "cp", kept))
    assert kept.bodies == N
    kit.publish("in", b"more")
    kit.run(kit.each(kit.source("in"), "copy", kept))
    assert kept.bodies == [*N, b"more"]


def test_lost_session_reopens_when_asked(kit, kept):
    """With failOnDataLoss off, a query whose session is lost goes on in a new one."""
    kit.declare("in")
    kit.publish("in", b"1")
    kit.run(kit.each(kit.source("in", session="job"), "cp", kept))
    kit.admin.release_session("job", fence=True)
    kit.publish("in", b"2")
    kit.run(kit.each(kit.source("in", session="job", failOnDataLoss="false"), "cp", kept))
    assert kept.bodies == [b"1", b"2"]
    assert kit.depth("in") == (0, 0, 0)


def test_fenced_query_stops(kit, kept):
    """S3: a query whose session is fenced while it runs ends with the reason."""
    kit.declare("in")
    rows = kit.source("in", session="job")
    with kit.running(kit.each(rows, "cp", kept, processingTime="0 seconds")) as query:
        kit.publish("in", *N)
        query.processAllAvailable()
        kit.admin.release_session("job", fence=True)
        with pytest.raises(StreamingQueryException, match=r"ackq\.errors.*'job'"):
            query.awaitTermination(200)


def test_async_progress_tracking(kit, fails):
    """K11: a query whose checkpoint lags is refused one batch late, and loses nothing."""
    kit.fill("in")
    writer = (
        kit.source("in", maxMessagesPerTrigger=2)
        .writeStream.format("noop")
        .option("checkpointLocation", str(kit.folder / "cp"))
        .option("asyncProgressTrackingEnabled", "true")
        .trigger(processingTime="0 seconds")
    )
    text = fails(writer)
    assert "asyncProgressTrackingEnabled" in text
    ready, unacked, _ = kit.depth("in")
    assert ready + unacked == 10


@pytest.mark.parametrize(
    ("trigger", "sink", "mode", "part"),
    [
        ({"continuous": "1 second"}, "noop", "append", "continuous processing"),
        # Spark looks at the sink first: this one is on its list, and the source is not.
        ({"realTime": "5 minutes"}, "console", "update", "REAL_TIME_MODE.INPUT_STREAM_NOT_SUPP"),
        ({"realTime": "5 minutes"}, "ackq", "update", "REAL_TIME_MODE.OPERATOR_OR_SINK_NOT"),
    ],
)
def test_triggers_without_a_replay(kit, trigger, sink, mode, part):
    """K5: continuous and real-time mode, which cannot run a batch again, are refused at start."""
    kit.fill("in", "out")
    writer = kit.source("in").writeStream.format(sink).outputMode(mode).trigger(**trigger)
    if sink == "ackq":
        writer = writer.options(endpoint=kit.broker.endpoint, queue="out")
    with pytest.raises(PySparkException, match=part):
        kit.run(writer.option("checkpointLocation", str(kit.folder / "cp")))
    assert kit.depth("in") == (10, 0, 0)


@pytest.fixture
def crashed(kit, fails):
    """A query on the session `job` that crashed with ten messages leased."""
    kit.fill("in")

    def crash(rows, _batch_id):
        rows.collect()
        raise RuntimeError("crash")

    fails(kit.each(kit.source("in", session="job"), "cp", crash))


@pytest.mark.usefixtures("crashed")
def test_checkpoint_deleted_while_a_lease_is_open(kit, kept, fails):
    """S9: a new checkpoint is refused, naming lease and remedies: release, or takeover."""
    query = kit.each(kit.source("in", session="job"), "new", kept)
    text = fails(query)
    assert "ackq.errors.LeaseHeldError" in text
    assert "10 messages" in text
    assert "ackq session release job" in text
    assert "takeover" in text
    assert kit.depth("in") == (0, 10, 0)
    kit.run(kit.each(kit.source("in", session="job", takeover="true"), "newer", kept))
    assert kept.bodies == N
    assert kit.depth("in") == (0, 0, 0)


@pytest.mark.usefixtures("crashed")
def test_released_lease_after_a_deleted_checkpoint(kit, kept):
    """S9: once an operator released the lease, a new checkpoint starts from the beginning."""
    assert kit.admin.release_session("job", fence=True).released == 10
    kit.run(kit.each(kit.source("in", session="job"), "new", kept))
    assert kept.bodies == N


def test_two_brokers_behind_one_checkpoint(kit, kept, fails, tmp_path):
    """S10: a checkpoint that another broker wrote is refused, and nothing is read with it."""
    import ackq_broker
    from ackq.client import Admin, Publisher

    kit.fill("in")
    kit.run(kit.each(kit.source("in", session="job"), "cp", kept))
    with ackq_broker.embedded(data=tmp_path / "other") as other, Admin(other.endpoint) as admin:
        admin.declare_queue("in")
        with Publisher(other.endpoint) as publisher:
            publisher.publish(b"theirs", routing_key="in").result()
        reader = kit.spark.readStream.format("ackq").options(queue="in", session="job")
        query = kit.each(reader.option("endpoint", other.endpoint).load(), "cp", kept)
        text = fails(query)
        assert "ackq.errors.SessionNotFoundError" in text
        assert "'job'" in text
        # Also where a session of this name exists, with an incarnation of its own.
        own = kit.each(reader.option("endpoint", other.endpoint).load(), "own", kept)
        kit.run(own)
        assert kept.bodies == [*N, b"theirs"]
        text = fails(query)
    assert "'job'" in text
    assert kept.bodies == [*N, b"theirs"]
