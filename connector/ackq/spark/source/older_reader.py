"""The source on Spark 4.0 and 4.1, which do not pass the start offset of the next batch (K13).

Spark calls `latestOffset()` only when the batch that the previous answer led to is in its commit
log, and a restarted query first names the newest end of its checkpoint in `partitions`. So the
start of the next batch is the latest offset of either call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ackq.client.connection.broker import Broker
from ackq.errors import InvalidArgumentError, UnsupportedError
from ackq.spark import connections
from ackq.spark.options.options import SourceOptions
from ackq.spark.source.lease import ReadLimits
from ackq.spark.source.offset import Offsets
from ackq.spark.source.reader import AckqStreamReader
from ackq.spark.source.subscription import subscribe

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ackq.client import Session
    from ackq.info import SessionInfo
    from ackq.spark.engine import ReadLimit


_WRAPPER: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class OlderStreamReader(AckqStreamReader):
    """Streaming reader that keeps its query's offset itself, and leases in the first batch.

    Spark does not say which trigger a query has, and runs one batch under availableNow and once: so
    the first batch has rows, and a batch has all ready messages unless an option bounds it.

    Raises:
        InvalidArgumentError: The option `session` is missing. A driver that dies before its first
            batch is in the checkpoint leaves a lease, which the next driver finds only by the name.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[Broker], Session] = connections.session,
        find: Callable[[Broker, str], SessionInfo] = connections.find_session,
        subscribe: Callable[[SourceOptions, Broker], None] = subscribe,
    ) -> None:
        super().__init__(options, schema, connect, find, subscribe)
        if not options.session:
            raise InvalidArgumentError(
                "The option 'session' is missing. On Spark 4.0 and 4.1 a streaming read needs it:"
                " .option('session', NAME), with a name of its own for each query.",
                argument="session",
            )
        self._place = Offsets()
        self._answered = False
        self._unplanned_opening = False

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]  # noqa: N802
        """Accepts up to the query's offset and leases the next batch, as on newer versions.

        The first lease is answered once more if no task of it was planned: Spark's wrapper of
        availableNow calls twice before it writes `offsets/0`, and a query that does not read its
        rows plans no tasks.
        """
        if self._unplanned_opening:
            self._unplanned_opening = False
            return self._place.to_dict(self._endpoints)
        opening = self._place.is_opening
        self._place = self._advance(self._place, self.getDefaultReadLimit())
        self._answered = True
        leased = any(place.tag for place in self._place.places.values())
        self._unplanned_opening = opening and leased
        return self._place.to_dict(self._endpoints)

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """The tasks of a batch; a call with equal offsets has none, and gives the query's offset.

        Raises:
            UnsupportedError: Spark asked for an end before it gave the query's offset.
            AckqError: As `SessionDriver.lease`.
        """
        last = self._offsets(end)
        if self._answered and last != self._place:
            raise UnsupportedError(
                "Spark asked for the end of a batch before it passed the query's offset, because"
                f" its setting {_WRAPPER} is on. Turn it off: availableNow works without it.",
                setting=_WRAPPER,
            )
        self._place = last
        self._unplanned_opening = False
        return super().partitions(start, end)

    def _read_limits(self, limit: ReadLimit) -> ReadLimits:
        bounds = replace(super()._read_limits(limit), open_and_lease=self._place.is_opening)
        return bounds if self._options.bounded else replace(bounds, max_messages=0, max_bytes=0)
