"""Decisions of a publisher in transaction mode, without threads or a broker: P7, P13, P14."""

import pytest

from ackq import errors
from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Finish, Wait
from ackq.client.publishing.requests import AddRows, Close, Commit, Rollback
from ackq.client.publishing.transaction_state import Committed, TransactionState
from ackq.client.publishing.unconfirmed import Destination
from ackq.wire import block

ORDERS = Destination("", mandatory=False)
OTHERS = Destination("x", mandatory=True)
NO_QUEUE = errors.UnroutableError("no queue")


def make_state(*, opened=True, keep_mandatory=False):
    state = TransactionState(
        persistent=True,
        window_messages=1000,
        window_bytes=10_000,
        keep_mandatory=keep_mandatory,
    )
    if opened:
        state.on_opened()
    return state


@pytest.fixture
def state():
    return make_state()


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


def kinds(state):
    return [type(action) for action in actions(state)]


def test_a_transaction_goes_with_its_commit(state):
    """P13: one frame of rows, then the commit with their count."""
    assert add(state, b"a", b"b") == [1, 2]
    assert kinds(state) == []
    transaction = state.commit()
    rows, commit = actions(state)
    assert rows[:4] == (transaction.transaction_id, ORDERS, 1, 2)
    _, batch = block.decode(rows.content(), validate=True)
    assert batch.column("body").to_pylist() == [b"a", b"b"]
    assert commit == Commit(transaction.transaction_id, 2)
    assert not state.idle
    state.on_transaction(transaction.transaction_id, 2, None)
    assert transaction.outcome == Committed(2, 0)
    state.begin()
    assert state.idle
    assert state.transaction.transaction_id != transaction.transaction_id
    assert add(state, b"c") == [3]


def test_a_commit_goes_with_the_last_rows_to_a_broker_that_takes_it(state):
    """P13: the last frame of rows carries the commit; after a cut the commit goes alone."""
    state.commit_with_data = True
    add(state, b"a")
    add(state, b"b", destination=OTHERS)
    transaction = state.commit()
    first, second = actions(state)
    assert (first.commit_messages, second.commit_messages) == (0, 2)
    state.on_disconnect()
    assert not transaction.lost
    state.on_opened()
    assert actions(state) == [Commit(transaction.transaction_id, 2)]


def test_destinations_make_frames(state):
    """P13: messages keep the order of their publishes, across destinations."""
    add(state, b"a")
    add(state, b"b", destination=OTHERS)
    assert state.append_frame(ORDERS, b"frame", 5) == 3
    add(state, b"c")
    state.commit()
    *rows, commit = actions(state)
    assert [(each.destination, each.first_number, each.rows) for each in rows] == [
        (ORDERS, 1, 1),
        (OTHERS, 2, 1),
        (ORDERS, 3, 5),
        (ORDERS, 8, 1),
    ]
    assert commit.messages == 8


def test_an_empty_commit_needs_no_broker():
    """P13: a commit of nothing succeeds without a stream."""
    state = make_state(opened=False)
    assert state.commit().outcome == Committed(0)
    assert state.idle


def test_a_rollback_of_what_was_not_sent_needs_no_broker(state):
    """P13: unsent rows are dropped, and no rollback is sent."""
    add(state, b"a")
    state.append_frame(ORDERS, b"frame", 1)
    add(state, b"b")
    state.roll_back()
    assert (kinds(state), state.idle) == ([], True)
    assert (state.window.messages, state.window.bytes) == (0, 0)
    assert state.transaction.messages == 0
    assert state.transaction.first_number == 4


def test_a_rollback_goes_before_what_follows(state):
    """P13: the rollback precedes later rows on the stream; its own unsent rows are dropped."""
    state.append_frame(ORDERS, b"one", 1)
    first = state.transaction.transaction_id
    assert kinds(state) == [AddRows]
    state.append_frame(ORDERS, b"two", 1)
    state.roll_back()
    state.append_frame(ORDERS, b"three", 1)
    state.commit()
    rollback, rows, commit = actions(state)
    assert rollback == Rollback(first)
    assert (rows.transaction_id, rows.first_number) == (commit.transaction_id, 3)
    state.on_transaction(first, 0, None)
    assert state.transaction.outcome is None


def test_a_cut_before_the_commit_loses_the_transaction(state):
    """P13: the broker rolls back rows sent before a cut, so the commit fails."""
    state.append_frame(ORDERS, b"one", 1)
    actions(state)
    add(state, b"two")
    state.on_disconnect()
    assert state.idle
    assert state.window.messages == 0
    assert isinstance(state.transaction.lost, errors.TransactionRolledBackError)
    assert state.commit().outcome is state.transaction.lost
    state.begin()
    state.on_opened()
    assert state.transaction.lost is None
    assert kinds(state) == []


def test_a_cut_before_anything_was_sent_loses_nothing(state):
    """P13: an unsent transaction is sent whole on the next stream."""
    add(state, b"one")
    state.commit()
    state.on_disconnect()
    assert kinds(state) == []
    state.on_opened()
    assert kinds(state) == [AddRows, Commit]


def test_a_cut_between_rows_and_commit_ends_the_commit(state):
    """P13: with rows sent and the commit unsent, the outcome is a known rollback."""
    add(state, b"one")
    transaction = state.commit()
    assert isinstance(state.next_action(0.0), AddRows)
    state.on_disconnect()
    assert isinstance(transaction.outcome, errors.TransactionRolledBackError)
    assert state.idle


