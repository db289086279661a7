"""Columns of a read and a write: a wrong column is named with expected and found type."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    CalendarIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ackq.errors import SchemaError
from ackq.spark import schema
from ackq.spark.engine import arrow_schema
from ackq.wire import columns


def of(**fields):
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def test_default_schema_is_the_wire_types():
    """K7: the default schema has exactly the Arrow types of the wire."""
    found = arrow_schema(schema.default(columns.DELIVERED))
    assert found == pa.schema([(n, kind) for n, (_, kind) in columns.DELIVERED.items()])


def test_read_subset_in_any_order():
    """A user's schema selects and orders the columns; it has one at least."""
    names = schema.check_read(of(delivery_tag=LongType(), body=BinaryType()), columns.DELIVERED)
    assert names == ["delivery_tag", "body"]
    with pytest.raises(SchemaError, match="no column"):
        schema.check_read(StructType(), columns.DELIVERED)


@pytest.mark.parametrize(
    ("wanted", "column", "part"),
    [
        (of(payload=BinaryType()), "payload", "no column 'payload'"),
        (of(body=StringType()), "body", "expected binary, nullable"),
        (of(published_at=TimestampNTZType()), "published_at", "timestamp_ntz"),
        (of(headers=MapType(StringType(), BinaryType())), "headers", "map<string,binary>"),
        (StructType([StructField("body", BinaryType(), nullable=False)]), "body", "not null"),
        (
            of(headers=MapType(StringType(), StringType(), valueContainsNull=False)),
            "headers",
            "values not null, nullable; expected map<string,string> with values nullable",
        ),
        (of(body=CalendarIntervalType()), "body", "is interval, nullable; expected binary"),
        (
            StructType([StructField("body", BinaryType()), StructField("body", BinaryType())]),
            "body",
            "twice",
        ),
    ],
)
def test_read_of_a_wrong_column(wanted, column, part):
    """The error names a column that is unknown, repeated or of a wrong type."""
    with pytest.raises(SchemaError, match=part) as caught:
        schema.check_read(wanted, columns.DELIVERED)
    assert caught.value.fields["column"] == column


def test_write_takes_every_publishable_column():
    """The sink takes each publishable column, and the routing columns."""
    every = {
        **{f.name: f.dataType for f in schema.default(columns.DELIVERED)},
        "ttl_ms": LongType(),
        "queue": StringType(),
        "exchange": StringType(),
    }
    kept = {n: every[n] for n in (*columns.PUBLISHABLE, *schema.ROUTING)}
    schema.check_write(of(**kept))


@pytest.mark.parametrize("kind", [BinaryType(), StringType()])
def test_write_body_types(kind):
    """A body is binary or string."""
    schema.check_write(of(body=kind))


@pytest.mark.parametrize(
    ("rows", "column", "part"),
    [
        (of(value=BinaryType()), "body", "missing"),
        (of(body=BinaryType(), value=LongType()), "value", r"\.drop\('value'\)"),
        (of(body=BinaryType(), delivery_tag=LongType()), "delivery_tag", "delivery_tag"),
        (
            of(body=BinaryType(), expires_at=TimestampType()),
            "expires_at",
            "the broker sets it.*'ttl_ms'",
        ),
        (of(body=LongType()), "body", "bigint; expected binary or string"),
        (of(body=BinaryType(), routing_key=LongType()), "routing_key", "expected string"),
        (of(body=BinaryType(), ttl_ms=StringType()), "ttl_ms", "expected bigint"),
        (of(body=BinaryType(), published_at=IntegerType()), "published_at", "timestamp"),
        (
            of(body=BinaryType(), headers=MapType(StringType(), LongType())),
            "headers",
            "map<string,bigint>",
        ),
    ],
)
def test_write_of_a_wrong_column(rows, column, part):
    """Unknown columns and wrong types are refused with column, expected and found."""
    with pytest.raises(SchemaError, match=part) as caught:
        schema.check_write(rows)
    assert caught.value.fields["column"] == column


def test_write_accepts_narrow_integers():
    """`lit(1000)` is an int, which is accepted as `ttl_ms`."""
    schema.check_write(of(body=BinaryType(), ttl_ms=IntegerType(), published_at=TimestampType()))
