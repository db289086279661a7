"""K13: differences between the versions of Spark."""

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.types import StructField, StructType, TimestampType

from ackq.spark import engine


def test_the_streaming_writer_gets_arrow_batches():
    """On 4.1 and newer by its class; on 4.0 as a batch writer of Arrow too."""
    bases = engine.StreamArrowWriter.__mro__
    assert DataSourceStreamWriter in bases
    assert DataSourceArrowWriter in bases or engine.StreamArrowWriter.__module__.startswith("pysp")


def test_times_are_of_utc():
    """Timestamps are UTC, whatever the Spark version's argument and its default are."""
    schema = engine.arrow_schema(StructType([StructField("at", TimestampType())]))
    assert schema.field("at").type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("version", "older"), [("4.0.5", True), ("4.1.0", False), ("4.10.0", False), ("3.5.9", True)]
)
def test_versions_are_compared_as_numbers(monkeypatch, version, older):
    monkeypatch.setattr(engine.pyspark, "__version__", version)
    assert engine.is_older_than(4, 1) is older
