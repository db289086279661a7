"""The queries of a job: reading a queue, running to the end with progress lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ackq.client import Broker
from ackq.spark.engine import SAYS_START
from kit import interrupts, say

POLL_S: Final = 0.2
UNTIL_S: Final = 1.0
# Maximum number of starts of a query, and Spark's error for one that has to be started again.
STARTS: Final = 3
LATE_WORKER: Final = "Python worker failed to connect back"


@dataclass
class Streamed:
    """Counts of a query in this run; `replayed` rows are of a batch that an earlier run began."""

    rows: int = 0
    batches: int = 0
    replayed: int = 0
    last_batch: int = -1
    query_id: str = ""

    def add(self, progress: Mapping[str, Any]) -> bool:
        """Counts a progress report of Spark; False if it is empty or was counted before."""
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


def read_queue(
    spark: SparkSession,
    broker: Broker,
    queue: str,
    options: Mapping[str, str],
    columns: str | None = None,
) -> DataFrame:
    """A queue as a stream; with `columns`, a schema in DDL, the broker sends only these columns.

    On Spark 4.0 and 4.1 its session is named after the job and the queue, if no option names it.
    """
    # Newer versions keep a session's name in the checkpoint; older ones need one (K13).
    named = {} if SAYS_START else {"session": f"{spark.conf.get('spark.app.name')}/{queue}"}
    reader = spark.readStream.format("ackq").options(**broker.options(), queue=queue)
    reader = reader.options(**{**named, **options})
    return (reader.schema(columns) if columns else reader).load()


def browse(spark: SparkSession, broker: Broker, queue: str) -> DataFrame:
    """The messages of a queue, without consuming them."""
    return spark.read.format("ackq").options(**broker.options(), queue=queue).load()


def run(
    writer: DataStreamWriter,
    checkpoint: str,
    trigger: dict[str, Any],
    until: Callable[[], bool] | None = None,
) -> Streamed:
    """Runs a query to its end, with a line per micro-batch; an interrupt stops the query first.

    It ends with its trigger, or when `until` returns true, which is called about once a second.

    A query whose Python processes did not start in time, as on an overloaded machine, is started
    again: it has done nothing yet, or nothing that its checkpoint does not record. On Spark 4.0 and
    4.1 a query under availableNow is started again until a run finds nothing: a run has one batch,
    which the next run accepts (K13).

    Raises:
        StreamingQueryException: The query failed, or did not start in `STARTS` attempts.
    """
    done = Streamed()
    while True:
        before = done.batches
        _run(writer, checkpoint, trigger, until, done)
        if SAYS_START or "availableNow" not in trigger or done.batches == before:
            return done


def _run(
    writer: DataStreamWriter,
    checkpoint: str,
    trigger: dict[str, Any],
    until: Callable[[], bool] | None,
    done: Streamed,
) -> None:
    for left in reversed(range(STARTS)):
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        say("The query is started; its first micro-batch starts Spark's Python workers ...")
        try:
            _follow(query, done, until)
        except StreamingQueryException as error:
            if not left or LATE_WORKER not in str(error):
                raise
            say("A Python worker of Spark did not start in time. The query is started again ...")
        else:
            return


def _follow(query: StreamingQuery, done: Streamed, until: Callable[[], bool] | None) -> None:
    """Follows a query to its end."""
    started = asked = time.monotonic()
    done.query_id = query.id
    interrupts.defer()
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions of a second
        _report(query, done, started)
        if interrupts.requested():
            query.stop()
            raise KeyboardInterrupt
        if until is not None and time.monotonic() - asked >= UNTIL_S:
            if until():
                query.stop()
                break
            asked = time.monotonic()
    _report(query, done, started)
    interrupts.raise_at_once()


def say_unaccepted(unacked: int, trigger: Mapping[str, Any]) -> None:
    """Explains messages that are unacked after a run of a single batch."""
    if "once" in trigger and unacked:
        say(f"{unacked:,} messages are unacked: the next start of the query accepts them.")


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
