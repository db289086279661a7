"""Browse: a batch read of a queue that leaves its messages where they are (Q5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ackq.client.connection.broker import Broker
from ackq.spark import connections
from ackq.spark.options.options import BrowseOptions
from ackq.spark.schema import check_read
from ackq.spark.source.partitions import SizedSpan, split
from ackq.wire import columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ackq.client import Admin

# The default schema is the same for stream and batch, so a browse has the stream's columns too; a
# browse delivers nothing, hence a null tag.
_UNDELIVERED: Final = "delivery_tag"
_COLUMNS: Final = {**columns.DELIVERED, **columns.BROWSED}


@dataclass(frozen=True)
class PositionRange(InputPartition):
    """Positions first..last (inclusive) of a queue, read by one task."""

    first: int
    last: int


class AckqBrowser(DataSourceReader):
    """Batch reader of a queue's messages, ready and leased.

    It has the columns of a stream, with `delivery_tag` null, and by `.schema(...)` also `position`
    and `leased`. There is no `pushFilters`: Spark fails every read of a reader that has one while
    `spark.sql.python.filterPushdown.enabled` is false, as it is unless set.

    Raises:
        SchemaError: `schema` has a column that a browse does not have.
    """

    def __init__(
        self,
        options: BrowseOptions,
        schema: StructType,
        connect: Callable[[Broker], Admin] = connections.admin,
        wait_ready: Callable[[Broker], None] = connections.wait_ready,
    ) -> None:
        self._options = options
        self._wait_ready = wait_ready
        self._names = check_read(schema, _COLUMNS)
        self._connect = connect

    def partitions(self) -> list[InputPartition]:
        """The tasks, split like the tasks of a stream; messages published later are not read.

        Raises:
            QueueNotFoundError, BrokerUnavailableError: As named.
        """
        options = self._options
        plan = self._admin().plan_browse(options.queue)
        spans: list[SizedSpan] = []
        for chunk in plan:
            first = max(chunk.first_position, options.first_position)
            last = min(chunk.last_position, options.last_position or chunk.last_position)
            if first <= last:
                spans.append(SizedSpan(first - 1, last, chunk.payload_bytes))
        return [PositionRange(after + 1, last) for after, last in split(spans, options.split)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task, in position order."""
        if not isinstance(partition, PositionRange):
            return  # Spark adds a partition of its own when there are none
        wanted = [name for name in self._names if name != _UNDELIVERED]
        batches = self._admin().browse(
            self._options.queue,
            first_position=partition.first,
            last_position=partition.last,
            columns=wanted or ["position"],
        )
        for batch in batches:
            yield self._arranged(batch)

    def _admin(self) -> Admin:
        """The client, after waiting for a broker that is unavailable or restarts."""
        self._wait_ready(self._options.broker)
        return self._connect(self._options.broker)

    def _arranged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a null `delivery_tag` where the schema has one."""
        if _UNDELIVERED not in self._names:
            return batch
        arrays = [
            pa.nulls(batch.num_rows, pa.int64()) if name == _UNDELIVERED else batch.column(name)
            for name in self._names
        ]
        return pa.RecordBatch.from_arrays(
            arrays, schema=pa.schema([pa.field(name, _COLUMNS[name][1]) for name in self._names])
        )
