"""The streaming source: turns Spark's calls into steps of a session (S4, K1, K2).

Acknowledgements happen in `latestOffset(start)`: `start` proves that the batch which ended at this
offset is in Spark's commit log. `__init__` and `initialOffset` call no broker, `commit` only to
report a batch without rows (S11), and nothing depends on `stop`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ackq import limits
from ackq.client.connection.broker import Broker
from ackq.errors import CheckpointMismatchError, SchemaError
from ackq.spark import connections, task
from ackq.spark.engine import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from ackq.spark.options.options import SourceOptions
from ackq.spark.schema import EDGE, STREAMED, check_read
from ackq.spark.source.checkpoint_proof import CheckpointProof
from ackq.spark.source.edges import Edges
from ackq.spark.source.fetch import LeaseRange, fetch
from ackq.spark.source.lease import ReadLimits, SessionDriver
from ackq.spark.source.offset import VERSION, Offset, Offsets
from ackq.spark.source.partitions import TagSpan, split
from ackq.spark.source.subscription import subscribe
from ackq.wire.answers import copied

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
        subscribe: Declares and binds the queue of a subscription at a broker.

    Raises:
        SchemaError: `schema` has a column that the source does not have, or with several edges tags
            without the column `edge` (S12).
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[Broker], Session] = connections.session,
        find: Callable[[Broker, str], SessionInfo] = connections.find_session,
        subscribe: Callable[[SourceOptions, Broker], None] = subscribe,
    ) -> None:
        self._options = options
        self._names = check_read(schema, STREAMED)
        # Tags are an edge's own: without `edge`, rows of one would settle another's messages.
        self._mixes = "delivery_tag" in self._names and EDGE not in self._names
        if self._mixes and len(options.endpoints) > 1:
            raise SchemaError(
                "The schema has the column 'delivery_tag' without 'edge'. The option 'endpoint'"
                " names several brokers, and each has tags of its own: add 'edge string'.",
                column=EDGE,
            )
        self._connect = connect
        self._find = find
        self._subscribe = subscribe
        self._endpoints = options.endpoints
        self._edges: Edges | None = None
        self._proof = CheckpointProof()

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """The opening offset, the same for every query, so it may be asked for repeatedly."""
        return Offsets().to_dict(self._endpoints)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The default read limit; never read-all, so that read-all means Trigger.Once."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Bounds the run to the messages that are ready now (K5)."""
        self._sessions().bound()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Accepts up to `start`, leases the next batch and returns its end (S4), in one RPC.

        Returns `start` itself when there is no lease.

        Raises:
            UnsupportedError: The query tracks its progress asynchronously (K11).
            AckqError: As `Edges.advance` and, where a session is opened, `subscribe`.
        """
        return self._advance(self._offsets(start), limit).to_dict(self._endpoints)

    def _advance(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        """`latestOffset` from a place, which also has edges that the query no longer names."""
        self._proof.check(begin)
        end = self._sessions().advance(begin, self._read_limits(limit))
        self._proof.answered(begin, end)
        return end

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """The backlog as the last call of `latestOffset` saw it, for `lastProgress`; no RPC."""
        edges = self._sessions()
        # The edges that this start of the query has removed have drivers, too.
        reports = {
            name: found
            for name, each in edges.drivers.items()
            if name in self._endpoints and (found := _report(each))
        }
        if len(self._endpoints) == 1 or not reports:
            return next(iter(reports.values()), None)
        total: dict[str, Any] = {
            key: (max if key in {"v", "oldest_age_ms", "attaches"} else sum)(
                each[key] for each in reports.values()
            )
            for key in next(iter(reports.values())).keys() - {"session", "warning"}
        }
        warnings = [each["warning"] for each in reports.values() if "warning" in each]
        warnings += [f"Edge {name} is skipped: it does not answer." for name in sorted(edges.away)]
        if warnings:
            total["warning"] = " ".join(warnings)
        return {**total, "edges": reports}

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """The tasks of a batch: a pure function of the lease, which a replay looks up once (K2).

        Raises:
            AckqError: As `SessionDriver.lease`.
        """
        first, last = self._offsets(start), self._offsets(end)
        ranges: list[LeaseRange] = []
        for name, place in last.places.items():
            if (start_of := first.start_of(name, place)) != place:
                present = self._sessions().present_name(name, last.places)
                ranges += self._ranges(present, start_of, place)
        return ranges

    def _ranges(self, name: str, first: Offset, last: Offset) -> list[LeaseRange]:
        """The tasks of an edge; the edges share the cores."""
        lease = self._sessions().lease(name, first, last)
        if lease is None:
            return []
        if self._mixes and name not in self._endpoints:
            raise CheckpointMismatchError(
                f"The batch to run again has messages of edge {name}, which the option 'endpoint'"
                " does not name, and no column 'edge' tells its tags from others. Run the batch"
                " with the query's earlier endpoints, and remove the edge then.",
                endpoint=name,
            )
        spans = [TagSpan(0, 0)]  # an opening has no rows; its task reports the query and the batch
        if last.tag:
            edges = len(self._endpoints)
            options, cores = self._options.split, -(-(os.cpu_count() or 1) // edges)
            least = -(-options.min_partitions // edges)
            spans = split(lease.spans, replace(options, min_partitions=least), cores)
        return [
            copied(LeaseRange, lease, after_tag=after, last_tag=upto, edge=name)
            for after, upto in spans
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs on an executor, any number of times (S2)."""
        assert isinstance(partition, LeaseRange)
        broker = self._options.at(partition.edge or self._endpoints[0])
        session = self._connect(broker)
        return fetch(session, partition, self._names, task.current())

    def commit(self, end: dict[str, object]) -> None:  # noqa: ARG002 - Spark's signature
        """Notes that Spark commits; the acknowledgement itself is the next `latestOffset` (K1).

        Spark commits after it has planned the next batch; one without rows is reported (S11).

        Raises:
            AckqError: As `SessionDriver.plan_empty`.
        """
        if empty := self._proof.committed():
            self._sessions().plan_empty(empty)

    def stop(self) -> None:
        """Ends the liveness stream early; Spark usually kills the process instead."""
        if self._edges is not None:
            self._edges.close()

    def _offsets(self, raw: dict[str, object]) -> Offsets:
        return Offsets.from_dict(raw, self._endpoints)

    def _sessions(self) -> Edges:
        if self._edges is None:
            self._edges = Edges(self._options, self._connect, self._find, self._subscribe)
        return self._edges

    def _read_limits(self, limit: ReadLimit) -> ReadLimits:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return ReadLimits(max_messages=0, max_bytes=0, open_and_lease=True)
        if self._sessions().is_bounded:
            return ReadLimits(options.max_messages, options.max_bytes)
        return ReadLimits(
            options.max_messages,
            options.max_bytes,
            min_messages=options.min_messages,
            max_delay_ms=options.max_delay_ms,
            wait_ms=limits.ADVANCE_WAIT_MS,
        )


def _report(driver: SessionDriver) -> dict[str, Any]:
    """The backlog of a session at its last advance; empty before the first."""
    backlog = driver.backlog
    if backlog is None:
        return {}
    report: dict[str, Any] = {
        "v": VERSION,
        "ready": backlog.ready,
        "unacked": backlog.unacked,
        "oldest_age_ms": backlog.oldest_age_ms,
        "redelivered": backlog.redelivered,
        "attaches": driver.attaches,
        "session": driver.session,
        "lease_bytes": driver.lease_bytes,
    }
    return {**report, "warning": driver.warning} if driver.warning else report
