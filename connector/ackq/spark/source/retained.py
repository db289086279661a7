"""A batch read of accepted batches that a session retains (S13)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ackq.client.connection.broker import Broker
from ackq.spark import connections
from ackq.spark.options.options import RetainedOptions
from ackq.spark.schema import check_read
from ackq.spark.source.partitions import SizedSpan, split
from ackq.wire import columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ackq.client import Admin

_log: Final = logging.getLogger("ackq.spark")


@dataclass(frozen=True)
class RetainedRange(InputPartition):
    """Tags (after_tag, last_tag] of retained batches, read by one task."""

    session: str
    incarnation: str
    after_tag: int
    last_tag: int


class RetainedReader(DataSourceReader):
    """Batch reader of accepted batches: the rows as the query saw them; it changes nothing.

    Raises:
        SchemaError: `schema` has a column that a stream does not have.
    """

    def __init__(
        self,
        options: RetainedOptions,
        schema: StructType,
        connect: Callable[[Broker], Admin] = connections.admin,
        wait_ready: Callable[[Broker], None] = connections.wait_ready,
    ) -> None:
        self._options = options
        self._names = check_read(schema, columns.DELIVERED)
        self._connect = connect
        self._wait_ready = wait_ready

    def partitions(self) -> list[InputPartition]:
        """The tasks, split like the tasks of a stream.

        Raises:
            SessionNotFoundError: No such session.
            PreconditionFailedError: Some of what the options name is not retained.
        """
        options = self._options
        found = self._admin().retained(
            options.session, batch=options.batch, from_us=options.from_us, to_us=options.to_us
        )
        spans = []
        for batch in found.batches:
            after = batch.after_tag
            for chunk in batch.chunks:
                spans.append(SizedSpan(after, chunk.last_tag, chunk.payload_bytes))
                after = chunk.last_tag
        if holes := sum(batch.holes for batch in found.batches):
            _log.warning(
                "%d messages of these batches of session '%s' were purged or lost since, or were"
                " not in them: their rows are missing.",
                holes,
                options.session,
            )
        tasks = split(spans, options.split)
        return [RetainedRange(options.session, found.incarnation, *task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task, in tag order."""
        if not isinstance(partition, RetainedRange):
            return  # Spark adds a partition of its own when there are none
        yield from self._admin().browse_lease(
            partition.session,
            first_tag=partition.after_tag + 1,
            last_tag=partition.last_tag,
            columns=self._names,
            incarnation=partition.incarnation,
        )

    def _admin(self) -> Admin:
        """The client, after waiting for a broker that is unavailable or restarts."""
        self._wait_ready(self._options.broker)
        return self._connect(self._options.broker)
