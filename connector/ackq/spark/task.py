"""What a Spark task says about itself: the query, run, batch and SQL execution it belongs to.

Spark gives a reader and a writer none of these by argument; they are local properties that travel
with the task.
"""

from __future__ import annotations

import gc
import itertools
from typing import Final, NamedTuple

from pyspark import TaskContext

_tasks: Final = itertools.count(1)


class Task(NamedTuple):
    """A running task.

    Attributes:
        query_id: The streaming query, the same over restarts; empty outside of one.
        run_id: This run of the query; empty outside of one.
        batch_id: The micro-batch; 0 outside of a query.
        execution_id: The SQL execution: one per action, so two writes of one `foreachBatch` differ.
        label: Partition and attempt, for operators.
    """

    query_id: str
    run_id: str
    batch_id: int
    execution_id: str
    label: str


def current() -> Task:
    """The task that this process runs now; called once at its begin."""
    context = TaskContext.get()
    assert context is not None, "read and write run in tasks only"
    if next(_tasks) == 2:  # noqa: PLR2004 - the first one has imported everything by now
        # Spark collects garbage after each task. To walk pyspark, pyarrow, pandas and gRPC for it
        # takes a worker 20 ms, of the 250 that it has for 32 MB of rows.
        gc.freeze()
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    return Task(
        query_id=query_id,
        # A streaming query runs its jobs under its run id as the job group.
        run_id=(context.getLocalProperty("spark.jobGroup.id") or "") if query_id else "",
        batch_id=int(context.getLocalProperty("streaming.sql.batchId") or 0),
        execution_id=context.getLocalProperty("spark.sql.execution.id") or "",
        label=f"partition {context.partitionId()} attempt {context.attemptNumber()}"
        f" task {context.taskAttemptId()}",
    )
