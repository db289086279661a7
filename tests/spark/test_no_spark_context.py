"""The READMEs' examples in a program without `sparkContext` (K9), as through Spark Connect."""

import subprocess
import sys

import pytest

from tests.ports import free_ports
from tests.spark import cluster

pytestmark = pytest.mark.timeout(cluster.TEST_S)

GUIDES = "".join(map(cluster.readme, cluster.GUIDES))
PROGRAM = "".join(cluster.readme_blocks(cluster.readme("README.md"), "python"))
SETTLING = [text for text in cluster.readme_blocks(GUIDES, "python") if "settle(" in text]
LATE, DECODE, _ = SETTLING
CONFIGURED = 'configure(SparkSession.builder.master("local[2]")).getOrCreate()'
STARTED = 'embedded("ackq/broker").start()'
SQL = "".join(cluster.readme_blocks(GUIDES, "sql"))

# Every way to Spark's JVM is refused to the program and to ackq, as managed runtimes do.
REFUSING = """
import sys

from pyspark.sql import SparkSession


def refused(name, field):
    def get(self):
        caller = sys._getframe(1).f_code.co_filename
        if "/ackq/" in caller or caller.endswith("program.py"):
            raise RuntimeError(f"{name} is not supported here")
        return self.__dict__[field]

    return property(get, lambda self, value: self.__dict__.__setitem__(field, value))


for name, field in (("sparkContext", "_sc"), ("_jvm", "_jvm"), ("_jsparkSession",) * 2):
    setattr(SparkSession, name, refused(name, field))
"""
# After the root README's last query; then the other examples, each with its messages.
REST = """
query.processAllAvailable()
query.stop()
print("sort:", admin.queue("good").ready, "good", admin.queue("refused").ready, "refused")


def publish(queue, *bodies):
    with Publisher(endpoint, routing_key=queue) as publisher:
        for body in bodies:
            publisher.publish(body).result()


def run(function, name, *bodies):
    admin.declare_queue(name, dead_letter_queue="refused")
    publish(name, *bodies)
    query = (
        reader.options(queue=name, session=name)
        .load()
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", f"ackq/{name}")
        .start()
    )
    query.processAllAvailable()
    query.stop()


run(decode, "decode", b'{"id": 1, "amount": 2.5}', b"no JSON")
print("decode:", admin.queue("refused").ready, "refused", admin.queue("decode").ready, "left")
run(late, "late", b"x")
print("late:", admin.queue("late").delayed, "delayed")
publish("orders", b"z")
for statement in STATEMENTS:
    rows = spark.sql(statement).collect()
print("sql:", admin.queue("invoices").ready, "written", sorted(map(str, map(tuple, rows))))
"""
EXPECTED = [
    "1",
    "sort: 1 good 1 refused",
    "decode: 2 refused 0 left",
    "late: 1 delayed",
    "sql: 3 written [\"('1', 1)\", \"('id-1', 1)\", '(None, 1)']",
]


def program(endpoint, session):
    """All examples with Spark, with this test's broker and session in place of the READMEs'."""
    statements = [each.strip() for each in SQL.split(";") if each.strip()]
    late = LATE.replace("def sort(", "def late(")
    text = "".join([PROGRAM, late, DECODE, f"\nSTATEMENTS = {statements!r}\n", REST])
    for name, ours in {
        CONFIGURED: session,
        STARTED: "None",
        "broker.endpoint": repr(endpoint),
        "127.0.0.1:5775": endpoint,
    }.items():
        assert name in text
        text = text.replace(name, ours)
    return text


def printed(folder, text):
    """The lines that a program prints, run in a folder of its own."""
    folder.mkdir()
    (folder / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=cluster.environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=cluster.RUN_S,
    )
    assert done.returncode == 0, done.stderr[-20_000:]
    return [line for line in done.stdout.splitlines() if line in EXPECTED or ": " in line]


def test_through_spark_connect(broker, tmp_path):
    """With Spark Connect tasks do not know the query's run; its id is read from the checkpoint."""
    (port,) = map(str, free_ports(1))
    commands = cluster.readme_blocks(cluster.readme_section("Where it runs"), "bash")
    (command,) = (each for each in commands if "SparkConnectServer" in each)
    url = f"sc://{cluster.HOSTS[0]}:{port}"
    session = f'configure(SparkSession.builder.remote("{url}").getOrCreate())'
    with cluster.connect_server(command, tmp_path, port):
        lines = printed(tmp_path / "program", program(broker.endpoint, session))
    assert lines == EXPECTED


def test_a_session_that_refuses_its_context(broker, tmp_path):
    """A session that refuses its context and other ways to the JVM, as a shared cluster does."""
    text = REFUSING + program(broker.endpoint, CONFIGURED)
    assert printed(tmp_path / "program", text) == EXPECTED
