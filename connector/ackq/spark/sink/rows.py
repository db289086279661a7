"""Turns the rows a query writes into message batches and says where each of them goes.

Decided once per write from options and columns (an option beats the column of the same meaning);
per batch only Arrow kernels run, so the cost is per column, not per row (K7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackq.errors import InvalidArgumentError, SchemaError
from ackq.spark.options.options import SinkOptions
from ackq.spark.schema import check_write
from ackq.wire import columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Addressed(NamedTuple):
    """Messages for one exchange.

    Attributes:
        batch: Columns of `columns.PUBLISHABLE`, in Spark's Arrow types.
        exchange: Empty is the default exchange.
        routing_key: Of every row, when the batch has no such column.
    """

    batch: pa.RecordBatch
    exchange: str
    routing_key: str


class Route(NamedTuple):
    """Where the rows of one write go.

    Attributes:
        exchange: The exchange of every row; None: the column `exchange` holds it.
        key_column: The column that holds each row's routing key, if one does.
        routing_key: The routing key of every row otherwise.
    """

    exchange: str | None = ""
    key_column: str | None = None
    routing_key: str = ""


def route(options: SinkOptions, have: set[str]) -> Route:
    """Decides from the options and the columns there are; an option beats its column.

    Raises:
        InvalidArgumentError: Nothing says where the rows go, or two things say different ways.
    """
    if options.queue is not None:
        return Route(routing_key=options.queue)
    if options.exchange is None and "exchange" not in have:
        return _by_queue_column(options, have)
    if options.exchange is None and "queue" in have:
        raise InvalidArgumentError(
            "The rows have a column 'queue' and a column 'exchange', which are two ways to say"
            " where a row goes. Drop one, or set the option 'queue' or 'exchange'."
        )
    if options.routing_key is None and "routing_key" in have:
        return Route(exchange=options.exchange, key_column="routing_key")
    return Route(exchange=options.exchange, routing_key=options.routing_key or "")


def _by_queue_column(options: SinkOptions, have: set[str]) -> Route:
    if "queue" not in have:
        raise InvalidArgumentError(
            "Nothing says where the rows go: set the option 'queue', or 'exchange' and"
            " 'routingKey', or add a column 'queue' or 'exchange' (with 'routing_key')."
        )
    if options.routing_key is not None:
        raise InvalidArgumentError(
            "The option 'routingKey' needs an exchange, but the rows name queues. Set the option"
            " 'exchange', or remove 'routingKey'."
        )
    return Route(key_column="queue")


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of one write become messages.

    Attributes:
        names: The columns that travel as they are.
        route: Where the rows go.
        persistent: The delivery mode of every row; None: the column's, or the broker's default.
    """

    names: tuple[str, ...]
    route: Route
    persistent: bool | None

    @classmethod
    def plan(cls, options: SinkOptions, schema: StructType) -> Shape:
        """Decides from options and columns.

        Raises:
            SchemaError: A column is missing, unknown, or of the wrong type.
            InvalidArgumentError: As `route`.
        """
        check_write(schema)
        have = set(schema.fieldNames())
        skipped = {"routing_key"} | ({"persistent"} if options.persistent is not None else set())
        return cls(
            names=tuple(n for n in columns.PUBLISHABLE if n in have and n not in skipped),
            route=route(options, have),
            persistent=options.persistent,
        )

    def messages(self, rows: pa.RecordBatch) -> Iterator[Addressed]:
        """The messages of a batch of rows: one part, or one per value of an exchange column.

        Rows of one exchange keep their order.

        Raises:
            SchemaError: A row has no body, or no queue or exchange in the column that should name
                it.
        """
        if not rows.num_rows:
            return
        batch = self._message_columns(rows)
        if self.route.exchange is not None:
            yield Addressed(batch, self.route.exchange, self.route.routing_key)
            return
        exchanges = _address(rows, "exchange")
        names = pc.unique(exchanges).to_pylist()
        for name in names:
            part = batch if len(names) == 1 else batch.filter(pc.equal(exchanges, name))
            yield Addressed(part, name, self.route.routing_key)

    def _message_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that travel, by their names in a message; the client conforms their types."""
        _required(
            rows, "body", "a message has a body, which may be empty. Fill it, or drop the rows"
        )
        found = {name: rows.column(name) for name in self.names}
        if self.route.key_column == "queue":
            found["routing_key"] = _address(rows, "queue")
        elif self.route.key_column is not None:
            found["routing_key"] = rows.column(self.route.key_column)
        if self.persistent is not None:
            found["persistent"] = pa.repeat(pa.scalar(self.persistent), rows.num_rows)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _address(rows: pa.RecordBatch, name: str) -> pa.Array:
    """A routing column that must say something in every row."""
    return _required(rows, name, f"nothing says where they go. Fill it, or set the option '{name}'")


def _required(rows: pa.RecordBatch, name: str, remedy: str) -> pa.Array:
    """A column that has a value in every row."""
    column = rows.column(name)
    if column.null_count:
        row = pc.index(pc.is_null(column), pa.scalar(True)).as_py()
        raise SchemaError(
            f"Column '{name}' is null in {column.null_count} rows (the first is row {row} of its"
            f" batch): {remedy}.",
            column=name,
        )
    return column
