"""The code of the READMEs runs unchanged, except for names and paths (K8, K9)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional import needs
from tests.ports import free_ports
from tests.spark import cluster

pytestmark = pytest.mark.timeout(cluster.TEST_S)

GUIDES = "".join(map(cluster.readme, cluster.GUIDES))
CELLS = cluster.readme_blocks(cluster.readme("README.md"), "python")
LATE, DECODE, _ = (text for text in cluster.readme_blocks(GUIDES, "python") if "settle(" in text)
CONFIGURED = 'configure(SparkSession.builder.master("local[2]")).getOrCreate()'
SQL = "".join(cluster.readme_blocks(GUIDES, "sql"))
HERE = "127.0.0.1:5775"

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
LOOK = """
query.processAllAvailable()
query.stop()
print("sort:", admin.queue("good").ready, "good", admin.queue("refused").ready, "refused")
"""
# The other examples, each with its messages.
REST = """
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
refused = spark.read.format("ackq").options(endpoint=endpoint, queue="refused").load().collect()
told = [(bytes(row.body), row.headers["ackq-dead-reason"]) for row in refused]
print("decode:", len(told), "refused", told[-1], admin.queue("decode").ready, "left")
run(late, "late", b"x")
print("late:", admin.queue("late").delayed, "delayed")
publish("orders", b"z")
for statement in STATEMENTS:
    rows = spark.sql(statement.replace(HERE, endpoint)).collect()
print("sql:", admin.queue("invoices").ready, "written", sorted(map(str, map(tuple, rows))))
"""
EXPECTED = [
    "1",
    "sort: 1 good 1 refused",
    "decode: 2 refused (b'no JSON', 'no id') 0 left",
    "late: 1 delayed",
    "sql: 3 written [\"('1', 1)\", \"('id-1', 1)\", '(None, 1)']",
]


def program():
    """All examples with Spark: the root README's, then the others on the broker that it starts."""
    examples = LATE.replace("def sort(", "def late(") + DECODE
    statements = [each.strip() for each in SQL.split(";") if each.strip()]
    given = f"\nHERE, STATEMENTS = {HERE!r}, {statements!r}\n"
    return "".join([*CELLS, LOOK, examples.replace(f'"{HERE}"', "endpoint"), given, REST])


def printed(folder, text, env):
    """The lines that a program prints, run in a folder of its own."""
    folder.mkdir()
    (folder / "program.py").write_text(text + "\nbroker.stop()\n")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=cluster.RUN_S,
    )
    assert done.returncode == 0, done.stderr[-20_000:]
    return [line for line in done.stdout.splitlines() if line in EXPECTED or ": " in line]


def not_activated():
    """The environment of a shell without an activated Python environment."""
    folder = str(Path(sys.executable).parent)
    path = [each for each in os.environ["PATH"].split(os.pathsep) if each != folder]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return kept | {"PATH": os.pathsep.join(path)}


def test_the_readme_as_a_program(tmp_path):
    """K8, K9: the READMEs run from an empty folder, without broker or activated environment.

    The session refuses its context and other ways to the JVM, as a shared cluster's does.
    """
    assert printed(tmp_path / "program", REFUSING + program(), not_activated()) == EXPECTED


def test_through_spark_connect(tmp_path):
    """K9: with Spark Connect tasks do not know the query's run; the checkpoint has its id."""
    (port,) = map(str, free_ports(1))
    commands = cluster.readme_blocks(cluster.readme_section("Where it runs"), "bash")
    (command,) = (each for each in commands if "SparkConnectServer" in each)
    url = f"sc://{cluster.HOSTS[0]}:{port}"
    session = f'configure(SparkSession.builder.remote("{url}").getOrCreate())'
    text = program()
    assert CONFIGURED in text
    with cluster.connect_server(command, tmp_path, port):
        lines = printed(
            tmp_path / "program", text.replace(CONFIGURED, session), cluster.environment()
        )
    assert lines == EXPECTED


def test_the_readme_in_a_notebook(tmp_path):
    """K9: the README runs as cells, in a kernel whose environment is not activated."""
    needs("ipykernel", "test")
    from jupyter_client.manager import start_new_kernel

    told = []
    manager, client = start_new_kernel(
        cwd=str(tmp_path), env=not_activated(), startup_timeout=cluster.RUN_S
    )
    try:
        for cell in [*CELLS, f"{LOOK}broker.stop()"]:
            reply = client.execute_interactive(
                cell,
                timeout=cluster.RUN_S,
                output_hook=lambda message: told.append(message["content"].get("text", "")),
            )
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [line for line in "".join(told).splitlines() if line in EXPECTED] == EXPECTED[:2]
