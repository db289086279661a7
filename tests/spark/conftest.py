"""One Spark and one broker for the whole run, and helpers for the common steps of tests."""

from __future__ import annotations

import json
import os
from concurrent.futures import wait
from contextlib import contextmanager

import pytest

from ackq.spark.engine import SAYS_START
from tests import prefork
from tests.eventually import eventually
from tests.fakes import machine
from tests.spark.ledger import N

# A query takes 5 to 20 s on a quiet machine.
TIMEOUT_S = 200


def pytest_collection_modifyitems(items):
    """Marks this folder's tests as needing Java. PySpark before 4.2 leaves sockets to the GC."""
    leaks = r"ignore:.*<socket\.socket fd=:pytest.PytestUnraisableExceptionWarning"
    for item in items:
        if "tests/spark/" in item.nodeid:
            item.add_marker(pytest.mark.spark)
            if not SAYS_START:
                item.add_marker(pytest.mark.filterwarnings(leaks))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session with two tasks at once, each tried twice: a task may fail without its query."""
    from pyspark.sql import SparkSession

    from ackq.spark import configure

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.pop(name, None)  # the choice of `configure` is tested
    builder = configure(SparkSession.builder.master("local[2,2]").appName("ackq tests"))
    os.environ["ACKQ_WORKER_PYTHON"] = prefork.PYTHON
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        # The cache of a JVM with one compiler (tests/conftest.py) is too small for all tests.
        .config("spark.driver.extraJavaOptions", "-XX:ReservedCodeCacheSize=192m")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def soon_broker(folder):
    """A broker that waits less for the process of a query that ended before it goes on (S3)."""
    import ackq_broker

    limits = {"HOLDER_CUT_GRACE_MS": 200, "UPTIME_TICK_MS": 100}
    return ackq_broker.embedded(folder / "data", env=machine.with_limits(folder, limits))


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """A broker process for the tests that neither kill nor restart it."""
    with soon_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Kit:
    """A broker with Spark on it: publish, read, run queries, look at queues.

    Attributes:
        app: A `txnAppId` of this test only: a writer is remembered after its test.
    """

    def __init__(self, spark, broker, admin, folder):
        self.spark = spark
        self.broker = broker
        self.admin = admin
        self.folder = folder
        self.app = folder.name

    def declare(self, *queues, **properties):
        for queue in queues:
            self.admin.declare_queue(queue, **properties)

    def publish(self, queue, *bodies):
        from ackq.client import Publisher

        with Publisher(self.broker.endpoint) as publisher:
            wait([publisher.publish(body, routing_key=queue) for body in bodies])

    def fill(self, queue, *others):
        """Declares queues, and publishes the ten messages of `N` to the first."""
        self.declare(queue, *others)
        self.publish(queue, *N)

    def publish_to(self, exchange, *keys):
        from ackq.client import Publisher

        with Publisher(self.broker.endpoint, exchange=exchange) as publisher:
            wait([publisher.publish(b"", routing_key=key) for key in keys])

    def source(self, queue, schema=None, *, of="ackq", **options):
        if queue:
            options["queue"] = queue
        if not SAYS_START:  # required before Spark 4.2 (K13)
            options = {"session": queue or options["subscription"], **options}
        reader = self.spark.readStream.format(of).options(endpoint=self.broker.endpoint, **options)
        return (reader.schema(schema) if schema else reader).load()

    def sink(self, rows, checkpoint, **options):
        return (
            rows.writeStream.format("ackq")
            .options(endpoint=self.broker.endpoint, **options)
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
        )

    def each(self, rows, checkpoint, function, **trigger):
        """A query that hands every batch to a function of (rows, batch id)."""
        return (
            rows.writeStream.foreachBatch(function)
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
        )

    @contextmanager
    def running(self, writer):
        """Runs a query within the `with`."""
        query = writer.start()
        try:
            yield query
        finally:
            query.stop()

    def run(self, writer):
        """Runs a query to its end; raises its error."""
        with self.running(writer) as query:
            assert query.awaitTermination(TIMEOUT_S), "the query did not end"
        return query

    def finish(self, writer):
        """Runs a query until all ready messages are read and accepted.

        It runs once; before 4.2 once for each batch, and once more, as the last batch is accepted
        at the next start (K13).
        """
        query = self.run(writer)
        while not SAYS_START and any("addBatch" in p.durationMs for p in query.recentProgress):
            query = self.run(writer)
        return query

    def browse(self, queue, schema=None, **options):
        reader = self.spark.read.format("ackq").options(
            endpoint=self.broker.endpoint, queue=queue, **options
        )
        return (reader.schema(schema) if schema else reader).load()

    def bodies(self, queue):
        """The bodies in a queue, in order, read by a client that is not Spark."""
        if not self.admin.plan_browse(queue):
            return []
        batches = self.admin.browse(queue, columns=["body"])
        return [body for batch in batches for body in batch.column(0).to_pylist()]

    def depth(self, queue):
        """(ready, unacked, staged) of a queue."""
        info = self.admin.queue(queue)
        return info.ready, info.unacked, info.staged

    def dead_letters(self, queue="dead"):
        """Bodies and reasons of the dead letters, in order."""
        rows = self.browse(queue, "body binary, headers map<string,string>").collect()
        return [(bytes(row.body), row.headers["ackq-dead-reason"]) for row in rows]

    def wait_for(self, query, what, done):
        """Lets a query run until a condition holds; raises the query's error."""

        def reached():
            found = done()
            assert found or not query.awaitTermination(0.1), "the query ended"
            return found

        eventually(what, reached, within_s=TIMEOUT_S)

    def log(self, checkpoint, kind):
        """The entries of a checkpoint's `offsets` or `commits`, by batch."""
        files = (self.folder / checkpoint / kind).iterdir()
        return {int(file.name): file.read_text() for file in files if file.name.isdecimal()}

    def offset(self, checkpoint, batch):
        """The source's offset of a batch."""
        return json.loads(self.log(checkpoint, "offsets")[batch].splitlines()[2])

    def clear(self):
        """Removes queries, and what the broker has."""
        for query in self.spark.streams.active:
            query.stop()
        clear(self.admin)

    def forget(self, checkpoint, kind, batch):
        """Removes an entry from a checkpoint, as a crash before it was written does."""
        folder = self.folder / checkpoint / kind
        for name in (str(batch), f".{batch}.crc"):
            (folder / name).unlink(missing_ok=True)


