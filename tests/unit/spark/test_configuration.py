"""The session helper `configure`: bounded Arrow batches, and the workers' interpreter."""

import os
import sys
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ackq.errors import InvalidArgumentError
from ackq.spark import configuration
from ackq.spark.configuration import _WORKER, configure

MIB = 1 << 20
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


class Builder:
    def __init__(self, **options):
        self._options = {key.replace("_", "."): value for key, value in options.items()}

    def config(self, key, value):
        self._options[key] = value
        return self


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "ACKQ_WORKER_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("largest", "rows"),
    [(64 << 10, 2000), (MIB, 128), (1 << 31, 1)],
)
def test_batches_stay_far_below_2_gib(largest, rows):
    """Without Spark's byte bound, rows times the largest row is 128 MiB, or one row."""
    builder = Builder()
    assert configure(builder, max_message_bytes=largest, fast_workers=False) is builder
    assert builder._options == {ROWS: str(rows), BYTES: "2147483647", **HIDDEN}
    assert rows == 1 or rows * largest <= 128 * MIB


HIDDEN = {"spark.sql.redaction.options.regex": "(?i)url|tlskeypem"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({ROWS: "500"}, {ROWS: "500", BYTES: "2147483647"}),
        ({ROWS: "10000"}, {ROWS: "10000"}),
        ({ROWS: "0"}, {ROWS: "0"}),
        ({BYTES: "16m"}, {ROWS: "2000", BYTES: "16m"}),
    ],
)
def test_users_bounds_stay(monkeypatch, given, expected):
    """The user's bounds stay; with too many rows Spark's byte bound stays as well."""
    for builder, submitted in ((Builder(**given), {}), (Builder(), given)):
        monkeypatch.setattr(configuration, "_submitted", lambda now=submitted: now)
        configure(builder, max_message_bytes=64 << 10, fast_workers=False)
        assert {**given, **builder._options} == {**expected, **HIDDEN}


def test_messages_of_unknown_size_keep_sparks_byte_bound():
    """2000 rows of up to 64 MiB each would end the JVM without the byte bound."""
    builder = configure(Builder(), fast_workers=False)
    assert builder._options == {ROWS: "2000", **HIDDEN}
    with pytest.raises(InvalidArgumentError, match="max_message_bytes"):
        configure(Builder(), max_message_bytes=0)


CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"


def test_checkpoints_of_a_local_spark_start_no_processes():
    """Set for local masters only; a cluster's checkpoints are on another file system."""
    for master, theirs in (("local[2]", {}), ("local[2]", {CHECKPOINTS: "x"}), ("spark://h", {})):
        builder = configure(Builder(**theirs, spark_master=master), fast_workers=False)
        ours = configuration._BY_FILE_SYSTEM if master == "local[2]" else None
        assert builder._options.get(CHECKPOINTS) == theirs.get(CHECKPOINTS, ours)


@pytest.mark.parametrize(
    ("master", "environment", "wrapped"),
    [
        ("local[2]", {}, True),
        ("local-cluster[2,1,1024]", {}, False),
        ("", {}, False),
        ("local[2]", {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ("local[2]", {"SPARK_HOME": "/another"}, False),
    ],
)
def test_wrapper_only_for_local_masters(monkeypatch, master, environment, wrapped):
    """A cluster, spark-submit or another Spark may lack the wrapper's file or its environment."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(configuration, "_submitted", dict)
    configure(Builder(spark_master=master))
    assert os.environ["PYSPARK_PYTHON"] == (str(_WORKER) if wrapped else sys.executable)


@pytest.mark.skipif(not hasattr(pyspark, "SparkContext"), reason="pyspark-client has no JVM")
@pytest.mark.parametrize(
    ("environment", "told"),
    [({}, True), ({"PYSPARK_PYTHON": "x"}, False), ({"PYSPARK_DRIVER_PYTHON": "x"}, False)],
)
def test_a_session_that_runs_keeps_its_interpreter(monkeypatch, caplog, environment, told):
    """K9: a running JVM's environment is fixed; the log gives the command to type."""
    system = SimpleNamespace(getenv=lambda: environment)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    context = SimpleNamespace(_jvm=jvm)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", context)
    configure(SparkSession.builder)
    assert (f"export PYSPARK_PYTHON={sys.executable}" in caplog.text) == told


class Conf:
    """The settings of a session; some are refused, as on shared clusters."""

    def __init__(self, refused=()):
        self.getAll = {"spark.master": "local[2]"}
        self._refused = refused

    def set(self, key, value):
        if key in self._refused:
            raise AnalysisException(f"{key} is not available")
        self.getAll[key] = value


def test_a_session_that_exists(monkeypatch, caplog):
    """For an existing session, refused settings are logged and the others are set."""
    monkeypatch.setattr(configuration, "is_remote", lambda: False)
    session = SimpleNamespace(conf=Conf(refused=(CHECKPOINTS,)))
    assert configure(session, max_message_bytes=MIB) is session
    set_ = {"spark.master": "local[2]", ROWS: "128", BYTES: "2147483647", **HIDDEN}
    assert session.conf.getAll == set_
    (said,) = [record.message for record in caplog.records if CHECKPOINTS in record.message]
    assert said.endswith(f"{CHECKPOINTS} is not available")
    configure(session, max_message_bytes=1)
    assert session.conf.getAll == set_
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_session_of_spark_connect(monkeypatch, caplog):
    """On Spark Connect the workers are the server's, maybe of another version."""
    monkeypatch.setattr(configuration, "is_remote", lambda: True)
    session = configure(SimpleNamespace(conf=Conf()))
    assert CHECKPOINTS not in session.conf.getAll
    assert session.conf.getAll[ROWS] == "2000"
    assert "Python workers of this Spark session run at its Connect server" in caplog.text
