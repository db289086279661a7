"""Jobs that use a queue of RabbitMQ, as processes, with a real node, Spark and Delta."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.e2e import readme
from tests.wire.brokers.rabbitmq_server import RabbitMqServer

pytestmark = [pytest.mark.spark, pytest.mark.delta]

Start = Callable[..., subprocess.Popen[str]]


def test_flights_go_to_rabbitmq_and_from_there_to_a_table(
    there_and_back: Callable[..., list[object]],
    next_line: Callable[..., str],
    rabbitmq: RabbitMqServer,
):
    """L9, L22, L23, K1, K3: the README's jobs move flights out and back, each once, none left."""
    lines = [line for line in readme.job_lines("--amqp") if "--amqp-protocol" not in line]
    where = {"amqp": f"amqp://{rabbitmq.endpoint}"}
    reading = there_and_back(lines, where, ["--amqp-temporary"], ["--amqp-ack", "stored"])
    assert next_line(*reading) == (
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
