"""Jobs that use a queue of RabbitMQ, as processes, with a real node, Spark and Delta."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import flights
from tests.e2e import readme
from tests.wire.brokers.rabbitmq_server import RabbitMqServer

pytestmark = [pytest.mark.spark, pytest.mark.delta]

LastLine = Callable[..., str]
Start = Callable[..., subprocess.Popen[str]]


def test_flights_go_to_rabbitmq_and_from_there_to_a_table(
    next_line: LastLine, rabbitmq: RabbitMqServer, tmp_path: Path
):
    """L9, L22, L23, K1, K3: the README's jobs move flights out and back, each once, none left."""
    count = 450
    lines = [line for line in readme.job_lines("--amqp") if "--amqp-protocol" not in line]
    out, back = lines
    where = {"amqp": f"amqp://{rabbitmq.endpoint}", "home": tmp_path}
    line = next_line(*readme.changed(out, **where), "--amqp-temporary", "--limit", count)
    assert line == (
        f"rows={count} carried=0 published={count} sent={count} there_before=0 there_after={count}"
        " left=0 OK"
    )
    arguments = (
        *(*readme.changed(back, **where), "--amqp-temporary", "--amqp-ack", "stored"),
        *("--json-schema", flights.JSON_SCHEMA, "--option", "maxMessagesPerTrigger=150"),
    )
    assert next_line(*arguments) == (
        f"read={count} replayed=0 delta_rows={count} there_before={count} there_left=0"
        f" accepted={count} ready=0 unacked=0 duplicates=0 OK"
    )
    assert next_line(*arguments) == (
        "read=0 replayed=0 delta_rows=0 there_before=0 there_left=0"
        " accepted=0 ready=0 unacked=0 duplicates=0 OK"
    )


def test_a_temporary_directory_is_told_in_one_line(start: Start, rabbitmq: RabbitMqServer):
    """L9: a temporary data directory is refused in one line with the remedy, before any start."""
    job = start(
        *("delta_to_queue.py", "--amqp", f"amqp://{rabbitmq.endpoint}", "--amqp-queue", "flights"),
        *("--amqp-data", "/tmp/ackq-edge", "--limit", 10),  # noqa: S108 - it is refused
    )
    _, err = job.communicate()
    assert job.returncode == 1
    assert "does not outlive the driver" in err
    assert "Name a directory on a disk or volume" in err
    assert "or set --amqp-temporary" in err
