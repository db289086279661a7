"""Logs one line for each micro-batch of an application's queries: rate, backlog, durations."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_BATCHES: Final = "ackq.spark.batches"
# The duration of the whole batch, which Spark reports along with those of its phases.
_WHOLE: Final = "triggerExecution"


class BatchLogger(StreamingQueryListener):
    """Listener that logs each micro-batch: `spark.streams.addListener(BatchLogger())`.

    A line has the query, batch id, rows and rate; for the queues that the query reads the numbers
    of ready and unacked messages, the age of the oldest, and the redelivered messages of the batch;
    and the duration of each phase in ms. A replayed batch shows no backlog, as Spark asks for none.
    A query that fails gets a line as well.

    Args:
        logger: The logger to use. None: the logger `ackq.spark.batches`, which is set to `level`,
            and given a handler for stderr if no logger above it has one: the lines are shown.
        level: Log level of the lines.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._log = _shown_logger(level) if logger is None else logger
        self._level = level

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Logs nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Logs the batch."""
        self._log.log(self._level, "%s", line(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Logs nothing: there is no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Logs the error of a query that failed; a stopped query logs nothing."""
        if event.exception:
            first, *_ = event.exception.strip().splitlines()
            self._log.error("query %s failed: %s", event.id, first)


def line(progress: Mapping[str, Any]) -> str:
    """One line for a progress report of Spark.

    Args:
        progress: The parsed JSON of `StreamingQueryProgress.json`.
    """
    durations = dict(progress.get("durationMs") or {})
    took_ms = durations.pop(_WHOLE, sum(durations.values()))
    rows = progress.get("numInputRows", 0)
    rate = rows * 1000 / took_ms if took_ms else 0.0
    name = f"'{progress['name']}'" if progress.get("name") else progress["id"]
    batch = f"query {name} batch {progress['batchId']}"
    parts = [f"{batch}: {rows:,} rows in {took_ms / 1000:.2f} s ({rate:,.0f}/s)"]
    backlogs = list(_backlogs(progress.get("sources", ())))
    if backlogs:
        parts.append(_backlog(backlogs))
    if durations:
        parts.append(" ".join(f"{part} {took}" for part, took in durations.items()) + " ms")
    parts.extend(each["warning"] for each in backlogs if "warning" in each)
    return "; ".join(parts)


def _backlogs(sources: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """The backlogs reported by a query's ackq sources; none for a replayed batch."""
    for source in sources:
        latest = source.get("latestOffset")
        if isinstance(latest, str):  # as text in some versions of Spark
            latest = json.loads(latest) if latest.startswith("{") else None
        if isinstance(latest, dict) and "oldest_age_ms" in latest:
            yield latest


def _backlog(backlogs: list[dict[str, Any]]) -> str:
    def total(name: str) -> int:
        return sum(each[name] for each in backlogs)

    oldest_s = max(each["oldest_age_ms"] for each in backlogs) / 1000
    return (
        f"ready {total('ready'):,}, unacked {total('unacked'):,}, oldest {oldest_s:.1f} s,"
        f" redelivered {total('redelivered'):,}"
    )


def _shown_logger(level: int) -> logging.Logger:
    logger = logging.getLogger(_BATCHES)
    logger.setLevel(level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
    return logger
