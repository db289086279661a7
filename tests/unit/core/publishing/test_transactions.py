"""Transactions: staged rows are invisible, and visible together at the commit, once (P1, P13)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyroaring import BitMap, BitMap64

from ackq.errors import (
    ExchangeNotFoundError,
    InUseError,
    InvalidArgumentError,
    LimitError,
    QueueFullError,
    TransactionRolledBackError,
)
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import Harness, routes

WRITER = b"t" * 16


class Transactor:
    """A publisher in transaction mode; row i of transaction `name` has the label `nameI`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.rows: dict[str, int] = {}
        self.next_number = 1
        self.open()

    def open(self, *, resume: bool = False) -> None:
        """Opens the publisher's stream."""
        self.harness.do(c.OpenPublisher(WRITER, resume, transactional=True))

    def close(self) -> None:
        """Closes the publisher's stream."""
        self.harness.do(c.ClosePublisherStream(WRITER))

    def block(
        self, name: str, keys: list[str], *, exchange: str = "", persistent: bool = True
    ) -> c.TransactionBlock:
        """A block of one row for each key."""
        return c.TransactionBlock(
            WRITER,
            name.encode().ljust(16),
            BitMap64(range(self.next_number, self.next_number + len(keys))),
            exchange,
            True,
            routes(keys),
            len(keys),
            10 * len(keys),
            persistent,
        )

    def publish(self, name: str, keys: list[str], **options: Any) -> c.TransactedBlock:
        """Adds a block to a transaction."""
        reply: c.TransactedBlock = self.harness.do(self.block(name, keys, **options))
        first = self.rows.get(name, 0)
        self.rows[name] = first + len(keys)
        self.next_number += len(keys)
        if reply.block_id is not None:
            for row in range(len(keys)):
                self.harness.labels[reply.block_id, row] = f"{name}{first + row}"
        return reply

    def commit(self, name: str, messages: int | None = None) -> c.CommittedTransaction:
        """Commits a transaction, naming its published messages or `messages` of them."""
        count = self.rows.get(name, 0) if messages is None else messages
        reply: c.CommittedTransaction = self.harness.do(
            c.CommitTransaction(WRITER, name.encode().ljust(16), count)
        )
        return reply

    def roll_back(self) -> int:
        """Rolls back the transaction; returns the number of dropped messages."""
        dropped: int = self.harness.do(c.RollbackTransaction(WRITER))
        return dropped


@pytest.fixture
def writer(harness: Harness) -> Transactor:
    """A publisher in transaction mode, and the queue q."""
    harness.declare("q")
    return Transactor(harness)


def staged(harness: Harness, queue: str = "q") -> int:
    return views.list_queues(harness.core.state, queue)[0].staged


def test_one_transaction_at_a_time(harness: Harness, writer: Transactor) -> None:
    """P13: a second transaction cannot begin, and the first continues."""
    writer.publish("a", ["q"])
    with pytest.raises(InvalidArgumentError, match="Commit or roll back that one first"):
        writer.publish("b", ["q"])
    writer.publish("a", ["q"])
    writer.commit("a")
    assert harness.browse("q") == ["a0", "a1"]


@pytest.mark.parametrize(
    ("keys", "exchange", "reason"),
    [(["full"] * 2, "", QueueFullError), (["q"], "gone", ExchangeNotFoundError)],
)
def test_a_refused_block_keeps_nothing(
    harness: Harness, writer: Transactor, keys: list[str], exchange: str, reason: type[Exception]
) -> None:
    """P13: the service then rolls back; in the core earlier rows stay, the refused ones do not."""
    harness.declare("full", max_length=1)
    writer.publish("a", ["q", "full"])
    with pytest.raises(reason):
        writer.publish("a", keys, exchange=exchange)
    assert writer.commit("a", 2) == c.CommittedTransaction(2, False)
    assert harness.browse("full") == ["a1"]


def test_what_a_rollback_dropped_is_not_returned_later(writer: Transactor) -> None:
    """P7, P13: the next transaction has its own returns alone."""
    writer.publish("a", ["nowhere"])
    writer.roll_back()
    writer.publish("b", ["q"])
    assert writer.commit("b") == c.CommittedTransaction(1, False)
    assert writer.commit("b") == c.CommittedTransaction(1, True)


def test_a_commit_of_nothing_leaves_an_open_transaction_alone(
    harness: Harness, writer: Transactor
) -> None:
    """P13: a commit of a transaction without publishes succeeds, and changes nothing."""
    writer.publish("a", ["q"])
    decision = harness.decide(c.CommitTransaction(WRITER, b"b".ljust(16), 0))
    assert (decision.reply, decision.records) == (c.CommittedTransaction(0, False), ())
    assert staged(harness) == 1
    assert writer.commit("a") == c.CommittedTransaction(1, False)
    assert harness.browse("q") == ["a0"]


def test_a_queue_deleted_before_the_commit_is_handled(harness: Harness, writer: Transactor) -> None:
    """P6, Q4: a delete refuses a queue with staged rows; forced, the rest is committed."""
    harness.declare("r")
    writer.publish("a", ["q", "r"])
    with pytest.raises(InUseError):
        harness.do(c.DeleteQueue("r"))
    harness.do(c.DeleteQueue("r", force=True))
    assert writer.commit("a") == c.CommittedTransaction(2, False)
    assert harness.browse("q") == ["a0"]
    harness.declare("r")
    assert harness.browse("r") == []


def test_transient_rows_of_a_transaction_go_with_a_restart(
    harness: Harness, writer: Transactor
) -> None:
    """P12, Q7: the delivery mode is the message's, in a transaction as well."""
    harness.declare("passing", durable=False)
    assert writer.publish("a", ["q"]).durable is True
    assert writer.publish("a", ["q"], persistent=False).durable is False
    assert writer.publish("a", ["passing"]).durable is False
    assert writer.publish("a", ["passing", "q"]).durable is True
    writer.commit("a")
    assert harness.browse("q") == ["a0", "a1", "a4"]
    assert harness.restart() == 3
    assert harness.browse("q") == ["a0", "a4"]


def test_rows_of_a_transaction_keep_their_order(harness: Harness, writer: Transactor) -> None:
    """P12, P13: whatever their delivery modes, through a snapshot and a restart."""
    block = writer.block("a", ["q"] * 4)
    reply = harness.do(replace(block, transient=BitMap([1, 2])))
    for row in range(4):
        harness.labels[reply.block_id, row] = f"a{row}"
    harness.core = Core.restore(harness.core.snapshot())
    writer.commit("a", 4)
    assert harness.browse("q") == ["a0", "a1", "a2", "a3"]
    assert harness.restart() == 2
    assert harness.browse("q") == ["a0", "a3"]


def test_a_transaction_has_a_bound(
    harness: Harness, writer: Transactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: over the bound the error names the remedy; rows that fit can be committed."""
    monkeypatch.setattr("ackq.limits.MAX_TRANSACTION_MESSAGES", 3)
    writer.publish("a", ["q"] * 2)
    with pytest.raises(LimitError, match="Commit more often"):
        writer.publish("a", ["q"] * 2)
    writer.publish("a", ["q"])
    writer.commit("a")
    assert harness.browse("q") == ["a0", "a1", "a2"]


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
            self.writer.close()
        elif how == "restarted":
            self.harness.restart()
        elif how == "restored":
            self.harness.core = Core.restore(self.harness.core.snapshot())
        self.writer.open(resume=True)
        if self.open:
            with pytest.raises(TransactionRolledBackError):
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
        assert staged(self.harness) == len(self.open)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=20)