def clear(admin):
    """Removes the sessions, batches, exchanges and queues of a broker."""
    for info in admin.sessions():
        admin.release_session(info.session, fence=True)
    for info in admin.batches():
        admin.drop_batch(info.writer, info.batch_id, force=True)
    for info in admin.exchanges():
        admin.delete_exchange(info.exchange)
    for info in admin.queues():
        admin.delete_queue(info.queue, force=True)


class Kept:
    """Collects the bodies of each batch, every time it runs."""

    def __init__(self):
        self.runs = []

    def __call__(self, rows, batch_id):
        found = [bytes(row.body) for row in rows.select("body").collect()]
        self.runs.append((batch_id, found))

    @property
    def bodies(self):
        return [body for _, found in self.runs for body in found]


@pytest.fixture
def kit(spark, shared_broker, tmp_path):
    """The shared broker, without objects of previous tests."""
    from ackq.client import Admin

    made = Kit(spark, shared_broker, Admin(shared_broker.endpoint), tmp_path)
    yield made
    made.clear()


@pytest.fixture
def own(spark, broker, admin, tmp_path):
    """A broker of the test's own, which it may kill."""
    return Kit(spark, broker, admin, tmp_path)


@pytest.fixture
def settled(kit):
    """A queue with a dead-letter queue and ten messages."""
    kit.declare("dead")
    kit.declare("in", dead_letter_queue="dead")
    kit.publish("in", *N)
    return kit


@pytest.fixture
def fails(kit):
    """Runs a query that must fail; returns the text of its error."""

    from pyspark.errors import StreamingQueryException

    def run(writer):
        with pytest.raises(StreamingQueryException) as caught:
            kit.run(writer)
        return str(caught.value)

    return run


@pytest.fixture
def kept():
    return Kept()
