"""`txn_options`: names one write of a micro-batch, so that a replay of it is skipped (K12)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ackq.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def txn_options(
    rows: DataFrame, batch_id: int, name: str, *, checkpoint: str | PurePosixPath = ""
) -> dict[str, str]:
    """The options `txnAppId` and `txnVersion` of one write of a micro-batch in `foreachBatch`.

    A write to ackq or to Delta with these options is skipped when Spark runs the batch again:

        def each(rows, batch_id):
            once = txn_options(rows, batch_id, "good", checkpoint="/data/sort")
            rows.write.format("ackq").mode("append").options(**target, **once).save()

    `txnAppId` contains the id of the query, which is in its checkpoint: with a new checkpoint the
    batches count from 0 again, and are not mistaken for batches of the old one.

    Args:
        rows: The micro-batch.
        batch_id: Its number, as `foreachBatch` has it.
        name: Distinguishes this write from other writes of the query to the same target.
        checkpoint: The query's `checkpointLocation`. It is read, by one small Spark job, where
            Spark does not report the query's id: on Spark Connect, on serverless and shared
            clusters, and in threads that do not inherit Spark's local properties.

    Returns:
        The two options, for `DataFrameWriter.options`.

    Raises:
        InvalidArgumentError: Spark does not report the query's id, and no checkpoint is given, or
            it does not exist.
    """
    session = rows.sparkSession
    query = _told(session) or (_read(session, str(checkpoint)) if checkpoint else "")
    if not query:
        raise InvalidArgumentError(
            "Spark does not report which query this batch belongs to (on Spark Connect, and in"
            " threads of your own). Give the query's checkpointLocation as well:"
            f" txn_options(rows, batch_id, '{name}', checkpoint='...').",
            name=name,
        )
    return {"txnAppId": f"{name}/{query}", "txnVersion": str(batch_id)}


def _told(session: SparkSession) -> str:
    """The id of the query that runs in this thread; empty where Spark does not report it."""
    with suppress(Exception):  # each runtime refuses `sparkContext` by an error of its own
        return session.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    return ""


def _read(session: SparkSession, checkpoint: str) -> str:
    """The query id in a checkpoint; read for each batch, as a new query may use the folder."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - this module costs nothing else

    path = f"{checkpoint.rstrip('/')}/metadata"
    try:
        lines = [str(line[0]) for line in session.read.text(path).collect()]
        return str(json.loads("".join(lines))["id"])
    except (PySparkException, ValueError, KeyError) as error:
        raise InvalidArgumentError(
            f"'{checkpoint}' is not the checkpoint of a query that runs: {path} has no query id."
            " Give the query's checkpointLocation.",
            checkpoint=checkpoint,
        ) from error
