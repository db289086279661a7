"""The jobs as processes, with real brokers, Spark and Delta."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import ackq_broker
import enrich_queue
from ackq.client import Admin, Broker, Publisher
from kit import flights
from tests.eventually import eventually
from tests.fakes.secured import Secured, secured_broker

pytestmark = [pytest.mark.spark, pytest.mark.delta]

Start = Callable[..., subprocess.Popen[str]]
LastLine = Callable[..., str]
RunNext = Callable[..., tuple[int, str, str]]


def test_the_main_job_accounts_for_every_flight(next_line: LastLine, scratch: Path):
    """K1, K9: published, confirmed, accepted and stored counts agree; nothing is left unacked."""
    line = next_line(
        "queue_to_delta.py", "--limit", 2_500, "--option", "maxMessagesPerTrigger=1000"
    )
    assert line == (
        "published=2500 confirmed=2500 accepted=2500 delta_rows=2500 unacked=0 duplicates=0 OK"
    )
    assert list(scratch.iterdir()) == []


def test_the_tour_sees_what_it_promises(next_line: LastLine, scratch: Path):
    """P4, P7, P13, C13, C17, Q2, Q5, Q6, K1, K2, K3, K8: the tour's ten steps end as promised."""
    assert next_line("tour.py") == "10 of 10 answers were as promised. OK"
    assert list(scratch.iterdir()) == []


def test_the_main_job_ends_cleanly_when_interrupted(start: Start, scratch: Path):
    """As a process of its own, whose JVM says nothing on the screen."""
    job = start("queue_to_delta.py", "--limit", 2_500, "--option", "maxMessagesPerTrigger=10")
    assert job.stdout is not None
    next(line for line in job.stdout if "  micro-batch " in line)
    job.send_signal(signal.SIGINT)
    out, err = job.communicate()
    assert (job.returncode, err) == (130, "")
    assert out.splitlines()[-1] == (
        "Interrupted. Temporary files are removed; a checkpoint that you named stays."
    )
    assert list(scratch.iterdir()) == []


def test_a_table_of_flights_becomes_messages(next_line: LastLine, scratch: Path):
    """K3: every row of the table is in the queue once."""
    line = next_line("delta_to_queue.py", "--limit", 2_500)
    assert line == (
        "delta_rows=2500 streamed=2500 published=2500 ready=2500 queue_rows=2500 unacked=0"
        " duplicates=0 OK"
    )
    assert list(scratch.iterdir()) == []


def test_broken_flights_are_dead_letters(next_line: LastLine, scratch: Path):
    """K8, S6: each flight is enriched once, or rejected once with the reason; none is both."""
    line = next_line("enrich_queue.py", "--limit", 2_500, "--option", "maxMessagesPerTrigger=1000")
    assert line == (
        "published=2500 confirmed=2500 accepted=2475 rejected=25 enriched=2475 dead=25 unacked=0"
        " duplicates=0 unexplained=0 OK"
    )
    assert list(scratch.iterdir()) == []


def test_rejected_flights_come_back_repaired(next_line: LastLine, scratch: Path):
    """K3, Q6: rejected flights are repaired, redriven once, and pass."""
    assert next_line("redrive.py", "--limit", 2_500) == (
        "rejected=25 repaired=25 published=2500 accepted=2500 enriched=2500 dead=0 ready=0"
        " unacked=0 duplicates=0 OK"
    )
    assert list(scratch.iterdir()) == []


def test_load_is_confirmed(next_line: LastLine):
    """P3: every message of a load is confirmed and in the queue once."""
    line = next_line("load_generator.py", "--rate", 5_000, "--seconds", 1)
    assert line == "published=5000 confirmed=5000 ready=5000 duplicates=0 OK"


