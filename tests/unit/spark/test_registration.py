"""What Spark imports when it looks data sources up, in every application of the user."""

import pickle
import subprocess
import sys

import pytest

import pyspark_ackq
from ackq.errors import InvalidArgumentError, UnknownOptionError, UnsupportedError
from ackq.spark.datasource import AckqDataSource

LOOKUP = """
import sys
import pyspark.sql.datasource
before = set(sys.modules)
import pyspark_ackq
pyspark_ackq.DefaultSource.name()
heavy = {"grpc", "pyarrow", "google", "numpy", "pandas"}
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} & heavy))
"""


def test_lookup_is_light():
    """K9: the look-up imports neither gRPC nor Arrow, which may be absent or slow."""
    done = subprocess.run(
        [sys.executable, "-c", LOOKUP], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_default_source():
    """K9: the class has the short name and pickles by reference."""
    assert pyspark_ackq.DefaultSource is AckqDataSource
    assert AckqDataSource.name() == "ackq"
    assert pickle.loads(pickle.dumps(AckqDataSource)) is AckqDataSource  # noqa: S301


def test_options_are_checked_at_load():
    """An option is wrong from the moment Spark makes the data source, not when the query runs."""
    with pytest.raises(UnknownOptionError, match="queue"):
        AckqDataSource({"endpoint": "b:1", "queu": "q"})
    with pytest.raises(InvalidArgumentError, match="endpoint"):
        AckqDataSource({"queue": "q"})


@pytest.mark.parametrize("method", ["streamWriter", "writer"])
def test_overwrite_is_refused(method):
    """What is in a queue cannot be replaced."""
    source = AckqDataSource({"endpoint": "b:1", "queue": "q"})
    with pytest.raises(UnsupportedError, match="append"):
        getattr(source, method)(None, overwrite=True)
