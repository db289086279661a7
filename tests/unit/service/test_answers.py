"""Which confirms answer which publishes."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.service.answers import Unanswered, ranges


def confirms(unanswered, numbers):
    return [
        ("up to", c.last_number) if c.multiple else (c.first_number, c.last_number)
        for c in unanswered.confirms(BitMap64(numbers))
    ]


def received(*spans, lowest=1):
    unanswered = Unanswered()
    for first, last in spans:
        unanswered.received(first, last, lowest)
    return unanswered


def test_in_order_is_one_cumulative_confirm():
    """P2: what is handled in order is confirmed by one number with `multiple`."""
    unanswered = received((1, 10), (11, 20))
    assert confirms(unanswered, range(1, 21)) == [("up to", 20)]
    assert len(unanswered) == 0


def test_out_of_order_is_confirmed_by_ranges():
    """P9: what is handled before its predecessors is confirmed on its own."""
    unanswered = received((1, 10))
    assert confirms(unanswered, [4, 5, 9]) == [(4, 5), (9, 9)]
    assert confirms(unanswered, [1, 2, 3, 6]) == [("up to", 6)]
    assert confirms(unanswered, [7, 8, 10]) == [("up to", 10)]


def test_each_number_is_confirmed_once():
    """P3: a second confirm of a number is not sent."""
    unanswered = received((1, 3))
    assert confirms(unanswered, [1, 2]) == [("up to", 2)]
    assert confirms(unanswered, [1, 2]) == []


def test_a_nacked_number_is_answered():
    """P3: a cumulative confirm passes over numbers whose nack went before."""
    unanswered = received((1, 5))
    unanswered.refused(BitMap64([3]))
    assert confirms(unanswered, [1, 2, 4, 5]) == [("up to", 5)]


def test_a_cumulative_confirm_never_covers_what_did_not_arrive():
    """P2: after a gap nothing is confirmed cumulatively: the numbers in it may still come."""
    unanswered = received((5, 6), (9, 10), lowest=5)
    assert confirms(unanswered, [5, 6, 9, 10]) == [("up to", 6), (9, 10)]
    unanswered.received(7, 8, 5)
    assert confirms(unanswered, [7, 8]) == [("up to", 8)]


def test_the_lowest_unanswered_number_closes_gaps():
    """P10: numbers below the client's lowest unanswered one are answered already."""
    unanswered = received((5, 6), lowest=5)
    unanswered.received(20, 22, 20)
    assert confirms(unanswered, [20, 21]) == [(20, 21)]
    assert confirms(unanswered, [5, 6]) == [("up to", 6)]
    assert confirms(unanswered, [22]) == [("up to", 22)]


def test_ranges():
    """P8: numbers are told in runs."""
    assert ranges(BitMap64()) == []
    assert ranges(BitMap64([7])) == [(7, 7)]
    assert ranges(BitMap64([1, 2, 3, 7, 9, 10])) == [(1, 3), (7, 7), (9, 10)]


@given(st.data())
def test_every_number_is_answered_exactly_once(data):
    """P3: whatever the order of confirms, a client that applies them answers each number once."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    unanswered = Unanswered()
    open_numbers = set()
    waiting = []
    first = 1
    for size in sizes:
        unanswered.received(first, first + size - 1, 1)
        open_numbers.update(range(first, first + size))
        waiting += range(first, first + size)
        first += size
    waiting = data.draw(st.permutations(waiting))
    while waiting:
        count = data.draw(st.integers(1, len(waiting)))
        part, waiting = waiting[:count], waiting[count:]
        answered = set()
        for kind, last in confirms(unanswered, part):
            low = 0 if kind == "up to" else kind
            answered |= {number for number in open_numbers if low <= number <= last}
        assert answered == set(part)
        open_numbers -= answered
    assert open_numbers == set()
