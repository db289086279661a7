"""The jobs as processes, with real brokers, Spark and Delta."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import flights
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


def test_messages_go_to_a_table_and_back_to_a_queue_once(last_line: LastLine, tmp_path: Path):
    """K3, K12: jobs on a broker of others; what was done with a checkpoint is not done again."""
    table, inward, outward = (tmp_path / name for name in ("table", "inward", "outward"))
    with (
        ackq_broker.embedded(data=tmp_path / "broker") as broker,
        Admin(broker.endpoint) as admin,
    ):
        data = flights.load(1_000)
        flights.declare(admin, data)
        flights.publish(broker.endpoint, data)
        store = ("queue_to_delta.py", "--endpoint", broker.endpoint, "--queue", flights.QUEUE)
        store += ("--table", table, "--checkpoint", inward, "--json-schema", flights.JSON_SCHEMA)
        assert last_line(*store) == (
            "read=1000 replayed=0 delta_rows=1000 accepted=1000 ready=0 unacked=0 duplicates=0 OK"
        )
        admin.declare_queue("again")
        publish = ("delta_to_queue.py", "--endpoint", broker.endpoint, "--queue", "again")
        publish += ("--table", table, "--message-id-column", "message_id")
        streamed = (*publish, "--checkpoint", outward)
        assert last_line(*streamed) == "rows=1000 published=1000 unconfirmed=0 OK"
        assert last_line(*streamed) == "rows=0 published=0 unconfirmed=0 OK"
        batch = (*publish, "--batch", "--option", "txnAppId=test", "--option", "txnVersion=1")
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
