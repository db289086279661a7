"""Transactions: refused blocks, empty commits, modes of rows (P13); see wire/publishing."""

import pytest
from pyroaring import BitMap, BitMap64

from ackq import errors
from ackq_broker.core import Core
from ackq_broker.core import commands as c
from tests.unit.core.harness import refused, routes

WRITER = b"t" * 16


class Transactor:
    """A publisher in transaction mode; row i of transaction `name` has the label `nameI`."""

    def __init__(self, harness):
        self.harness = harness
        self.rows = {}
        self.next_number = 1
        harness.do(c.OpenPublisher(WRITER, transactional=True))

    def publish(self, name, keys, *, exchange="", persistent=True, transient=()):
        """Adds a block of one row for each key to a transaction."""
        count = len(keys)
        numbers = BitMap64(range(self.next_number, self.next_number + count))
        names = WRITER, name.encode().ljust(16), numbers
        rows = exchange, True, routes(keys), count, 10 * count, persistent
        block = c.TransactionBlock(*names, *rows, transient=BitMap(transient))
        reply = self.harness.do(block)
        first = self.rows.get(name, 0)
        self.rows[name] = first + count
        self.next_number += count
        for row in range(count):
            self.harness.labels[reply.block_id, row] = f"{name}{first + row}"
        return reply

    def commit(self, name):
        """Commits a transaction, naming the number of its published messages."""
        command = c.CommitTransaction(WRITER, name.encode().ljust(16), self.rows.get(name, 0))
        return self.harness.do(command)


@pytest.fixture
def writer(harness):
    """A publisher in transaction mode."""
    return Transactor(harness)


@pytest.mark.parametrize(
    ("name", "keys", "exchange", "error", "told"),
    [
        ("b", ["q"], "", errors.InvalidArgumentError, "Commit or roll back that one first"),
        ("a", ["full"], "", errors.QueueFullError, "'full'"),
        ("a", ["q"], "gone", errors.ExchangeNotFoundError, "'gone'"),
        ("a", ["q", "q"], "", errors.LimitError, "Commit more often"),
    ],
    ids=["another transaction", "no room", "no exchange", "too long"],
)
def test_a_refused_block_keeps_nothing(
    harness, writer, monkeypatch, name, keys, exchange, error, told
):
    """P13, I6: the service then rolls back; in the core earlier rows stay, and it can go on."""
    monkeypatch.setattr("ackq.limits.MAX_TRANSACTION_MESSAGES", 3)
    harness.declare("full", max_length=1)
    writer.publish("a", ["q", "full"])
    refused(error, told, writer.publish, name, keys, exchange=exchange)
    writer.publish("a", ["q"])
    assert writer.commit("a") == c.CommittedTransaction(3, False)
    assert (harness.browse("q"), harness.browse("full")) == (["a0", "a2"], ["a1"])


def test_a_commit_of_nothing_leaves_an_open_transaction_alone(harness, writer):
    """P13: a commit of a transaction without publishes succeeds, and changes nothing."""
    writer.publish("a", ["q"])
    decision = harness.decide(c.CommitTransaction(WRITER, b"b".ljust(16), 0))
    assert (decision.reply, decision.records) == (c.CommittedTransaction(0, False), ())
    assert writer.commit("a") == c.CommittedTransaction(1, False)
    assert harness.browse("q") == ["a0"]


def test_transient_rows_of_a_transaction_go_with_a_restart(harness, writer):
    """P12, P13, Q7: whatever their modes, rows keep their order, through a snapshot as well."""
    harness.declare("passing", durable=False)
    assert writer.publish("a", ["q"]).durable is True
    assert writer.publish("a", ["q"], persistent=False).durable is False
    assert writer.publish("a", ["passing"]).durable is False
    assert writer.publish("a", ["passing", "q"]).durable is True
    writer.publish("a", ["q"] * 4, transient=[1, 2])
    harness.core = Core.restore(harness.core.snapshot())
    writer.commit("a")
    assert harness.browse("q") == ["a0", "a1", "a4", "a5", "a6", "a7", "a8"]
    assert harness.restart() == 5
    assert harness.browse("q") == ["a0", "a4", "a5", "a8"]
