"""Decisions of a publisher in transaction mode, without threads or a broker: P7, P13, P14."""

from collections import deque

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq import errors
from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Finish, Wait
from ackq.client.publishing.requests import AddRows, Commit, Rollback
from ackq.client.publishing.transaction_state import Committed, TransactionState
from ackq.client.publishing.unconfirmed import Destination
from ackq.wire import block

ORDERS = Destination("", mandatory=False)
OTHERS = Destination("x", mandatory=True)


def make_state(*, keep_mandatory=False):
    state = TransactionState(
        persistent=True, window_messages=1000, window_bytes=10_000, keep_mandatory=keep_mandatory
    )
    state.on_opened()
    return state


def add(state, *bodies, destination=ORDERS):
    fields = dict.fromkeys(encoding.Row._fields) | {"routing_key": "q"}
    return [
        state.append(destination, encoding.Row(**(fields | {"body": body})), len(body) + 1)
        for body in bodies
    ]


def actions(state):
    """All actions that the state sends now."""
    found = []
    while not isinstance(action := state.next_action(0.0), Wait | Finish):
        found.append(action)
    return found


def test_mandatory_messages_are_kept_until_the_answer():
    """P7, P13: a repeated return has no messages, so mandatory rows are kept; others are not."""
    state = make_state(keep_mandatory=True)
    add(state, b"a", b"b", destination=OTHERS)
    add(state, b"c")
    add(state, b"d", destination=OTHERS)
    transaction = state.commit()
    first, _, last, _ = actions(state)
    state.on_disconnect()
    assert state.kept_rows([2, 4]) == [(first, [1]), (last, [0])]
    assert state.kept_rows([4]) == [(last, [0])]
    for unknown in ([3], [2, 3, 4], [5]):
        with pytest.raises(errors.InternalError, match="not mandatory"):
            state.kept_rows(unknown)
    state.on_opened()
    actions(state)
    state.on_transaction(transaction.transaction_id, 4, None)
    assert transaction.kept == []


@pytest.mark.parametrize("asked", [False, True])
def test_a_dead_publisher_tells_what_is_known(asked):
    """P13: an unsent commit fails with the cause, a sent one with an unknown outcome."""
    state = make_state()
    add(state, b"one")
    transaction = state.commit()
    if asked:
        actions(state)
    state.on_failure(errors.BrokerUnavailableError("gone", endpoint="e"))
    expected = errors.OutcomeUnknownError if asked else errors.BrokerUnavailableError
    assert type(transaction.outcome) is expected
    assert transaction.outcome.fields["endpoint"] == "e"
    assert state.idle


class Application:
    """A publisher, and a broker that handles what reaches it, and rolls back what a cut ends."""

    def __init__(self, *, commit_with_data):
        self.state = make_state()
        self.state.commit_with_data = commit_with_data
        self.published = 0
        self.messages = []  # of the open transaction
        self.told = []  # what commits have told the application
        self.wire = deque()  # actions on their way to the broker
        self.answers = deque()
        self.staged = {}  # at the broker: the rows of transactions of the present stream
        self.committed = []
        self.record = None  # the last committed transaction and its messages

    def publish(self, count):
        if self._open():
            for _ in range(count):
                destination = (ORDERS, OTHERS)[self.published % 2]
                assert add(self.state, self._body(), destination=destination) == [self.published]

    def publish_frame(self, count):
        if self._open():
            first = self.published + 1
            rows = pa.record_batch({"body": [self._body() for _ in range(count)]})
            assert self.state.append_frame(ORDERS, block.encode(rows), count) == first

    def _body(self):
        self.published += 1
        self.messages.append(b"%d" % self.published)
        return self.messages[-1]

    def _open(self):
        return self.state.transaction.lost is None and not self.state.transaction.committing

    def commit(self, _=0):
        assert self.state.commit() is self.state.commit()
        self._end()

    def roll_back(self, _):
        if not self.state.transaction.pending:
            self.state.roll_back()
            self.messages = []

    def send(self, _=0):
        self.wire.extend(actions(self.state))

    def handle(self, _=0):
        if self.wire:
            action = self.wire.popleft()
            if isinstance(action, AddRows):
                _, batch = block.decode(action.content(), validate=True)
                rows = self.staged.setdefault(action.transaction_id, [])
                rows += batch.column("body").to_pylist()
                assert rows[-action.rows] == b"%d" % action.first_number
            if getattr(action, "commit_messages", 0) or isinstance(action, Commit):
                self._commit(action.transaction_id, action[-1])
            elif isinstance(action, Rollback):
                self.staged.pop(action.transaction_id)
                self.answers.append((action.transaction_id, 0, None))

    def _commit(self, transaction_id, messages):
        if self.record != (transaction_id, messages):
            rows = self.staged.pop(transaction_id, ())
            if len(rows) != messages:  # they were lost in a cut
                gone = errors.TransactionRolledBackError("nothing of it is here")
                self.answers.append((transaction_id, 0, gone))
                return
            self.committed += rows
            self.record = (transaction_id, messages)
        self.answers.append((*self.record, None))

    def answer(self, _=0):
        if self.answers:
            self.state.on_transaction(*self.answers.popleft())
            self._end()

    def cut(self, handled):
        for _ in range(handled):
            self.handle()
        for each in (self.wire, self.answers, self.staged):
            each.clear()
        self.state.on_disconnect()
        assert actions(self.state) == []
        self.state.on_opened()
        self._end()

    def _end(self):
        """The application learns the outcome of its commit, if there is one."""
        outcome = self.state.transaction.outcome
        if outcome is not None:
            if isinstance(outcome, Committed):
                assert outcome == Committed(len(self.messages))
                self.told += self.messages
            else:
                assert isinstance(outcome, errors.TransactionRolledBackError)
            self.state.begin()
            self.messages = []

    def finish(self):
        self.commit()
        while not self.state.idle:
            self.send()
            self.handle()
            self.answer()


STEPS = ("publish", "publish_frame", "commit", "roll_back", "send", "handle", "answer", "cut")


@pytest.mark.parametrize("commit_with_data", [False, True])
@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 4)), max_size=50))
def test_what_is_committed_is_what_commits_tell(commit_with_data, steps):
    """P13: despite cuts each transaction is visible whole, once and in order, or not at all.

    A commit whose answer was lost is repeated alone; rows whose commit was not sent are lost.
    """
    application = Application(commit_with_data=commit_with_data)
    for step, argument in steps:
        getattr(application, step)(argument)
    application.finish()
    assert application.committed == application.told
    assert (application.state.window.messages, application.state.window.bytes) == (0, 0)