@contextmanager
def as_user(folder: Path, **may: str) -> Iterator[tuple[Secured, Admin, tuple[str, ...]]]:
    """A broker over TLS, a client that may do all, and a job's options as a user with less."""
    with (
        secured_broker(folder) as secured,
        Admin(secured.endpoint, security=secured.security()) as admin,
    ):
        token_file = secured.add("jobs", "none", **may)
        token = Path(token_file).read_text().strip()
        eventually("the user", lambda: secured.knows(token))
        at = ("--endpoint", secured.endpoint, "--ca", secured.authority.ca)
        yield secured, admin, (*at, "--token-file", token_file)


def test_queues_of_a_running_broker_are_sorted_and_redriven(next_line: LastLine, tmp_path: Path):
    """K8, Q6, A9: bad messages die; one is redriven unchanged and dies again, one is repaired.

    Over TLS, and as a user with no further permissions.
    """
    may = {"configure": "dead", "write": "in|out", "read": "in|dead"}
    with as_user(tmp_path, **may) as (secured, admin, at):
        admin.declare_queue("dead")
        admin.declare_queue("in", dead_letter_queue="dead")
        admin.declare_queue("out")
        bodies = [
            *(b'{"id": 1}', b'{"id": 2', b'{"id": "x"}', b'{"name": "n"}'),
            *(b'{"id": 5}\n{"id": 6}', b'{"id": 7, "id": 8}', b'{"id": 9, "name": "\xff"}'),
        ]
        security = secured.security()
        with Publisher(secured.endpoint, security=security, routing_key="in") as publisher:
            for body in bodies:
                publisher.publish(body)
        enrich = (
            *("enrich_queue.py", *at, "--queue", "in", "--target", "out", "--require", "id"),
            *("--checkpoint", tmp_path / "enrich", "--json-schema", "id INT, name STRING"),
            *("--add", "twice=id * 2"),
        )
        assert next_line(*enrich) == (
            "read=7 replayed=0 good=1 bad=6 written=1 rejected=6 ready=0 unacked=0 OK"
        )
        reasons = {
            dict(row["headers"])[enrich_queue.REASON_HEADER]
            for batch in admin.browse("dead", columns=["headers"])
            for row in batch.to_pylist()
        }
        assert reasons == {
            "not JSON: Expecting ',' delimiter",
            "field 'id' does not fit int",
            "field 'id' is missing",
            "not JSON: Extra data",
            "a field appears twice",
            "not UTF-8: invalid start byte",
        }
        assert next_line("redrive.py", *at, "--queue", "dead", "--max-messages", 1) == (
            "before=6 redriven=1 left=5 after=5 OK"
        )
        repair = "CASE WHEN body LIKE '%x%' THEN replace(body, '\"x\"', '3') END"
        line = next_line(
            *("redrive.py", *at, "--queue", "dead", "--repair", repair),
            *("--checkpoint", tmp_path / "redrive"),
        )
        assert line == "read=5 replayed=0 repaired=1 left=4 ready=4 unacked=0 OK"
        assert next_line(*enrich) == (
            "read=2 replayed=0 good=1 bad=1 written=1 rejected=1 ready=0 unacked=0 OK"
        )
        found = [row for batch in admin.browse("out") for row in batch["body"].to_pylist()]
    assert found == [b'{"id":1,"twice":2}', b'{"id":3,"twice":6}']


