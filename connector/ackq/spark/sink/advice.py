"""Advice to a query that writes under Spark's default bound on the bytes of an Arrow batch.

For that bound Spark computes the size of every row, which takes longer than the write itself; the
sink gets rows that are converted already, so that it can only log advice.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Final

from pyspark import TaskContext

from ackq.spark.configuration import BATCH_BYTES, BYTES, NO_BYTE_BOUND, ROWS

_log: Final = logging.getLogger("ackq.spark")

# Fewer rows in a batch are written in a few ms either way.
_ROWS_TO_ADVISE: Final = 10_000


def sizes_every_row() -> bool:
    """Whether Spark computes the size of each row for the running task."""
    context = TaskContext.get()
    # Spark passes the settings that are not default to its tasks.
    return context is not None and context.getLocalProperty(BYTES) is None


def advise(sized_rows: int) -> None:
    """Logs how to write faster, once per process, when a batch has many rows of computed size."""
    if sized_rows >= _ROWS_TO_ADVISE:
        _advise_once()


@cache
def _advise_once() -> None:
    _log.warning(
        "Spark computes the size of every row that this query writes, as %s is not set; that takes"
        " the JVM three times as long as the write, or longer. Give ackq.spark.configure the size"
        " of the largest row (max_message_bytes), or set %s to %d and %s to 2000, or to %d divided"
        " by the bytes of the largest row where that is less.",
        BYTES,
        BYTES,
        NO_BYTE_BOUND,
        ROWS,
        BATCH_BYTES,
    )
