"""The example of Spark Declarative Pipelines, run as a user runs it: by `spark-pipelines`."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
import pytest

import ackq_broker
from ackq.client import Admin, Publisher
from tests.eventually import eventually
from tests.rules import ROOT
from tests.spark import cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

BATCH = 50
ORDER = b'{"id": 1, "amount": 2.5}'
BAD = [b"no JSON", b"", b"\xff", b"null", b"7", b'{"amount": 1.5}', b'{"id": "x"}', b"[]"]
BAD += [b'[{"id": 1, "amount": 2.5}, {"id": 2}]', b'{"id": 1, "amount": "much"}']
# Spark's default starts processes for each file of a checkpoint (`ackq.spark.configure`).
CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
SETTINGS = {
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


class Pipeline:
    """A copy of the project in a folder, for a broker and small batches."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "jobs/pipeline", folder)
        self._replace("spark-pipeline.yml", "127.0.0.1:5775", endpoint)
        self._replace("spark-pipeline.yml", "file:///data/orders-pipeline", f"{folder.as_uri()}/s")
        limited = f'maxMessagesPerTrigger={BATCH}, session="'
        self._replace("transformations/orders.py", 'session="', limited)

    def _replace(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text("utf-8")
        assert text.count(old) == 1
        (self.folder / name).write_text(text.replace(old, new), "utf-8")

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A run in a process group of its own, which is killed at the end of the `with`."""
        settings = (word for each in SETTINGS.items() for word in ("--conf", "=".join(each)))
        with (self.folder / "log").open("wb") as log:
            run = subprocess.Popen(
                ["spark-pipelines", "run", *settings, *arguments],
                cwd=self.folder,
                env=cluster.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield run
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()

    def run(self, *arguments: str) -> None:
        """A run to its end, which must be a success."""
        with self.running(*arguments) as run:
            assert run.wait() == 0, self.log()

    def kill_once(self, what: str, holds: Callable[[], object]) -> None:
        """Kills a run, all of its processes at once, when a fact holds, unless it ended first."""
        with self.running() as run:
            eventually(what, lambda: holds() or run.poll() is not None, within_s=300)
            assert not run.poll(), self.log()

    def log(self) -> str:
        """The end of the last run's log."""
        return (self.folder / "log").read_text("utf-8", errors="replace")[-20_000:]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, by the log of its writer: a killed one leaves other files."""
        log = self.folder / "spark-warehouse" / table / "_spark_metadata"
        batches = [path for path in log.iterdir() if path.name.isdecimal()]
        lines = [line for each in batches for line in each.read_text().splitlines()[1:]]
        files = [unquote(urlparse(json.loads(line)["path"]).path) for line in lines]
        return [row for file in files for row in pq.read_table(file).to_pylist()]


def by_id(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, in the order of their message ids, which are numbers."""
    return sorted((int(row["message_id"]), *(row[name] for name in columns)) for row in rows)


def test_each_message_arrives_once(tmp_path: Path):
    """K1, K2, K3: in its tables and in the sink's queue, whichever flow runs at a kill.

    S14, K15: a full refresh of all fills the tables again. The sink's query is then another one.
    """
    sent: dict[int, bytes] = {}
    with ackq_broker.embedded() as broker, Admin(broker.endpoint) as admin:
        for queue in ("orders", "invoices"):
            admin.declare_queue(queue)
        pipeline = Pipeline(tmp_path / "project", broker.endpoint)

        def publish(first: int, bodies: list[bytes]) -> None:
            numbered = dict(enumerate(bodies, first))
            with Publisher(broker.endpoint, routing_key="orders") as out:
                wait([out.publish(body, message_id=str(key)) for key, body in numbered.items()])
            sent.update(numbered)

        def check(invoices: list[int]) -> None:
            """Each message is once in its tables; the sink's queue has these, by message id."""
            orders = [(key, 1, 2.5) for key, body in sent.items() if body not in BAD]
            quarantine = [(key, body) for key, body in sent.items() if body in BAD]
            assert by_id(pipeline.rows("received"), "body") == sorted(sent.items())
            assert by_id(pipeline.rows("orders"), "id", "amount") == orders
            assert by_id(pipeline.rows("quarantine"), "body") == quarantine
            read = admin.browse("invoices", columns=["message_id", "body"])
            written = [row for batch in read for row in batch.to_pylist()]
            assert by_id(written, "body") == [(key, b'{"id":1,"amount":2.5}') for key in invoices]
            queue = admin.queue("orders")
            assert (queue.ready, queue.unacked) == (0, 0)

        publish(0, [ORDER] * 150 + BAD)
        pipeline.kill_once("a first batch", lambda: admin.queue("orders").accepted)
        pipeline.kill_once("a first invoice", lambda: admin.queue("invoices").ready)
        assert admin.queue("orders").accepted == len(sent)
        publish(1000, [ORDER, BAD[0]])
        pipeline.run()
        check([*range(150), 1000])
        publish(2000, [ORDER, BAD[0]])
        pipeline.run("--full-refresh-all")
        check(sorted([*range(150), 1000] * 2 + [2000]))