def test_a_commit_is_repeated_on_the_next_stream(state):
    """P13: a commit whose answer was lost is repeated without the rows."""
    add(state, b"one")
    transaction = state.commit()
    assert kinds(state) == [AddRows, Commit]
    for _ in range(3):  # streams that never open are cut too
        state.on_disconnect()
        assert not state.idle
    state.on_opened()
    assert actions(state) == [Commit(transaction.transaction_id, 1)]
    state.on_transaction(transaction.transaction_id, 1, None)
    assert transaction.outcome == Committed(1)


def test_a_cut_forgets_a_rollback_on_its_way(state):
    """P13: the end of the stream rolls back, so the rollback is not repeated."""
    state.append_frame(ORDERS, b"one", 1)
    actions(state)
    state.roll_back()
    state.on_disconnect()
    state.on_opened()
    assert kinds(state) == []


def test_a_commit_is_asked_for_once(state):
    """P13: a second `commit` waits for the same commit."""
    add(state, b"one")
    transaction = state.commit()
    assert state.commit() is transaction
    assert kinds(state) == [AddRows, Commit]


def test_a_refused_commit(state):
    """P8, P13: the outcome is the broker's reason."""
    add(state, b"one")
    transaction = state.commit()
    actions(state)
    full = errors.QueueFullError("full")
    state.on_transaction(transaction.transaction_id, 0, full)
    assert transaction.outcome is full


def test_an_unasked_answer_is_an_error(state):
    """P13: an answer to a commit that was not requested is an internal error."""
    add(state, b"one")
    with pytest.raises(errors.InternalError, match="that was not requested"):
        state.on_transaction(state.transaction.transaction_id, 1, None)


def test_returns_are_counted_for_their_transaction(state):
    """P7: late returns of a rolled-back transaction are ignored."""
    state.append_frame(ORDERS, b"one", 2)
    actions(state)
    state.roll_back()
    state.append_frame(ORDERS, b"two", 2)
    transaction = state.commit()
    actions(state)
    assert state.on_return([1, 2], NO_QUEUE) == []
    assert state.on_return([4], NO_QUEUE) == [4]
    assert state.on_return([], NO_QUEUE) == []
    state.on_transaction(transaction.transaction_id, 2, None)
    assert transaction.outcome == Committed(2, 1)
    assert transaction.unroutable is NO_QUEUE


def test_returns_that_come_again_with_their_commit_are_counted_once(state):
    """P7, P13: returns repeated by a repeated commit are counted once."""
    add(state, b"a", b"b", b"c", destination=OTHERS)
    transaction = state.commit()
    actions(state)
    assert state.on_return([1], NO_QUEUE) == [1]
    state.on_disconnect()
    state.on_opened()
    assert actions(state) == [Commit(transaction.transaction_id, 3)]
    assert state.on_return([1, 3], NO_QUEUE) == [3]
    state.on_transaction(transaction.transaction_id, 3, None)
    assert transaction.outcome == Committed(3, 2)


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


def test_messages_are_not_kept_for_nobody(state):
    """P13: without `on_return` mandatory messages are not kept."""
    add(state, b"a", destination=OTHERS)
    state.commit()
    actions(state)
    assert state.transaction.kept == []


def test_a_blocked_broker_gets_no_rows_and_their_commit_waits(state):
    """P14: rows and their commit wait until the broker unblocks or the stream is cut."""
    state.append_frame(ORDERS, b"one", 1)
    actions(state)
    state.on_blocked("disk")
    state.append_frame(ORDERS, b"two", 1)
    state.commit()
    assert kinds(state) == []
    state.on_unblocked()
    assert kinds(state) == [AddRows, Commit]
    state.on_blocked("disk")
    state.on_disconnect()
    assert state.blocked is None


def test_the_window_counts_what_has_yet_to_go():
    """P14: the window counts unsent rows only, so a large transaction passes."""
    state = make_state(opened=False)
    state.append_frame(ORDERS, bytes(9_000), 900)
    assert not state.window.admits(1, 2_000)
    assert not state.window.admits(200, 1)
    state.on_opened()
    actions(state)
    assert state.window.admits(1, 2_000)
    assert state.transaction.messages == 900


@pytest.mark.parametrize("asked", [False, True])
def test_a_dead_publisher_tells_what_is_known(asked, state):
    """P13: an unsent commit fails with the cause, a sent one with an unknown outcome."""
    add(state, b"one")
    transaction = state.commit()
    if asked:
        actions(state)
    state.on_failure(errors.BrokerUnavailableError("gone", endpoint="e"))
    expected = errors.OutcomeUnknownError if asked else errors.BrokerUnavailableError
    assert type(transaction.outcome) is expected
    assert transaction.outcome.fields["endpoint"] == "e"
    assert state.idle


def test_a_finishing_publisher_ends_when_nothing_is_under_way(state):
    """Closing sends a pending rollback first, then ends the stream."""
    state.append_frame(ORDERS, b"one", 1)
    actions(state)
    state.roll_back()
    state.finishing = True
    assert isinstance(state.next_action(0.0), Rollback)
    assert isinstance(state.next_action(0.0), Close)
    assert state.next_action(0.0) == Finish()
