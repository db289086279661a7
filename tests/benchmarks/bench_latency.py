"""Delays of a message: to its confirm, to a consumer, to its row in a Delta table.

Invariant: publisher, consumer, broker and Spark are processes of their own, and load does not wait
for the objects of measurement. `idle` is a load that leaves all of them waiting; the others are
fractions of the rate that the same path reached flat out, in the same repetition.
"""

import contextlib
import json
import tempfile
import time
from pathlib import Path

import harness
import load
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import spark_harness
import synced_round_trip
from harness import Figures

from tests.crash.local_spark import DELTA

HELP = "delays publish to confirm, to a consumer and to a row in Delta: p50, p99, p99.9"
OPTIONS = {"sizes": ([100], "body sizes"), "seconds": (10.0, "of each load")}
IDLE = 100
IMMEDIATE = 5_000
FLAT_OUT = 20_000
FLAT_OUT_DELTA = 1_000_000
WARM_UP = 5
_TIMEOUT_S = 300
_POLL_S = 0.05


def run(args, endpoint):
    """Figures for each body size, part and load."""
    for size in args.sizes:
        for part in (messages, delta):
            found = {}
            for title, unit, values in part(args, endpoint, size):
                found.setdefault(title, Figures(f"{title}, {size:,} B", unit)).add(values)
                print(title, {name: round(value, 3) for name, value in values.items()}, flush=True)
            yield from found.values()


def percentiles(delays_ns, name):
    """Milliseconds, by name and percentile."""
    return harness.percentiles((delays_ns / 1e9).tolist(), name)


def loads(title, rate, seconds, send):
    """The delays at each load: idle, and fractions of a rate."""
    for name, each in ((f"idle, {IDLE}/s", IDLE), ("at half", rate / 2), ("at 90 %", 0.9 * rate)):
        yield f"{title}{name}", "ms", send(each, int(each * seconds))[1]


# --- confirms and a consumer ---


def messages(args, endpoint, size):
    """Single publishes, to their confirms and to a callback; also with confirms at once."""
    with synced_round_trip.running() as port:
        for _ in range(args.reps):
            times_s = []
            synced_round_trip.each(port, 1000, bytes(size), times_s)
            yield "synced round trip", "ms", harness.percentiles(times_s, "answer")
            rate, _ = singly(endpoint, size, 0, FLAT_OUT)
            yield "flat out", "messages/s", {"publish to callback": rate}
            yield from loads("", rate, args.seconds, lambda *load: singly(endpoint, size, *load))
            count = int(IMMEDIATE * args.seconds)
            _, delays = singly(endpoint, size, IMMEDIATE, count, "immediately")
            yield f"ack_immediately, {IMMEDIATE:,}/s", "ms", delays


def singly(endpoint, size, rate, count, how="shared"):
    """Publishes `count` single messages; returns the rate until consumed, and the percentiles."""
    with harness.queue(endpoint) as queue, tempfile.TemporaryDirectory() as folder:
        confirms, arrivals = (str(Path(folder, name)) for name in ("confirms.npy", "arrivals.npy"))
        consumer = load.start("consume", endpoint, queue, arrivals, count)
        publisher = load.start("publish", endpoint, queue, confirms, rate, count, size, how)
        _wait(publisher, consumer)
        _, to_confirm = np.load(confirms)
        due, to_callback = np.load(arrivals)
    seconds = (np.max(due + to_callback) - np.min(due)) / 1e9
    found = {**percentiles(to_confirm, "confirm"), **percentiles(to_callback, "consumer")}
    return count / seconds, found


def _wait(*children):
    for child in children:
        assert child.wait(_TIMEOUT_S) == 0
        child.stdout.close()


# --- Delta ---


def delta(args, endpoint, size):
    """Batches, measured to their rows in a Delta table that a query writes without a pause."""
    with (
        spark_harness.session(DELTA) as spark,
        harness.queue(endpoint) as queue,
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-delta-") as folder,
        _query(spark, endpoint, queue, Path(folder)),
    ):
        path = _Path(endpoint, queue, Path(folder, "table"), size)
        for _ in range(WARM_UP):  # the first micro-batches are slow
            path.send(0, FLAT_OUT_DELTA // 10)
        for _ in range(args.reps):
            rate, _ = path.send(0, FLAT_OUT_DELTA)
            yield "Delta, flat out", "messages/s", {"publish to row": rate}
            yield from loads("Delta, ", rate, args.seconds, path.send)


@contextlib.contextmanager
def _query(spark, endpoint, queue, folder):
    reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=queue)
    query = (
        reader.schema("body BINARY")
        .load()
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "table"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    yield
    query.stop()


class _Path:
    """The path from publishes to the rows of a table, read up to its last known version."""

    def __init__(self, endpoint, queue, table, size):
        self._endpoint, self._queue, self._size = endpoint, queue, size
        self._log, self._table = table / "_delta_log", table
        self._version = 0

    def send(self, rate, count):
        """Publishes `count` messages; returns the rate until all are rows, and the percentiles."""
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder, "confirms.npy"))
            given = (self._endpoint, self._queue, file, rate, count, self._size, "batches")
            _wait(load.start("publish", *given))
            _, confirms = np.load(file)
        due, delays = self._rows(len(confirms) * load.per_batch(rate))
        seconds = (np.max(due + delays) - np.min(due)) / 1e9
        found = {**percentiles(confirms, "confirm"), **percentiles(delays, "row")}
        return len(delays) / seconds, found

    def _rows(self, count):
        """The due times and delays of the next `count` rows, once they are in the table."""
        found, rows = [], 0
        deadline = time.monotonic() + _TIMEOUT_S
        while rows < count:
            assert time.monotonic() < deadline, "rows are missing"
            commit = self._log / f"{self._version:020}.json"
            if not commit.exists():
                time.sleep(_POLL_S)
                continue
            due = self._due(commit)
            found.append((due, commit.stat().st_mtime_ns - due))
            rows += len(due)
            self._version += 1
        return np.concatenate(found, axis=1)

    def _due(self, commit):
        """The due times in the rows of a commit."""
        found = []
        for line in commit.read_text(encoding="utf-8").splitlines():
            if added := json.loads(line).get("add"):
                bodies = pq.read_table(self._table / added["path"], columns=["body"])["body"]
                found += pc.binary_slice(bodies, 0, load.STAMP_BYTES).to_pylist()
        return np.frombuffer(b"".join(found), ">i8").astype(np.int64)