@pytest.mark.parametrize("job", ["redrive", "enrich"])
def test_other_arguments_do_not_run_a_batch_again(
    next_line: LastLine, run_next: RunNext, tmp_path: Path, job: str
):
    """S6, K12: a job that died before the checkpoint, started again with another repair or check.

    It would settle the message that was written, and write the one that was settled. A batch that
    failed before it wrote anything takes other arguments.
    """
    checkpoint = tmp_path / "checkpoint"
    with ackq_broker.embedded() as broker, Admin(broker.endpoint) as admin:
        for name, dead in (("dead", ""), ("in", "dead"), ("out", "")):
            admin.declare_queue(name, dead_letter_queue=dead)
        line = ("--endpoint", broker.endpoint, "--checkpoint", checkpoint, "--queue")
        with Publisher(broker.endpoint) as publisher:
            for each in "AB":
                body = {"redrive": each, "enrich": f'{{"{each}": 1}}'}[job]
                publisher.publish(body.encode(), routing_key={"redrive": "dead"}.get(job, "in"))
        lines = {
            "redrive": ("redrive.py", *line, "dead", "--to", "out", "--repair"),
            "enrich": (
                *("enrich_queue.py", *line, "in", "--target", "out"),
                *("--json-schema", "A INT, B INT", "--require"),
            ),
        }[job]
        one, other, *wrong = {
            "redrive": [
                *(f"CASE WHEN body = '{each}' THEN body END" for each in "AB"),
                "string(int(body))",
            ],
            "enrich": ["A", "B", "A", "--add", "twice=2 * C"],
        }[job]
        status, _, error = run_next(*lines, *wrong)
        cause = {"redrive": "[CAST_INVALID_INPUT", "enrich": "[UNRESOLVED_COLUMN"}[job]
        assert status == 1
        assert f"error: {cause}" in error
        next_line(*lines, one)
        last = max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
        (checkpoint / "commits" / str(last)).unlink()
        status, _, error = run_next(*lines, other)
        assert status == 1, error
        begins = f"error: Micro-batch {last} was written with other arguments"
        assert error.startswith(begins), error
        assert f"{lines[-1]} was {json.dumps(one if job == 'redrive' else [one])}." in error
        next_line(*lines, one)
        assert admin.queue("out").published == 1


def test_a_queue_becomes_a_table_and_the_table_messages(next_line: LastLine, tmp_path: Path):
    """K1, K3, K12, A9: every message is one row, and every row one message; over TLS, as a user.

    Also the second of two messages that the producer gave one id.
    """
    table = tmp_path / "table"
    may = {"write": "streamed|batch", "read": flights.QUEUE}
    with as_user(tmp_path, **may) as (secured, admin, options):
        at = (*options, "--table", table)
        data = flights.load(1_000)
        flights.declare(admin, data)
        for each in (data, data[:1]):
            flights.publish(Broker(secured.endpoint, secured.security()), each)
        line = next_line(
            *("queue_to_delta.py", *at, "--queue", flights.QUEUE),
            *("--checkpoint", tmp_path / "in", "--json-schema", flights.JSON_SCHEMA),
        )
        assert line == (
            "read=1001 replayed=0 delta_rows=1001 accepted=1001 ready=0 unacked=0 duplicates=0 OK"
        )
        admin.declare_queue("streamed")
        line = next_line(
            *("delta_to_queue.py", *at, "--queue", "streamed", "--checkpoint", tmp_path / "out"),
            *("--message-id-column", "message_id", "--body-column", "tailnum"),
        )
        assert line == "rows=1001 published=1001 unconfirmed=0 OK"
        rows = pa.Table.from_batches(admin.browse("streamed"))
        assert len(rows["message_id"].unique()) == 1_000
        assert "N14228" in rows["body"].cast("string").to_pylist()
        # The same application id and version again publishes nothing; a path may be relative.
        admin.declare_queue("batch")
        batch = (
            *("delta_to_queue.py", *options, "--table", os.path.relpath(table)),
            *("--queue", "batch", "--batch"),
            *("--option", "txnAppId=test", "--option", "txnVersion=1"),
        )
        assert next_line(*batch) == "rows=1001 published=1001 unconfirmed=0 OK"
        assert next_line(*batch) == "rows=1001 published=0 unconfirmed=0 OK"


def test_a_missing_queue_is_told_in_one_line(run_next: RunNext, tmp_path: Path):
    with ackq_broker.embedded() as broker:
        status, _, error = run_next(
            "queue_to_delta.py",
            *("--endpoint", broker.endpoint, "--queue", "nowhere"),
            *("--table", tmp_path / "table", "--checkpoint", tmp_path / "checkpoint"),
        )
    assert status == 1
    told, files = error.splitlines()
    assert told.startswith("error: There is no queue 'nowhere'")
    assert files.startswith("The run's files, with Spark's log: ")
