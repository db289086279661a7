"""What a publisher in transaction mode decides, without threads or a broker: P7, P13, P14."""

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
    """Everything that goes on the stream now."""
    found = []
    while not isinstance(action := state.next_action(0.0), Wait | Finish):
        found.append(action)
    return found


def kinds(state):
    return [type(action) for action in actions(state)]


def test_a_transaction_goes_with_its_commit(state):
    """P13: one frame, then the commit that counts its messages."""
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
    """P13: a transaction of one message is one frame; after a cut its commit goes by itself."""
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
    """P13: the order of the publishes is kept, whatever they go to."""
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
    """P13: it is a success."""
    state = make_state(opened=False)
    assert state.commit().outcome == Committed(0)
    assert state.idle


def test_a_rollback_of_what_was_not_sent_needs_no_broker(state):
    """P13: the rows never go."""
    add(state, b"a")
    state.append_frame(ORDERS, b"frame", 1)
    add(state, b"b")
    state.roll_back()
    assert (kinds(state), state.idle) == ([], True)
    assert (state.window.messages, state.window.bytes) == (0, 0)
    assert state.transaction.messages == 0
    assert state.transaction.first_number == 4


def test_a_rollback_goes_before_what_follows(state):
    """P13: one stream, one order; its own unsent rows never go."""
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
    """P13: what went on the stream is rolled back there, so nothing of it can be committed."""
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
    """P13: all of it goes on the next stream."""
    add(state, b"one")
    state.commit()
    state.on_disconnect()
    assert kinds(state) == []
    state.on_opened()
    assert kinds(state) == [AddRows, Commit]


def test_a_cut_between_rows_and_commit_ends_the_commit(state):
    """P13: rows went, the commit did not: it has a known outcome."""
    add(state, b"one")
    transaction = state.commit()
    assert isinstance(state.next_action(0.0), AddRows)
    state.on_disconnect()
    assert isinstance(transaction.outcome, errors.TransactionRolledBackError)
    assert state.idle


def test_a_commit_is_repeated_on_the_next_stream(state):
    """P13: its answer was lost; the rows do not go again."""
    add(state, b"one")
    transaction = state.commit()
    assert kinds(state) == [AddRows, Commit]
    for _ in range(3):  # streams that never open are cut as well
        state.on_disconnect()
        assert not state.idle
    state.on_opened()
    assert actions(state) == [Commit(transaction.transaction_id, 1)]
    state.on_transaction(transaction.transaction_id, 1, None)
    assert transaction.outcome == Committed(1)


def test_a_cut_forgets_a_rollback_on_its_way(state):
    """P13: the stream's end is one."""
    state.append_frame(ORDERS, b"one", 1)
    actions(state)
    state.roll_back()
    state.on_disconnect()
    state.on_opened()
    assert kinds(state) == []


def test_a_commit_is_asked_for_once(state):
    """P13: an application that waits again waits for the same commit."""
    add(state, b"one")
    transaction = state.commit()
    assert state.commit() is transaction
    assert kinds(state) == [AddRows, Commit]


def test_a_refused_commit(state):
    """P8, P13: the broker's reason is the outcome."""
    add(state, b"one")
    transaction = state.commit()
    actions(state)
    full = errors.QueueFullError("full")
    state.on_transaction(transaction.transaction_id, 0, full)
    assert transaction.outcome is full


def test_an_unasked_answer_is_an_error(state):
    """P13: a commit that was never asked for cannot be answered."""
    add(state, b"one")
    with pytest.raises(errors.InternalError, match="unasked"):
        state.on_transaction(state.transaction.transaction_id, 1, None)


def test_returns_are_counted_for_their_transaction(state):
    """P7: those of one that was rolled back may still come, and are nobody's."""
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
    """P7, P13: a repeated commit repeats the returns; some of them may have come before."""
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
    """P7, P13: a return that comes again has no messages; those of another frame are not meant."""
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
    """P13: without a callback the numbers are enough."""
    add(state, b"a", destination=OTHERS)
    state.commit()
    actions(state)
    assert state.transaction.kept == []


def test_a_blocked_broker_gets_no_rows_and_their_commit_waits(state):
    """P14: the commit of what it has already goes."""
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
    """P14: a large transaction passes through it."""
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
    """P13: without its commit nothing happened; with it, nobody can know."""
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
    """Close: a rollback still goes, a commit is waited for."""
    state.append_frame(ORDERS, b"one", 1)
    actions(state)
    state.roll_back()
    state.finishing = True
    assert isinstance(state.next_action(0.0), Rollback)
    assert isinstance(state.next_action(0.0), Close)
    assert state.next_action(0.0) == Finish()
