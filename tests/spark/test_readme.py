"""The code of the READMEs runs unchanged, except for names and paths (K8, K9)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional import needs
from tests.spark import cluster

ROOT = cluster.readme("README.md")
TIMEOUT_S = 300
GUIDES = "".join(map(cluster.readme, cluster.GUIDES))
PROGRAM = "".join(cluster.readme_blocks(ROOT, "python"))
SETTLING = [text for text in cluster.readme_blocks(GUIDES, "python") if "settle(" in text]
SORT, DECODE, _ = SETTLING


class Reader:
    """Runs the README's blocks as one program, with this test's names in place of the README's."""

    def __init__(self, kit):
        self.kit = kit
        self.names = {"spark": kit.spark}

    def run(self, block):
        """Runs a block; its streaming queries are drained and stopped."""
        here = {"127.0.0.1:5775": self.kit.broker.endpoint, "/data/": f"{self.kit.folder}/"}
        for name, ours in here.items():
            block = block.replace(name, ours)
        exec(block, self.names)  # noqa: S102 - our own text
        for query in self.kit.spark.streams.active:
            query.processAllAvailable()
            query.stop()


@pytest.fixture
def reader(kit):
    kit.declare("dead", "invoices", "good")
    kit.declare("orders", dead_letter_queue="dead")
    return Reader(kit)


LOOK = """
query.processAllAvailable()
query.stop()
print("good", admin.queue("good").ready, "refused", admin.queue("refused").ready)
broker.stop()
"""


def found(printed):
    """The lines of a program's output that are its own."""
    return [line for line in printed.splitlines() if line == "1" or line.startswith("good")]


EXPECTED = ["1", "good 1 refused 1"]


def test_the_readme_as_a_program(tmp_path):
    """K8, K9: the README runs from an empty folder, without broker or activated environment."""
    (tmp_path / "program.py").write_text(PROGRAM + LOOK)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=not_activated(),
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert found(done.stdout) == EXPECTED


def test_the_readme_in_a_notebook(tmp_path):
    """K9: the README runs as cells, in a kernel whose environment is not activated."""
    needs("ipykernel", "test")
    from jupyter_client.manager import start_new_kernel

    printed = []
    cells = [*cluster.readme_blocks(ROOT, "python"), LOOK]
    manager, client = start_new_kernel(
        cwd=str(tmp_path), env=not_activated(), startup_timeout=TIMEOUT_S
    )
    try:
        for cell in cells:
            reply = client.execute_interactive(
                cell,
                timeout=TIMEOUT_S,
                output_hook=lambda message: printed.append(message["content"].get("text", "")),
            )
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert found("".join(printed)) == EXPECTED


def not_activated():
    """The environment of a shell without an activated Python environment."""
    folder = str(Path(sys.executable).parent)
    path = [each for each in os.environ["PATH"].split(os.pathsep) if each != folder]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return kept | {"PATH": os.pathsep.join(path)}


def test_an_outcome_for_each_row(reader):
    """K8: each row has its own outcome, reason and delay."""
    reader.kit.publish("orders", b"1")
    reader.run(SORT)
    rows = reader.kit.source("orders", session="late")
    reader.kit.run(reader.kit.each(rows, "cp", reader.names["sort"]))
    assert reader.kit.admin.queue("orders").delayed == 1


def test_json_bodies_with_the_bad_ones_aside(reader):
    """K8: a body that does not parse is a dead letter with a reason, and the others are written."""
    reader.kit.publish("orders", b'{"id": 1, "amount": 2.5}', b"not JSON")
    reader.run(DECODE)
    rows = reader.kit.source("orders", session="decode")
    reader.kit.run(reader.kit.each(rows, "cp", reader.names["decode"]))
    assert reader.kit.dead_letters() == [(b"not JSON", "no id")]
    assert reader.kit.admin.queue("orders").ready == 0
