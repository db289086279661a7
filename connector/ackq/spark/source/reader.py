"""The streaming source: turns Spark's calls into steps of a session (S4, K1, K2).

Acknowledgements happen in `latestOffset(start)`: `start` proves that the batch which ended at this
offset is in Spark's commit log. `__init__` and `initialOffset` call no broker, `commit` only to
report a batch without rows (S11), and nothing depends on `stop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ackq import limits
from ackq.client.connection.broker import Broker
from ackq.spark import connections, task
from ackq.spark.engine import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from ackq.spark.options.options import SourceOptions
from ackq.spark.schema import check_read
from ackq.spark.source.checkpoint_proof import CheckpointProof
from ackq.spark.source.fetch import LeaseRange, fetch
from ackq.spark.source.lease import ReadLimits, SessionDriver
from ackq.spark.source.offset import OPENING, VERSION, Offset
from ackq.spark.source.partitions import split
from ackq.spark.source.subscription import subscribe
from ackq.wire import columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ackq.client import Session
    from ackq.info import SessionInfo


class AckqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues through a session.

    Spark makes one instance in the query's reader process, whose offset methods it calls, and
    another that it pickles into tasks for `read`; so an instance is plain data until the first
    offset call.

    Args:
        options: The source's options.
        schema: The columns wanted; the broker sends no others.
        connect: Returns the client of a broker.
        find: Returns a session by name, as recorded by the broker.
        subscribe: Declares and binds the queue of a subscription.

    Raises:
        SchemaError: `schema` has a column that the source does not have.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[Broker], Session] = connections.session,
        find: Callable[[Broker, str], SessionInfo] = connections.find_session,
        subscribe: Callable[[SourceOptions], None] = subscribe,
    ) -> None:
        self._options = options
        self._names = check_read(schema, columns.DELIVERED)
        self._connect = connect
        self._find = find
        self._subscribe = subscribe
        self._horizon: int | None = None
        self._session_driver: SessionDriver | None = None
        self._proof = CheckpointProof()

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """The opening offset, the same for every query, so it may be asked for repeatedly."""
        return OPENING.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The default read limit; never read-all, so that read-all means Trigger.Once."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Bounds the run to the messages that are ready now (K5)."""
        self._horizon = self._connect(self._options.broker).horizon()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Accepts up to `start`, leases the next batch and returns its end (S4), in one RPC.

        Returns `start` itself when there is no lease.

        Raises:
            UnsupportedError: The query tracks its progress asynchronously (K11).
            AckqError: As `SessionDriver.advance` and, in the first call of a query, `subscribe`.
        """
        begin = Offset.from_dict(start)
        self._proof.check(begin)
        if begin.is_opening and self._options.exchange:
            self._subscribe(self._options)
        end = self._driver().advance(begin, self._read_limits(limit))
        self._proof.answered(begin, end)
        if self._horizon is not None and end.incarnation != begin.incarnation:
            # An opening requeues the lease of the incarnation it replaces: ready only since then.
            self.prepareForTriggerAvailableNow()
        return end.to_dict()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """The backlog as the last call of `latestOffset` saw it, for `lastProgress`; no RPC."""
        if self._session_driver is None or self._session_driver.backlog is None:
            return None
        backlog = self._session_driver.backlog
        report: dict[str, object] = {
            "v": VERSION,
            "ready": backlog.ready,
            "unacked": backlog.unacked,
            "oldest_age_ms": backlog.oldest_age_ms,
            "redelivered": backlog.redelivered,
            "attaches": self._session_driver.attaches,
            "session": self._session_driver.session,
            "lease_bytes": self._session_driver.lease_bytes,
        }
        if self._session_driver.warning:
            report["warning"] = self._session_driver.warning
        return report

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """The tasks of a batch: a pure function of the lease, which a replay looks up once (K2).

        Raises:
            AckqError: As `SessionDriver.lease`.
        """
        first, last = Offset.from_dict(start), Offset.from_dict(end)
        if last.is_opening or first == last:
            return []
        lease = self._driver().lease(first, last)
        if lease is None:
            return []
        if not last.tag:
            # The batch of an opening has no rows; its task reports the query and the batch.
            return [LeaseRange(lease.session, lease.incarnation, lease.epoch, 0, 0, lease.key)]
        return [
            LeaseRange(lease.session, lease.incarnation, lease.epoch, after, upto, lease.key)
            for after, upto in split(lease.spans, self._options.split)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs on an executor, any number of times (S2)."""
        assert isinstance(partition, LeaseRange)
        session = self._connect(self._options.broker)
        return fetch(session, partition, self._names, task.current())

    def commit(self, end: dict[str, object]) -> None:  # noqa: ARG002 - Spark's signature
        """Notes that Spark commits; the acknowledgement itself is the next `latestOffset` (K1).

        Spark commits after it has planned the next batch; one without rows is reported (S11).

        Raises:
            AckqError: As `SessionDriver.plan_empty`.
        """
        empty = self._proof.committed()
        if empty is not None:
            self._driver().plan_empty(empty)

    def stop(self) -> None:
        """Ends the liveness stream early; Spark usually kills the process instead."""
        if self._session_driver is not None:
            self._session_driver.close()

    def _driver(self) -> SessionDriver:
        if self._session_driver is None:
            broker = self._options.broker
            self._session_driver = SessionDriver(
                self._options, self._connect(broker), partial(self._find, broker)
            )
        return self._session_driver

    def _read_limits(self, limit: ReadLimit) -> ReadLimits:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return ReadLimits(max_messages=0, max_bytes=0, open_and_lease=True)
        if self._horizon is not None:
            return ReadLimits(options.max_messages, options.max_bytes, horizon=self._horizon)
        return ReadLimits(
            options.max_messages,
            options.max_bytes,
            min_messages=options.min_messages,
            max_delay_ms=options.max_delay_ms,
            wait_ms=limits.ADVANCE_WAIT_MS,
        )
