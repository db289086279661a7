"""The running Spark task: the query, run, batch and SQL execution it belongs to.

Spark gives a reader and a writer none of these by argument; they are local properties that travel
with the task.
"""

from __future__ import annotations

import gc
import itertools
import uuid
from typing import Final, NamedTuple

from pyspark import TaskContext

from ackq.errors import InvalidArgumentError
from ackq.wire import allocator

_tasks: Final = itertools.count(1)


class Task(NamedTuple):
    """A running task.

    Attributes:
        query_id: The streaming query, the same over restarts; empty outside of one.
        run_id: This run of the query; empty outside of one, and where the job group hides it.
        batch_id: The micro-batch; 0 outside of a query.
        execution_id: The SQL execution: one per action, so two writes of one `foreachBatch` differ.
        label: Partition and attempt, for operators.
        job_group: Spark's job group, which in a streaming query is its run id.
    """

    query_id: str
    run_id: str
    batch_id: int
    execution_id: str
    label: str
    job_group: str = ""

    def check_run(self, what: str) -> None:
        """Refuses an operation that needs the run of its query, where the run is hidden (S6, K12).

        Args:
            what: The operation, for the message.

        Raises:
            InvalidArgumentError: `foreachBatch` has put another job group in the run's place.
        """
        if self.query_id and not self.run_id:
            set_or_cleared = f"set the job group '{self.job_group}'"
            if not self.job_group:
                set_or_cleared = "cleared the job group"
            raise InvalidArgumentError(
                f"foreachBatch {set_or_cleared}, which hides the run of the query from its tasks,"
                f" and {what} needs the run. Use setJobDescription or addJobTag instead of"
                " setJobGroup.",
                job_group=self.job_group,
            )


def current() -> Task:
    """The task that this process runs now; called once at the start of each task."""
    context = TaskContext.get()
    assert context is not None, "read and write run in tasks only"
    allocator.keep_freed()
    if next(_tasks) == 2:  # noqa: PLR2004 - the first one has imported everything by now
        # Spark collects garbage after each task. Walking the objects of pyspark, pyarrow, pandas
        # and gRPC takes 20 ms of the 250 ms that a worker needs for 32 MB of rows.
        gc.freeze()
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    job_group = context.getLocalProperty("spark.jobGroup.id") or ""
    return Task(
        query_id=query_id,
        # The job group of a streaming query is its run id, which is available nowhere else. Spark
        # sets it once, on the thread that foreachBatch shares.
        run_id=job_group if query_id and _is_uuid(job_group) else "",
        batch_id=int(context.getLocalProperty("streaming.sql.batchId") or 0),
        execution_id=context.getLocalProperty("spark.sql.execution.id") or "",
        label=f"partition {context.partitionId()} attempt {context.attemptNumber()}"
        f" task {context.taskAttemptId()}",
        job_group=job_group,
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
