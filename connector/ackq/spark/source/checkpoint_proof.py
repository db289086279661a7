"""Checks that a start offset proves a checkpointed batch (K11), and detects empty ones (S11).

In Spark's ordinary engine, `latestOffset(A)` that answered B is followed by `commit(A)` before
`latestOffset(B)`. With asynchronous progress tracking it is not, and B proves nothing: accepting up
to B could lose rows. A `commit` after `latestOffset(A)` answered A says that Spark has planned a
batch without rows of this source: it writes `offsets/N`, calls `commit(A)`, and runs batch N.
"""

from __future__ import annotations

from ackq.errors import UnsupportedError
from ackq.spark.source.offset import Offset


class CheckpointProof:
    """The last answer of `latestOffset` in this process, until Spark commits its start."""

    def __init__(self) -> None:
        self._owed_by: Offset | None = None
        self._unchanged: Offset | None = None

    def answered(self, start: Offset, end: Offset) -> None:
        """Records that `latestOffset(start)` answered `end`; an opening has no batch to commit."""
        self._owed_by = end if end != start and not start.is_opening else None
        self._unchanged = end if end == start else None

    def committed(self) -> Offset | None:
        """Records a call of `commit`; returns the planned batch's offset if it has no rows."""
        self._owed_by = None
        return self._unchanged

    def check(self, start: Offset) -> None:
        """Raises UnsupportedError when `start` comes and the batch before it was not committed."""
        if self._owed_by == start:
            raise UnsupportedError(
                f"Session '{start.session}' is read with asynchronous progress tracking, which"
                " starts a batch before the previous one is in the checkpoint: messages would be"
                " acknowledged too early. Remove the option asyncProgressTrackingEnabled from the"
                " query.",
                session=start.session,
            )
