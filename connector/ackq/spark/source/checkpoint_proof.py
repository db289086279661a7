"""Checks that a start offset proves a checkpointed batch (K11), and detects empty ones (S11).

In Spark's ordinary engine, `latestOffset(A)` that answered B is followed by `commit(A)` before
`latestOffset(B)`. With asynchronous progress tracking it is not, and B proves nothing: accepting up
to B could lose rows. A `commit` after an answer that left an edge at its place says that Spark has
planned a batch without rows of this edge: Spark writes `offsets/N`, calls `commit`, and runs N.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackq.errors import UnsupportedError
from ackq.spark.source.offset import Offset, Offsets


class CheckpointProof:
    """The last answer of `latestOffset` in this process, until Spark commits its start."""

    def __init__(self) -> None:
        self._owed_by: Offsets | None = None
        self._unchanged: Mapping[str, Offset] = {}

    def answered(self, start: Offsets, end: Offsets) -> None:
        """Records that `latestOffset(start)` answered `end`; an opening has no batch to commit."""
        self._owed_by = end if end != start and not start.is_opening else None
        self._unchanged = {
            name: place
            for name, place in end.places.items()
            if start.start_of(name, place) == place
        }

    def committed(self) -> Mapping[str, Offset]:
        """Records a call of `commit`; returns the places of edges without rows in the batch."""
        self._owed_by = None
        return self._unchanged

    def check(self, start: Offsets) -> None:
        """Raises UnsupportedError when `start` comes and the batch before it was not committed."""
        if self._owed_by == start:
            session = next(place.session for place in start.places.values())
            raise UnsupportedError(
                f"Session '{session}' is read with asynchronous progress tracking, which"
                " starts a batch before the previous one is in the checkpoint: messages would be"
                " acknowledged too early. Remove the option asyncProgressTrackingEnabled from the"
                " query.",
                session=session,
            )
