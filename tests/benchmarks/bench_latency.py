"""Delays of a message: to its confirm, to a consumer, to its row in a Delta table.

Invariant: publisher, consumer, broker and Spark are processes of their own, and load does not wait
for the objects of measurement. `idle` is a load that leaves all of them waiting; the others are
fractions of the rate that the same path reached flat out, in the same repetition.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import harness
import load
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import spark_harness
import synced_round_trip
from harness import Figures
from pyspark.sql import SparkSession

HELP = "delays publish to confirm, to a consumer and to a row in Delta: p50, p99, p99.9"
PARTS = ("messages", "immediately", "delta")
IDLE = 100
LOADS = {"at half": 0.5, "at 90 %": 0.9}
IMMEDIATE = 5_000
FLAT_OUT = 20_000
FLAT_OUT_DELTA = 1_000_000
WARM_UP = 5
PERCENTILES = (50, 99, 99.9)
_TIMEOUT_S = 300
_POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the parts and the length of a load."""
    parser.set_defaults(sizes=[100])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (10)")
    parser.add_argument(
        "--parts",
        type=lambda text: text.split(","),
        default=list(PARTS),
        help=f"which, separated by commas ({','.join(PARTS)})",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Figures]:
    """Figures for each body size, part and load."""
    measured = {"messages": messages, "immediately": immediately, "delta": delta}
    for part in args.parts:
        for size in args.sizes:
            found: dict[str, Figures] = {}
            with measured[part](args, endpoint, size) as repeat:
                for _ in range(args.repetitions):
                    for title, (unit, values) in repeat():
                        found.setdefault(title, Figures(title, unit)).add(values)
                        print(title, {name: round(value, 3) for name, value in values.items()})
            yield from found.values()


def percentiles(name: str, delays_ns: np.ndarray) -> dict[str, float]:
    """Milliseconds, by name and percentile."""
    cuts = np.percentile(delays_ns, PERCENTILES) / 1e6
    return {f"{name} p{at:g}": float(cut) for at, cut in zip(PERCENTILES, cuts, strict=True)}


# --- confirms and a consumer ---

Repetition = Iterator[tuple[str, tuple[str, dict[str, float]]]]


