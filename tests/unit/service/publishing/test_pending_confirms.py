"""Which publish numbers a confirm answers."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.service.publishing.pending_confirms import PendingConfirms


def confirms(unanswered, numbers=(), now_s=0.0):
    return [
        ("up to", c.last_number) if c.multiple else (c.first_number, c.last_number)
        for c in unanswered.confirms(BitMap64(numbers), now_s)
    ]


def received(*spans, lowest=1, window=0):
    unanswered = PendingConfirms(window)
    for first, last in spans:
        unanswered.received(first, last, lowest)
    return unanswered


def test_a_cumulative_confirm_never_covers_what_did_not_arrive():
    """P2, P10: it stops at a gap, unless the client's lowest unanswered number closes the gap."""
    unanswered = received((5, 6), (9, 10), lowest=5)
    assert confirms(unanswered, [5, 6, 9, 10]) == [("up to", 6), (9, 10)]
    unanswered.received(7, 8, 5)
    assert confirms(unanswered, [7, 8]) == [("up to", 8)]
    unanswered.received(20, 22, 20)
    assert confirms(unanswered, [22]) == [(22, 22)]
    assert confirms(unanswered, [20, 21]) == [("up to", 21)]


def test_pieces_wait_a_second_at_most():
    """P11: out-of-order confirms wait 1 s at most, from when the oldest publish was handled."""
    unanswered = received((1, 400))
    assert confirms(unanswered, range(2, 200, 2)) == []
    assert confirms(unanswered, range(200, 401, 2), 0.9) == []
    assert confirms(unanswered, (), 0.99) == []
    assert unanswered.wait_s(0.75) == 0.25
    assert confirms(unanswered, (), 1.0) == [(n, n) for n in range(2, 401, 2)]
    assert unanswered.wait_s(1.0) is None
    assert confirms(unanswered, range(1, 401, 2), 1.0) == [("up to", 399)]


def test_pieces_wait_for_a_third_of_the_window_at_most():
    """P11: out-of-order confirms wait for a third of the publisher's window at most."""
    unanswered = received((1, 1000), window=600)
    assert confirms(unanswered, range(2, 400, 2)) == []
    assert confirms(unanswered, [400]) == [(n, n) for n in range(2, 401, 2)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_every_number_is_answered_exactly_once(sizes, data):
    """P3: in any order of confirms a client that applies them answers each number once."""
    unanswered, first = PendingConfirms(), 1
    for size in sizes:
        unanswered.received(first, first + size - 1, 1)
        first += size
    waiting = data.draw(st.permutations(range(1, first)))
    left = set(waiting)
    while waiting:
        count = data.draw(st.integers(1, len(waiting)))
        part, waiting = waiting[:count], waiting[count:]
        answered = set()
        for kind, last in confirms(unanswered, part):
            answered |= {n for n in left if (0 if kind == "up to" else kind) <= n <= last}
        assert answered == set(part)
        left -= answered
