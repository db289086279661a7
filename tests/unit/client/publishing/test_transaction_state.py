"""What a publisher in transaction mode decides, without threads or a broker: P7, P13, P14."""

import pytest

from ackq import errors
from ackq.client.blocks import encoding
from ackq.client.publishing.requests import AddRows, Commit, Finish, Rollback, Wait
from ackq.client.publishing.transaction_state import Committed, TransactionFlow
from ackq.client.publishing.unconfirmed import Destination
from ackq.wire import block

ORDERS = Destination("", mandatory=False)
OTHERS = Destination("x", mandatory=True)
NO_QUEUE = errors.UnroutableError("no queue")


def make_flow(*, opened=True):
    flow = TransactionFlow(persistent=True, window_messages=1000, window_bytes=10_000)
    if opened:
        flow.on_opened()
    return flow


def add(flow, *bodies, destination=ORDERS):
    fields = dict.fromkeys(encoding.Row._fields) | {"routing_key": "q"}
    return [
        flow.append(destination, encoding.Row(**(fields | {"body": body})), len(body) + 1)
        for body in bodies
    ]


def actions(flow):
    """Everything that goes on the stream now."""
    found = []
    while not isinstance(action := flow.next_action(0.0), Wait | Finish):
        found.append(action)
    return found


def kinds(flow):
    return [type(action) for action in actions(flow)]


def test_a_transaction_goes_with_its_commit():
    """P13: one frame, then the commit that counts its messages."""
    flow = make_flow()
    assert add(flow, b"a", b"b") == [1, 2]
    assert kinds(flow) == []
    transaction = flow.commit()
    rows, commit = actions(flow)
    assert rows[:4] == (transaction.transaction_id, ORDERS, 1, 2)
    _, batch = block.decode(rows.content(), validate=True)
    assert batch.column("body").to_pylist() == [b"a", b"b"]
    assert commit == Commit(transaction.transaction_id, 2)
    assert not flow.idle
    flow.on_transaction(transaction.transaction_id, 2, None)
    assert transaction.outcome == Committed(2, 0)
    flow.begin()
    assert flow.idle
    assert flow.transaction.transaction_id != transaction.transaction_id
    assert add(flow, b"c") == [3]


def test_destinations_make_frames():
    """P13: the order of the publishes is kept, whatever they go to."""
    flow = make_flow()
    add(flow, b"a")
    add(flow, b"b", destination=OTHERS)
    assert flow.append_frame(ORDERS, b"frame", 5) == 3
    add(flow, b"c")
    flow.commit()
    *rows, commit = actions(flow)
    assert [(each.destination, each.first_number, each.rows) for each in rows] == [
        (ORDERS, 1, 1),
        (OTHERS, 2, 1),
        (ORDERS, 3, 5),
        (ORDERS, 8, 1),
    ]
    assert commit.messages == 8


def test_an_empty_commit_needs_no_broker():
    """P13: it is a success."""
    flow = make_flow(opened=False)
    assert flow.commit().outcome == Committed(0)
    assert flow.idle


def test_a_rollback_of_what_was_not_sent_needs_no_broker():
    """P13: the rows never go."""
    flow = make_flow()
    add(flow, b"a")
    flow.append_frame(ORDERS, b"frame", 1)
    add(flow, b"b")
    flow.roll_back()
    assert (kinds(flow), flow.idle) == ([], True)
    assert (flow.window.messages, flow.window.bytes) == (0, 0)
    assert flow.transaction.messages == 0
    assert flow.transaction.first_number == 4


def test_a_rollback_goes_before_what_follows():
    """P13: one stream, one order; its own unsent rows never go."""
    flow = make_flow()
    flow.append_frame(ORDERS, b"one", 1)
    first = flow.transaction.transaction_id
    assert kinds(flow) == [AddRows]
    flow.append_frame(ORDERS, b"two", 1)
    flow.roll_back()
    flow.append_frame(ORDERS, b"three", 1)
    flow.commit()
    rollback, rows, commit = actions(flow)
    assert rollback == Rollback(first)
    assert (rows.transaction_id, rows.first_number) == (commit.transaction_id, 3)
    flow.on_transaction(first, 0, None)
    assert flow.transaction.outcome is None


def test_a_cut_before_the_commit_loses_the_transaction():
    """P13: what went on the stream is rolled back there, so nothing of it can be committed."""
    flow = make_flow()
    flow.append_frame(ORDERS, b"one", 1)
    actions(flow)
    add(flow, b"two")
    flow.on_cut()
    assert flow.idle
    assert flow.window.messages == 0
    assert isinstance(flow.transaction.lost, errors.TransactionRolledBackError)
    assert flow.commit().outcome is flow.transaction.lost
    flow.begin()
    flow.on_opened()
    assert flow.transaction.lost is None
    assert kinds(flow) == []


def test_a_cut_before_anything_was_sent_loses_nothing():
    """P13: all of it goes on the next stream."""
    flow = make_flow()
    add(flow, b"one")
    flow.commit()
    flow.on_cut()
    assert kinds(flow) == []
    flow.on_opened()
    assert kinds(flow) == [AddRows, Commit]


