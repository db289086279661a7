"""The jobs as processes, with real brokers, Spark and Delta."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import flights
import pyarrow as pa
import pytest

import ackq_broker
from ackq.client import Admin

pytestmark = [pytest.mark.spark, pytest.mark.delta]

Start = Callable[..., subprocess.Popen[str]]
LastLine = Callable[..., str]


def test_the_main_job_accounts_for_every_flight(last_line: LastLine, scratch: Path):
    """K1, K9: published, confirmed, accepted and stored agree, and nothing is left unacked."""
    line = last_line(
        "queue_to_delta.py", "--limit", 2_500, "--option", "maxMessagesPerTrigger=1000"
    )
    assert line == (
        "published=2500 confirmed=2500 accepted=2500 delta_rows=2500 unacked=0 duplicates=0 OK"
    )
    assert list(scratch.iterdir()) == []


def test_the_main_job_ends_cleanly_when_interrupted(start: Start, scratch: Path):
    job = start("queue_to_delta.py", "--limit", 20_000, "--option", "maxMessagesPerTrigger=100")
    assert job.stdout is not None
    next(line for line in job.stdout if "  micro-batch " in line)
    job.send_signal(signal.SIGINT)
    out, err = job.communicate()
    assert (job.returncode, err) == (130, "")
    assert out.splitlines()[-1].startswith("Interrupted.")
    assert list(scratch.iterdir()) == []


def test_a_table_of_flights_becomes_messages(last_line: LastLine, scratch: Path):
    """K3: every row of the table is in the queue once."""
    line = last_line("delta_to_queue.py", "--limit", 2_500)
    assert line == (
        "delta_rows=2500 streamed=2500 published=2500 ready=2500 queue_rows=2500 unacked=0"
        " duplicates=0 OK"
    )
    assert list(scratch.iterdir()) == []


class Broker(NamedTuple):
    """A broker that the job does not own, with an empty queue, and a table of its flights."""

    endpoint: str
    admin: Admin
    queue: str
    table: Path


@pytest.fixture
def served(last_line: LastLine, tmp_path: Path) -> Iterator[Broker]:
    """K1: the job streams the queue of a running broker into a table."""
    table = tmp_path / "table"
    with (
        ackq_broker.embedded(data=tmp_path / "broker") as broker,
        Admin(broker.endpoint) as admin,
    ):
        data = flights.load(1_000)
        flights.declare(admin, data)
        flights.publish(broker.endpoint, data)
        line = last_line(
            "queue_to_delta.py",
            *("--endpoint", broker.endpoint, "--queue", flights.QUEUE, "--table", table),
            *("--checkpoint", tmp_path / "in", "--json-schema", flights.JSON_SCHEMA),
        )
        assert line == (
            "read=1000 replayed=0 delta_rows=1000 accepted=1000 ready=0 unacked=0 duplicates=0 OK"
        )
        admin.declare_queue("again")
        yield Broker(broker.endpoint, admin, "again", table)


def test_a_table_is_streamed_to_the_queue_of_a_running_broker(
    served: Broker, last_line: LastLine, tmp_path: Path
):
    """K3: every row is one message, with the columns that were named."""
    line = last_line(
        "delta_to_queue.py",
        *("--endpoint", served.endpoint, "--table", served.table, "--queue", served.queue),
        *("--checkpoint", tmp_path / "out", "--message-id-column", "message_id"),
        *("--body-column", "tailnum"),
    )
    assert line == "rows=1000 published=1000 unconfirmed=0 OK"
    rows = pa.Table.from_batches(served.admin.browse(served.queue))
    assert len(rows["message_id"].unique()) == 1_000
    assert "N14228" in rows["body"].cast("string").to_pylist()


def test_a_batch_is_published_once(served: Broker, last_line: LastLine):
    """K12: the same application id and version again publishes nothing."""
    batch = (
        "delta_to_queue.py",
        *("--endpoint", served.endpoint, "--table", served.table, "--queue", served.queue),
        *("--batch", "--option", "txnAppId=test", "--option", "txnVersion=1"),
    )
    assert last_line(*batch) == "rows=1000 published=1000 unconfirmed=0 OK"
    assert last_line(*batch) == "rows=1000 published=0 unconfirmed=0 OK"


def test_a_missing_queue_is_told_in_one_line(start: Start, scratch: Path, tmp_path: Path):
    with ackq_broker.embedded() as broker:
        job = start(
            "queue_to_delta.py",
            *("--endpoint", broker.endpoint, "--queue", "nowhere"),
            *("--table", tmp_path / "table", "--checkpoint", tmp_path / "checkpoint"),
        )
        _, err = job.communicate()
    assert job.returncode == 1
    error, files = err.splitlines()
    assert error.startswith("error: ")
    assert "'nowhere'" in error
    assert files == f"The run's files, with Spark's log: {next(scratch.iterdir())}"
