"""The Spark session of a job, with ackq and, where wanted, Delta."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from ackq.spark import configure
from ackq.spark.engine import is_older_than
from kit import JobError, interrupts, say
from kit.java import under_spark_submit

# Delta for the installed Spark; there is none for the newest Spark.
DELTA_PACKAGE: Final = (
    f"io.delta:delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13:4.4.0"
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


@contextlib.contextmanager
def spark_session(
    name: str, log: Path | None, max_message_bytes: int | None = None, *, delta: bool = True
) -> Iterator[SparkSession]:
    """A Spark session with ackq, stopped at the end.

    Settings of spark-submit override the job's. Enter this before a gRPC channel is open:
    Spark's launcher runs Python between fork and exec, and of 600 such forks in a process with a
    live channel 12 were aborted.

    Args:
        name: The application's name.
        log: Log file of a JVM that this function starts; None: the screen.
        max_message_bytes: Argument of `ackq.spark.configure`.
        delta: Whether the job uses Delta tables.

    Raises:
        JobError: The JVM ended before it was up, with its last error; or there is no Delta for the
            Spark that runs.
    """
    if delta and not is_older_than(4, 3):
        raise JobError(
            f"There is no Delta for Spark {pyspark.__version__} yet: run this with an older one,"
            " pip install 'pyspark<4.3'."
        )
    with_delta = (
        f" with {DELTA_PACKAGE} (the first run on a machine downloads about 33 jars, 174 MB)"
    )
    say(f"Starting Spark{with_delta if delta else ''} ...")
    started = time.monotonic()
    # An interrupted launch leaves a JVM running.
    interrupts.defer()
    if log is not None:
        # This logger writes each analysis error a second time, as a JSON line with all Java frames.
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
    interrupts.raise_at_once()
    try:
        if interrupts.requested():
            raise KeyboardInterrupt
        say(f"Spark {spark.version} is up after {time.monotonic() - started:.1f} s.")
        yield spark
    finally:
        spark.stop()


def last_error(log: Path | None) -> str:
    """The last error line of a Java log."""
    if log is None:
        return "see its log above."
    found: list[str] = re.findall(
        r"^(?:Exception in thread \S+ |Caused by: )?([\w.$]+(?:Exception|Error): .*)$",
        log.read_text(errors="replace"),
        re.MULTILINE,
    )
    return found[-1] if found else "see its log for the cause."


def has_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at a path."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    found: bool = jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path)  # noqa: SLF001
    return found


def history(spark: SparkSession, path: str) -> DataFrame:
    """The commits of the Delta table at a path."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    table = jvm.io.delta.tables.DeltaTable.forPath(spark._jsparkSession, path)  # noqa: SLF001
    return DataFrame(table.history(), spark)


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
    """Loads Delta as `spark-submit --packages` does before a program runs; returns the jars."""
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
    """Makes `log` the stderr of processes that are started in the block."""
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
