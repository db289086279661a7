"""The data source: its registration, and its checks before a query runs."""

import pickle

import pytest

import pyspark_ackq
from ackq.errors import UnsupportedError
from ackq.spark.datasource import AckqDataSource
from ackq.spark.engine import is_older_than
from ackq.spark.source.older_reader import OlderStreamReader


def test_the_source_is_that_of_the_version():
    """K9, K13: before 4.2 the reader keeps the query's place; from 4.2 on Spark passes it."""
    source = pyspark_ackq.DefaultSource({"endpoint": "b:1", "queue": "q", "session": "s"})
    assert type(source).name() == "ackq"
    assert pickle.loads(pickle.dumps(AckqDataSource)) is AckqDataSource  # noqa: S301
    reader = source.streamReader(source.schema())
    assert isinstance(reader, OlderStreamReader) is is_older_than(4, 2)


@pytest.mark.parametrize("method", ["streamWriter", "writer"])
def test_overwrite_is_refused(method):
    """Messages in a queue cannot be overwritten, only appended."""
    source = AckqDataSource({"endpoint": "b:1", "queue": "q"})
    with pytest.raises(UnsupportedError, match="append"):
        getattr(source, method)(None, overwrite=True)