@contextlib.contextmanager
def messages(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[functools.partial]:
    """Single publishes, measured to their confirms and to a callback."""
    with synced_round_trip.running() as port:
        yield functools.partial(_messages, args, endpoint, size, port)


def _messages(args: argparse.Namespace, endpoint: str, size: int, port: int) -> Repetition:
    times_s: list[float] = []
    synced_round_trip.each(port, 1000, bytes(size), times_s)
    trip = percentiles("synced round trip", np.array(times_s) * 1e9)
    rate, _ = singly(endpoint, size, 0, FLAT_OUT)
    yield f"flat out, {size:,} B", ("messages/s", {"publish to callback": rate})
    for name, each in {"idle": IDLE, **{key: part * rate for key, part in LOADS.items()}}.items():
        _, delays = singly(endpoint, size, each, int(each * args.seconds))
        label = f"{name}, {each:,.0f}/s" if name == "idle" else name
        yield f"{label}, {size:,} B", ("ms", {**delays, **(trip if name == "idle" else {})})


@contextlib.contextmanager
def immediately(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[functools.partial]:
    """Single publishes that ask for their confirm at once."""
    yield functools.partial(_immediately, args, endpoint, size)


def _immediately(args: argparse.Namespace, endpoint: str, size: int) -> Repetition:
    count = int(IMMEDIATE * args.seconds)
    _, delays = singly(endpoint, size, IMMEDIATE, count, "immediately")
    yield f"ack_immediately, {IMMEDIATE:,}/s, {size:,} B", ("ms", delays)


def singly(
    endpoint: str, size: int, rate: float, count: int, how: str = "shared"
) -> tuple[float, dict[str, float]]:
    """Publishes `count` single messages; returns the rate until consumed, and the percentiles."""
    with harness.queue(endpoint) as queue, tempfile.TemporaryDirectory() as folder:
        confirms, arrivals = (str(Path(folder, name)) for name in ("confirms.npy", "arrivals.npy"))
        consumer = load.start("consume", endpoint, queue, arrivals, count)
        publisher = load.start("publish", endpoint, queue, confirms, rate, count, size, how)
        _wait(publisher, consumer)
        _, to_confirm = np.load(confirms)
        due, to_callback = np.load(arrivals)
    seconds = (np.max(due + to_callback) - np.min(due)) / 1e9
    found = {**percentiles("confirm", to_confirm), **percentiles("consumer", to_callback)}
    return count / seconds, found


def _wait(*children: subprocess.Popen[str]) -> None:
    for child in children:
        assert child.wait(_TIMEOUT_S) == 0
        assert child.stdout is not None
        child.stdout.close()


# --- Delta ---


@contextlib.contextmanager
def delta(args: argparse.Namespace, endpoint: str, size: int) -> Iterator[functools.partial]:
    """Batches, measured to their rows in a Delta table that a query writes without a pause."""
    with (
        spark_harness.session(spark_harness.DELTA) as spark,
        harness.queue(endpoint) as queue,
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-delta-") as folder,
        _query(spark, endpoint, queue, Path(folder)),
    ):
        path = _Path(endpoint, queue, Path(folder, "table"), size)
        for _ in range(WARM_UP):  # the first micro-batches are slow
            path.send(0, FLAT_OUT_DELTA // 10)
        yield functools.partial(_delta, args, path)


def _delta(args: argparse.Namespace, path: _Path) -> Repetition:
    rate, _ = path.send(0, FLAT_OUT_DELTA)
    yield f"Delta, flat out, {path.size:,} B", ("messages/s", {"publish to row": rate})
    for name, each in {"idle": IDLE, **{key: part * rate for key, part in LOADS.items()}}.items():
        _, delays = path.send(each, int(each * args.seconds))
        label = f"{name}, {each:,.0f}/s" if name == "idle" else name
        yield f"Delta, {label}, {path.size:,} B", ("ms", delays)


@contextlib.contextmanager
def _query(spark: SparkSession, endpoint: str, queue: str, folder: Path) -> Iterator[None]:
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

    def __init__(self, endpoint: str, queue: str, table: Path, size: int) -> None:
        self._endpoint = endpoint
        self._queue = queue
        self._log = table / "_delta_log"
        self._table = table
        self._version = 0
        self.size = size

    def send(self, rate: float, count: int) -> tuple[float, dict[str, float]]:
        """Publishes `count` messages; returns the rate until all are rows, and the percentiles."""
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder, "confirms.npy"))
            publisher = load.start(
                "publish-batches", self._endpoint, self._queue, file, rate, count, self.size
            )
            _wait(publisher)
            confirms = np.load(file)
        due, delays = self._rows(len(confirms) * load.per_batch(rate))
        seconds = (np.max(due + delays) - np.min(due)) / 1e9
        found = {**percentiles("confirm", confirms), **percentiles("row", delays)}
        return len(delays) / seconds, found

    def _rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The due times and delays of the next `count` rows, once they are in the table."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        deadline = time.monotonic() + _TIMEOUT_S
        while sum(len(due) for due, _ in found) < count:
            assert time.monotonic() < deadline, "rows are missing"
            commit = self._log / f"{self._version:020}.json"
            if not commit.exists():
                time.sleep(_POLL_S)
                continue
            due = self._due(commit)
            found.append((due, commit.stat().st_mtime_ns - due))
            self._version += 1
        return np.concatenate([due for due, _ in found]), np.concatenate([at for _, at in found])

    def _due(self, commit: Path) -> np.ndarray:
        """The due times in the rows of a commit."""
        found: list[bytes] = []
        for line in commit.read_text(encoding="utf-8").splitlines():
            if added := json.loads(line).get("add"):
                bodies = pq.read_table(self._table / added["path"], columns=["body"])["body"]
                found += pc.binary_slice(bodies, 0, load.STAMP_BYTES).to_pylist()
        return np.frombuffer(b"".join(found), ">i8").astype(np.int64)
