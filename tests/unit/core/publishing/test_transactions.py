"""Transactions: staged rows are invisible, and visible together at the commit, once (P1, P13)."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyroaring import BitMap, BitMap64

from ackq import errors
from ackq_broker.core import Core
from ackq_broker.core import commands as c
from tests.unit.core.harness import Harness, refused, routes

WRITER = b"t" * 16


class Transactor:
    """A publisher in transaction mode; row i of transaction `name` has the label `nameI`."""

    def __init__(self, harness):
        self.harness = harness
        self.rows = {}
        self.next_number = 1
        self.open()

    def open(self, *, resume=False):
        """Opens the publisher's stream."""
        self.harness.do(c.OpenPublisher(WRITER, resume, transactional=True))

    def publish(self, name, keys, *, exchange="", persistent=True, transient=()):
        """Adds a block of one row for each key to a transaction."""
        count = len(keys)
        block = c.TransactionBlock(
            WRITER,
            name.encode().ljust(16),
            BitMap64(range(self.next_number, self.next_number + count)),
            exchange,
            True,
            routes(keys),
            count,
            10 * count,
            persistent,
            transient=BitMap(transient),
        )
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

    def roll_back(self):
        """Rolls back the transaction; returns the number of dropped messages."""
        return self.harness.do(c.RollbackTransaction(WRITER))


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


class TransactionMachine(RuleBasedStateMachine):
    """One publisher's transactions against two lists: staged and visible rows."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.harness.declare("q")
        self.writer = Transactor(self.harness)
        self.count = 0
        self.open: list[str] = []
        self.visible: list[str] = []
        self.committed = ("", 0)

    @rule(rows=st.integers(1, 5))
    def publish(self, rows: int) -> None:
        name = f"t{self.count}-"
        first = len(self.open)
        self.writer.publish(name, ["q"] * rows)
        self.open += [f"{name}{row}" for row in range(first, first + rows)]

    @rule()
    def commit(self) -> None:
        name = f"t{self.count}-"
        assert self.writer.commit(name) == c.CommittedTransaction(len(self.open), False)
        if self.open:
            self.committed = (name, len(self.open))
        self._end(visible=True)

    @rule()
    def commit_again(self) -> None:
        name, messages = self.committed
        if name:
            assert self.writer.commit(name) == c.CommittedTransaction(messages, True)

    @rule()
    def roll_back(self) -> None:
        assert self.writer.roll_back() == len(self.open)
        self._end()

    @rule(how=st.sampled_from(["closed", "replaced", "restarted", "restored"]))
    def lose_the_stream(self, how: str) -> None:
        if how == "closed":
            self.harness.do(c.ClosePublisherStream(WRITER))
        elif how == "restarted":
            self.harness.restart()
        elif how == "restored":
            self.harness.core = Core.restore(self.harness.core.snapshot())
        self.writer.open(resume=True)
        if self.open:
            with pytest.raises(errors.TransactionRolledBackError):
                self.writer.commit(f"t{self.count}-")
        self._end()

    @rule()
    def restore(self) -> None:
        """I2: a snapshot in the middle of a transaction changes nothing."""
        self.harness.core = Core.restore(self.harness.core.snapshot())

    def _end(self, *, visible: bool = False) -> None:
        self.visible += self.open if visible else []
        self.open = []
        self.count += 1

    @invariant()
    def all_or_nothing(self) -> None:
        """P13: visible rows were committed, and keep their order; the others only take room."""
        assert self.harness.browse("q") == self.visible
        assert self.harness.info("q").staged == len(self.open)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=20)