def test_a_cut_between_rows_and_commit_ends_the_commit():
    """P13: rows went, the commit did not: it has a known outcome."""
    flow = make_flow()
    add(flow, b"one")
    transaction = flow.commit()
    assert isinstance(flow.next_action(0.0), AddRows)
    flow.on_cut()
    assert isinstance(transaction.outcome, errors.TransactionRolledBackError)
    assert flow.idle


def test_a_commit_is_repeated_on_the_next_stream():
    """P13: its answer was lost; the rows do not go again."""
    flow = make_flow()
    add(flow, b"one")
    transaction = flow.commit()
    assert kinds(flow) == [AddRows, Commit]
    for _ in range(3):  # streams that never open are cut as well
        flow.on_cut()
        assert not flow.idle
    flow.on_opened()
    assert actions(flow) == [Commit(transaction.transaction_id, 1)]
    flow.on_transaction(transaction.transaction_id, 1, None)
    assert transaction.outcome == Committed(1)


def test_a_cut_forgets_a_rollback_on_its_way():
    """P13: the stream's end is one."""
    flow = make_flow()
    flow.append_frame(ORDERS, b"one", 1)
    actions(flow)
    flow.roll_back()
    flow.on_cut()
    flow.on_opened()
    assert kinds(flow) == []


def test_a_commit_is_asked_for_once():
    """P13: an application that waits again waits for the same commit."""
    flow = make_flow()
    add(flow, b"one")
    transaction = flow.commit()
    assert flow.commit() is transaction
    assert kinds(flow) == [AddRows, Commit]


def test_a_refused_commit():
    """P8, P13: the broker's reason is the outcome."""
    flow = make_flow()
    add(flow, b"one")
    transaction = flow.commit()
    actions(flow)
    full = errors.QueueFullError("full")
    flow.on_transaction(transaction.transaction_id, 0, full)
    assert transaction.outcome is full


def test_an_unasked_answer_is_an_error():
    """P13: a commit that was never asked for cannot be answered."""
    flow = make_flow()
    add(flow, b"one")
    with pytest.raises(errors.InternalError, match="unasked"):
        flow.on_transaction(flow.transaction.transaction_id, 1, None)


def test_returns_are_counted_for_their_transaction():
    """P7: those of one that was rolled back may still come, and are nobody's."""
    flow = make_flow()
    flow.append_frame(ORDERS, b"one", 2)
    actions(flow)
    flow.roll_back()
    flow.append_frame(ORDERS, b"two", 2)
    transaction = flow.commit()
    actions(flow)
    assert flow.on_return([1, 2], NO_QUEUE) is False
    assert flow.on_return([4], NO_QUEUE) is True
    assert flow.on_return([], NO_QUEUE) is False
    flow.on_transaction(transaction.transaction_id, 2, None)
    assert transaction.outcome == Committed(2, 1)
    assert transaction.unroutable is NO_QUEUE


def test_a_blocked_broker_gets_no_rows_and_their_commit_waits():
    """P14: the commit of what it has already goes."""
    flow = make_flow()
    flow.append_frame(ORDERS, b"one", 1)
    actions(flow)
    flow.on_blocked("disk")
    flow.append_frame(ORDERS, b"two", 1)
    flow.commit()
    assert kinds(flow) == []
    flow.on_unblocked()
    assert kinds(flow) == [AddRows, Commit]
    flow.on_blocked("disk")
    flow.on_cut()
    assert flow.blocked is None


def test_the_window_counts_what_has_yet_to_go():
    """P14: a large transaction passes through it."""
    flow = make_flow(opened=False)
    flow.append_frame(ORDERS, bytes(9_000), 900)
    assert not flow.window.admits(1, 2_000)
    assert not flow.window.admits(200, 1)
    flow.on_opened()
    actions(flow)
    assert flow.window.admits(1, 2_000)
    assert flow.transaction.messages == 900


@pytest.mark.parametrize("asked", [False, True])
def test_a_dead_publisher_tells_what_is_known(asked):
    """P13: without its commit nothing happened; with it, nobody can know."""
    flow = make_flow()
    add(flow, b"one")
    transaction = flow.commit()
    if asked:
        actions(flow)
    flow.on_failure(errors.BrokerUnavailableError("gone", endpoint="e"))
    expected = errors.OutcomeUnknownError if asked else errors.BrokerUnavailableError
    assert type(transaction.outcome) is expected
    assert transaction.outcome.fields["endpoint"] == "e"
    assert flow.idle


def test_a_finishing_publisher_ends_when_nothing_is_under_way():
    """Close: a rollback still goes, a commit is waited for."""
    flow = make_flow()
    flow.append_frame(ORDERS, b"one", 1)
    actions(flow)
    flow.roll_back()
    flow.finishing = True
    assert isinstance(flow.next_action(0.0), Rollback)
    assert flow.next_action(0.0) == Finish()
