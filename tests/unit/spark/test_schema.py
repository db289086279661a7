"""Columns of a read and a write: a wrong column is named with expected and found type."""

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from ackq.errors import SchemaError
from ackq.spark import schema
from ackq.spark.engine import arrow_schema
from ackq.wire import columns


def of(**fields):
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def message(**fields):
    return of(body=BinaryType(), **fields)


NO_NULLS = MapType(StringType(), StringType(), valueContainsNull=False)


def test_default_schema_is_the_wire_types():
    """K7: the default schema has exactly the Arrow types of the wire."""
    found = arrow_schema(schema.default(columns.DELIVERED))
    assert found == pa.schema([(n, kind) for n, (_, kind) in columns.DELIVERED.items()])


@pytest.mark.parametrize(
    ("wanted", "column", "part"),
    [
        (of(payload=BinaryType()), "payload", "no column 'payload'"),
        (StructType([StructField("body", BinaryType(), nullable=False)]), "body", "not null"),
        (of(headers=NO_NULLS), "headers", "values not null, nullable; expected map<string,str"),
        (StructType([*of(body=BinaryType()), *of(body=BinaryType())]), "body", "twice"),
    ],
)
def test_read_of_a_wrong_column(wanted, column, part):
    """The error names a column that is unknown, repeated or of a wrong type."""
    with pytest.raises(SchemaError, match=part) as caught:
        schema.check_read(wanted, columns.DELIVERED)
    assert caught.value.fields["column"] == column


def test_write_takes_every_publishable_column():
    """The sink takes each publishable column, and the routing columns; a body may be a text."""
    every = {f.name: f.dataType for f in schema.default(columns.DELIVERED)}
    every |= {"ttl_ms": LongType(), "queue": StringType(), "exchange": StringType()}
    kept = {n: every[n] for n in (*columns.PUBLISHABLE, *schema.ROUTING)}
    schema.check_write(of(**kept))
    for kind in (BinaryType(), StringType()):
        schema.check_write(of(body=kind))
    # `lit(1000)` is an int, which is accepted as `ttl_ms`.
    schema.check_write(message(ttl_ms=types.IntegerType(), published_at=types.TimestampType()))


@pytest.mark.parametrize(
    ("rows", "column", "part"),
    [
        (of(value=BinaryType()), "body", "missing"),
        (message(value=LongType()), "value", r"\.drop\('value'\)"),
        (message(expires_at=types.TimestampType()), "expires_at", "the broker sets it.*'ttl_ms'"),
        (of(body=LongType()), "body", "bigint; expected binary or string"),
        (message(ttl_ms=StringType()), "ttl_ms", "expected bigint"),
    ],
)
def test_write_of_a_wrong_column(rows, column, part):
    """Unknown columns and wrong types are refused with column, expected and found."""
    with pytest.raises(SchemaError, match=part) as caught:
        schema.check_write(rows)
    assert caught.value.fields["column"] == column
