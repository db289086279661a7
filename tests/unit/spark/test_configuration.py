"""The session helper: bounded Arrow batches, and an interpreter for the workers."""

import os
import sys
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ackq.errors import InvalidArgumentError
from ackq.spark import configuration
from ackq.spark import configure as public
from ackq.spark.configuration import _WORKER, _choose_interpreter, configure

MIB = 1 << 20


class Builder:
    def __init__(self, **options):
        self._options = {key.replace("_", "."): value for key, value in options.items()}

    def config(self, key, value):
        self._options[key] = value
        return self

    @property
    def rows(self):
        return int(self._options["spark.sql.execution.arrow.maxRecordsPerBatch"])


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "ACKQ_WORKER_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_public_name():
    """`ackq.spark.configure` is the helper."""
    assert public is configure


@pytest.mark.parametrize(
    ("largest", "rows"),
    [(1, 2000), (64 << 10, 2000), (MIB, 128), (64 * MIB, 2), (1 << 31, 1)],
)
def test_batches_stay_far_below_2_gib(largest, rows):
    """Without Spark's byte bound, rows times the largest row stays at 128 MiB, or one row."""
    builder = Builder()
    assert configure(builder, max_message_bytes=largest, fast_workers=False) is builder
    assert builder.rows == rows
    assert rows == 1 or rows * largest <= 128 * MIB
    assert builder._options["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"


ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
HIDDEN = {"spark.sql.redaction.options.regex": "(?i)url|tlskeypem"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({ROWS: "500"}, {ROWS: "500", BYTES: "2147483647"}),
        ({ROWS: "10000"}, {ROWS: "10000"}),
        ({ROWS: "0"}, {ROWS: "0"}),
        ({BYTES: "16m"}, {ROWS: "2000", BYTES: "16m"}),
        ({ROWS: "500", BYTES: "16m"}, {ROWS: "500", BYTES: "16m"}),
    ],
)
@pytest.mark.parametrize("submitted", [False, True])
def test_users_bounds_stay(monkeypatch, given, expected, submitted):
    """A bound the user set stays; one in rows that is too high keeps Spark's bound in bytes."""
    builder = Builder()
    if submitted:
        monkeypatch.setattr(configuration, "_submitted", lambda: given)
    else:
        builder._options.update(given)
    configure(builder, max_message_bytes=64 << 10, fast_workers=False)
    assert {**given, **builder._options} == {**expected, **HIDDEN}


def test_messages_of_unknown_size_keep_sparks_byte_bound():
    """2000 rows may be of 64 MiB each: without the bound in bytes they would end the JVM."""
    builder = Builder()
    configure(builder, fast_workers=False)
    assert builder._options == {ROWS: "2000", **HIDDEN}


CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"spark.master": "local[2]"}, configuration._BY_FILE_SYSTEM),
        ({"spark.master": "local[2]", CHECKPOINTS: "theirs"}, "theirs"),
        ({"spark.master": "spark://host:7077"}, None),
    ],
)
def test_checkpoints_of_a_local_spark_start_no_processes(options, expected):
    """On a cluster they are on a file system of its own."""
    builder = Builder()
    builder._options.update(options)
    configure(builder, fast_workers=False)
    assert builder._options.get(CHECKPOINTS) == expected


def test_message_size_must_be_positive():
    """A size of nothing is refused."""
    with pytest.raises(InvalidArgumentError, match="max_message_bytes"):
        configure(Builder(), max_message_bytes=0)


def test_interpreter_is_this_one():
    """Workers run the driver's interpreter where the user named none."""
    environ = {}
    _choose_interpreter(environ, wrap=False)
    assert environ == {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@pytest.mark.parametrize("wrap", [False, True])
def test_users_interpreter_stays(wrap):
    """What the user named is not touched."""
    environ = {"PYSPARK_PYTHON": "/their/python"}
    _choose_interpreter(environ, wrap=wrap)
    assert environ == {"PYSPARK_PYTHON": "/their/python", "PYSPARK_DRIVER_PYTHON": "/their/python"}


@pytest.mark.parametrize(
    ("master", "wrapped"),
    [("local", True), ("local[2]", True), ("local-cluster[2,1,1024]", False), ("", False)],
)
def test_wrapper_only_for_local_masters(monkeypatch, master, wrapped):
    """On a cluster the executors may have another pyspark, or this file nowhere."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    configure(Builder(spark_master=master))
    assert os.environ["PYSPARK_PYTHON"] == (str(_WORKER) if wrapped else sys.executable)


def test_no_wrapper_under_spark_submit(monkeypatch):
    """There the JVM has an environment of its own, made before this process."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(configuration, "_submitted", dict)
    configure(Builder(spark_master="local[2]"))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_no_wrapper_for_another_spark(monkeypatch, tmp_path):
    """SPARK_HOME may hold another version than the installed pyspark."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    configure(Builder(spark_master="local[2]"))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.skipif(not hasattr(pyspark, "SparkContext"), reason="pyspark-client has no JVM")
@pytest.mark.parametrize(
    ("environment", "told"),
    [({}, True), ({"PYSPARK_PYTHON": "x"}, False), ({"PYSPARK_DRIVER_PYTHON": "x"}, False)],
)
def test_a_session_that_runs_keeps_its_interpreter(monkeypatch, caplog, environment, told):
    """K9: its JVM has its environment since it started; the line says what to type."""
    system = SimpleNamespace(getenv=lambda: environment)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    context = SimpleNamespace(_jvm=jvm)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", context)
    configure(SparkSession.builder)
    assert (f"export PYSPARK_PYTHON={sys.executable}" in caplog.text) == told


class Conf:
    """The settings of a session; some it refuses, as shared clusters do."""

    def __init__(self, refused=()):
        self.getAll = {"spark.master": "local[2]"}
        self._refused = refused

    def set(self, key, value):
        if key in self._refused:
            raise AnalysisException(f"{key} is not available")
        self.getAll[key] = value


def test_a_session_that_exists(monkeypatch, caplog):
    """Where a notebook has made it; what it refuses is in the log, the rest is set."""
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
    """Its workers are the server's, which may be of another version than this client."""
    monkeypatch.setattr(configuration, "is_remote", lambda: True)
    session = configure(SimpleNamespace(conf=Conf()))
    assert CHECKPOINTS not in session.conf.getAll
    assert session.conf.getAll[ROWS] == "2000"
    assert "Python workers of this session are its server's" in caplog.text
