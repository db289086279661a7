"""The code of the READMEs runs as it stands, but for names and paths (K8, K9)."""

import pytest

from tests.spark import cluster

ROOT = cluster.readme("README.md")
CONNECTOR = cluster.readme("connector/README.md")
EXAMPLE, READ, WRITE, SETTLE = cluster.readme_blocks(ROOT, "python")
SORT, DECODE = (text for text in cluster.readme_blocks(CONNECTOR, "python") if "settle(" in text)


class Reader:
    """Runs the README's blocks as one program, with this test's names for the README's."""

    def __init__(self, kit):
        self.kit = kit
        self.names = {"spark": kit.spark}

    def run(self, block):
        """Runs a block; what streams is drained and stopped."""
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


def test_the_first_example(reader):
    """K9: what is in one queue is in the other."""
    reader.kit.publish("orders", b"1", b"2")
    reader.run(EXAMPLE)
    assert reader.kit.bodies("invoices") == [b"1", b"2"]


def test_read_write_settle(reader):
    """K8: rows are written, read, and the bad ones rejected."""
    (reader.kit.folder / "orders.json").write_text('{"id": 1}\n{"name": "n"}\n')
    for block in (READ, WRITE, SETTLE):
        reader.run(block)
    assert reader.kit.bodies("good") == [b'{"id":1}']
    assert reader.kit.dead_letters() == [(b'{"name":"n"}', "no id")]


def test_an_outcome_for_each_row(reader):
    """K8: a row's own outcome, reason and delay."""
    reader.kit.publish("orders", b"1")
    reader.run(SORT)
    rows = reader.kit.source("orders")
    reader.kit.run(reader.kit.each(rows, "cp", reader.names["sort"]))
    assert reader.kit.admin.queue("orders").delayed == 1


def test_json_bodies_with_the_bad_ones_aside(reader):
    """K8: what does not parse is a dead letter with a reason, and the rest is written."""
    reader.kit.publish("orders", b'{"id": 1, "amount": 2.5}', b"not JSON")
    reader.run(DECODE)
    rows = reader.kit.source("orders")
    reader.kit.run(reader.kit.each(rows, "cp", reader.names["decode"]))
    assert reader.kit.dead_letters() == [(b"not JSON", "no id")]
    assert reader.kit.admin.queue("orders").ready == 0
