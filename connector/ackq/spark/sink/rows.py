"""Maps the rows of a write to message batches, each with its exchange and routing keys.

The mapping is decided once per write from options and columns (an option overrides the column of
the same meaning); per batch only Arrow kernels run, so the cost is per column, not per row (K7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType

from ackq.client.blocks.encoding import check_text
from ackq.errors import InvalidArgumentError, SchemaError, UnsupportedError
from ackq.spark.options.options import SinkOptions
from ackq.spark.schema import ROUTING, check_write
from ackq.wire import columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RoutedBatch(NamedTuple):
    """Messages for one exchange.

    Attributes:
        batch: Columns of `columns.PUBLISHABLE`, in Spark's Arrow types.
        exchange: Its name; empty for the default exchange.
        routing_key: Routing key of all rows, if the batch has no such column.
    """

    batch: pa.RecordBatch
    exchange: str
    routing_key: str


class Routing(NamedTuple):
    """Exchange and routing key of the rows of one write.

    Attributes:
        exchange: Exchange of all rows; None: each row's is in the column `exchange`.
        key_column: The column with each row's routing key, if any.
        routing_key: Otherwise the routing key of all rows.
    """

    exchange: str | None = ""
    key_column: str | None = None
    routing_key: str = ""


def routing(options: SinkOptions, have: set[str]) -> Routing:
    """The routing that options and columns give; an option overrides its column.

    Raises:
        InvalidArgumentError: No destination is given, or two that contradict each other.
    """
    if options.queue is not None:
        return Routing(routing_key=options.queue)
    if options.exchange is None and "exchange" not in have:
        return _by_queue_column(options, have)
    if options.exchange is None and "queue" in have:
        raise InvalidArgumentError(
            "The rows have a column 'queue' and a column 'exchange', which both set the"
            " destination of a row. Drop one, or set the option 'queue' or 'exchange'."
        )
    if options.routing_key is None and "routing_key" in have:
        return Routing(exchange=options.exchange, key_column="routing_key")
    return Routing(exchange=options.exchange, routing_key=options.routing_key or "")


def _by_queue_column(options: SinkOptions, have: set[str]) -> Routing:
    if "queue" not in have:
        raise InvalidArgumentError(
            "The rows have no destination: set the option 'queue', or 'exchange' and"
            " 'routingKey', or add a column 'queue' or 'exchange' (with 'routing_key')."
        )
    if options.routing_key is not None:
        raise InvalidArgumentError(
            "The option 'routingKey' needs an exchange, but the rows name queues. Set the option"
            " 'exchange', or remove 'routingKey'."
        )
    return Routing(key_column="queue")


@dataclass(frozen=True, slots=True)
class RowMapping:
    """Mapping from the rows of one write to messages.

    Attributes:
        names: Columns that are sent unchanged.
        routing: Exchange and routing keys.
        persistent: Delivery mode of all rows; None: the column's, or the broker's default.
    """

    names: tuple[str, ...]
    routing: Routing
    persistent: bool | None

    @classmethod
    def plan(cls, options: SinkOptions, schema: StructType) -> RowMapping:
        """The mapping for these options and columns.

        Raises:
            SchemaError: A column is missing, unknown, or of the wrong type, or `shardBy` names none
                that has text and is sent.
            InvalidArgumentError: As `routing`.
        """
        check_write(schema)
        have = set(schema.fieldNames())
        shard_by = options.shard_by
        if shard_by and (
            shard_by not in have - set(ROUTING)
            or not isinstance(schema[shard_by].dataType, StringType)
        ):
            raise SchemaError(
                f"Option 'shardBy' is '{shard_by}', which is no column of the messages with text:"
                " name one of the rows' columns, such as message_id or routing_key.",
                column=shard_by,
            )
        routed = routing(options, have)
        if shard_by == "routing_key" and routed.key_column != "routing_key":
            raise SchemaError(
                "Option 'shardBy' is 'routing_key', but the rows' routing keys are not sent: the"
                " option 'queue' or 'routingKey', or a column 'queue', sets another one. Name"
                " another column, such as message_id.",
                column=shard_by,
            )
        skipped = {"routing_key"} | ({"persistent"} if options.persistent is not None else set())
        return cls(
            names=tuple(n for n in columns.PUBLISHABLE if n in have and n not in skipped),
            routing=routed,
            persistent=options.persistent,
        )

    def messages(self, rows: pa.RecordBatch) -> Iterator[RoutedBatch]:
        """The messages of a batch of rows: one batch, or one per value of an exchange column.

        Rows of one exchange keep their order.

        Raises:
            SchemaError: A row has no body, or no value in the column of its queue or exchange.
            InvalidArgumentError: The name of a queue or exchange is not UTF-8 (P8).
            UnsupportedError: Spark gives rows in place of batches (K13).
        """
        if not isinstance(rows, pa.RecordBatch):
            raise UnsupportedError(
                f"This Spark passes the sink a {type(rows).__name__} in place of Arrow batches."
                " Write each micro-batch from foreachBatch, with a batch write."
            )
        if not rows.num_rows:
            return
        batch = self._message_columns(rows)
        if self.routing.exchange is not None:
            yield RoutedBatch(batch, self.routing.exchange, self.routing.routing_key)
            return
        exchanges = _address(rows, "exchange")
        names = pc.unique(exchanges).to_pylist()
        for name in names:
            part = batch if len(names) == 1 else batch.filter(pc.equal(exchanges, name))
            yield RoutedBatch(part, name, self.routing.routing_key)

    def _message_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns to send, by their names in a message; the client conforms their types."""
        _required(
            rows, "body", "a message has a body, which may be empty. Fill it, or drop the rows"
        )
        found = {name: rows.column(name) for name in self.names}
        if self.routing.key_column == "queue":
            found["routing_key"] = _address(rows, "queue")
        elif self.routing.key_column is not None:
            found["routing_key"] = rows.column(self.routing.key_column)
        if self.persistent is not None:
            found["persistent"] = pa.repeat(pa.scalar(self.persistent), rows.num_rows)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _address(rows: pa.RecordBatch, name: str) -> pa.Array:
    """A routing column, checked to have a value in every row."""
    column = _required(
        rows, name, f"such a row has no destination. Fill it, or set the option '{name}'"
    )
    check_text(name, column)
    return column


def _required(rows: pa.RecordBatch, name: str, remedy: str) -> pa.Array:
    """A column, checked to have a value in every row."""
    column = rows.column(name)
    if column.null_count:
        row = pc.index(pc.is_null(column), pa.scalar(True)).as_py()
        raise SchemaError(
            f"Column '{name}' is null in {column.null_count} rows (the first is row {row} of its"
            f" batch): {remedy}.",
            column=name,
        )
    return column
