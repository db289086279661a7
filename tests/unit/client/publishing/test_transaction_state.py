"""Decisions of a publisher in transaction mode, without threads or a broker: P7, P13.

The simulation runs them in any order of losses, cuts and kills (tests/crash/simulation).
"""

import pytest

from ackq import errors
from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Finish, Wait
from ackq.client.publishing.transaction_state import TransactionState
from ackq.client.publishing.unconfirmed import Destination

ORDERS = Destination("", mandatory=False)
OTHERS = Destination("x", mandatory=True)


def make_state(*, keep_mandatory=False):
    state = TransactionState(
        persistent=True, window_messages=1000, window_bytes=10_000, keep_mandatory=keep_mandatory
    )
    state.on_opened()
    return state


def add(state, *bodies, destination=ORDERS):
    for body in bodies:
        state.append(destination, encoding.Row(body, "q", *[None] * 7), len(body) + 1)


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
