"""Checks the columns of a read and of a write against the schema that Spark gives.

The types come from `ackq.wire.columns`, the only list of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from ackq.errors import SchemaError
from ackq.spark.engine import arrow_schema
from ackq.wire import columns

if TYPE_CHECKING:
    Columns = dict[str, tuple[int, pa.DataType]]

# Routing columns of a write besides `routing_key`; they are not part of the message.
ROUTING: Final = ("queue", "exchange")

# The column with the endpoint of a row's broker, which no broker sends (S12).
EDGE: Final = "edge"
STREAMED: Final[Columns] = {**columns.DELIVERED, EDGE: (0, pa.string())}

# Further types that a write takes: widening them loses nothing.
_WIDENED: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": (BinaryType, StringType),
    "ttl_ms": (LongType, IntegerType, ShortType, ByteType),
}


def default(among: Columns) -> StructType:
    """All columns of a read in their canonical order, as of `load()` without `.schema(...)`."""
    return from_arrow_schema(_arrow(among))


def check_read(schema: StructType, among: Columns) -> list[str]:
    """The names of a read's columns; each must be one of `among` with its exact type.

    Args:
        schema: The user's argument of `.schema(...)`, or the default: any subset in any order.
            Columns left out are not sent.
        among: The columns that exist.

    Raises:
        SchemaError: A column does not exist, is given twice, has another type, or is declared NOT
            NULL.
    """
    if not schema.fields:
        raise SchemaError(
            "The schema has no column. Name at least one, for instance 'body binary'."
        )
    names = schema.fieldNames()
    for position, field in enumerate(schema.fields):
        if field.name not in among:
            raise SchemaError(
                f"There is no column '{field.name}' to read. Columns: {', '.join(among)}.",
                column=field.name,
            )
        if field.name in names[:position]:
            raise SchemaError(
                f"Column '{field.name}' appears twice in the schema.", column=field.name
            )
        expected = pa.field(field.name, among[field.name][1])
        found = _arrow_field(field)
        if found is None or found != expected:
            raise _wrong_type(
                field.name,
                _described(StructField(field.name, from_arrow_type(expected.type))),
                _described(field),
                "Read it with that type and cast it in the query",
            )
    return names


def check_write(schema: StructType) -> None:
    """Checks that a write's columns are message or routing columns with types that fit.

    Raises:
        SchemaError: `body` is missing, a column is unknown or of the wrong type, or is given twice.
    """
    names = schema.fieldNames()
    if "body" not in names:
        raise SchemaError(
            "The column 'body' (binary or string) is missing; the rows have"
            f" {', '.join(names) or 'no columns'}.",
            column="body",
        )
    if "expires_at" in names:
        raise SchemaError(
            "The sink has no column 'expires_at': the broker sets it, by its own clock, from the"
            " column 'ttl_ms' (milliseconds). Use .drop('expires_at'), and 'ttl_ms' for messages"
            " that expire.",
            column="expires_at",
        )
    unknown = [name for name in names if name not in (*columns.PUBLISHABLE, *ROUTING)]
    if unknown:
        raise SchemaError(
            f"The sink has no column {', '.join(map(repr, unknown))}."
            f" It takes {', '.join((*columns.PUBLISHABLE, *ROUTING))}."
            f" Remove the others: .drop({', '.join(map(repr, unknown))}).",
            column=unknown[0],
        )
    for position, field in enumerate(schema.fields):
        if field.name in names[:position]:
            raise SchemaError(
                f"Column '{field.name}' appears twice in the rows.", column=field.name
            )
        kinds = _WIDENED.get(field.name) or (type(_publishable(field.name)),)
        if not isinstance(field.dataType, kinds) or (
            field.name == "headers" and field.dataType.simpleString() != "map<string,string>"
        ):
            expected = " or ".join(
                dict.fromkeys(
                    [
                        _publishable(field.name).simpleString(),
                        *(kind().simpleString() for kind in kinds[1:]),
                    ]
                )
            )
            raise _wrong_type(field.name, expected, field.dataType.simpleString(), "Cast it")


def _arrow_field(field: StructField) -> pa.Field | None:
    """A column in Spark's Arrow type; None if no Arrow type holds it."""
    try:
        return arrow_schema(StructType([field])).field(0)
    except PySparkTypeError:
        return None


def _described(field: StructField) -> str:
    """Type and nullability, including that of a map's values."""
    values = ""
    if isinstance(field.dataType, MapType):
        values = f" with values {_nullable(field.dataType.valueContainsNull)}"
    return f"{field.dataType.simpleString()}{values}, {_nullable(field.nullable)}"


def _nullable(may_be_null: bool) -> str:  # noqa: FBT001
    return "nullable" if may_be_null else "not null"


def _arrow(among: Columns) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, (_, kind) in among.items()])


def _publishable(name: str) -> DataType:
    """The Spark type of a column of a write; routing columns are strings."""
    return from_arrow_type(columns.STORED[name][1]) if name in columns.STORED else StringType()


def _wrong_type(name: str, expected: str, found: str, remedy: str) -> SchemaError:
    return SchemaError(
        f"Column '{name}' is {found}; expected {expected}. {remedy}.",
        column=name,
        expected=expected,
        found=found,
    )
