"""Which publish numbers a confirm answers."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.service.publishing.pending_confirms import PendingConfirms, ranges


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
    """P2: a cumulative confirm stops at a gap, as its numbers may still arrive."""
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


def test_many_pieces_wait_for_what_is_between_them():
    """P9, P11: 500 confirms of one number each become one as soon as the disk has caught up."""
    unanswered = received((1, 1000))
    assert confirms(unanswered, range(1, 1000, 2)) == [("up to", 1)]
    assert confirms(unanswered, range(2, 501, 2), 0.5) == [("up to", 501)]
    assert unanswered.wait_s(0.5) == 0.5
    assert confirms(unanswered, range(502, 1001, 2)) == [("up to", 1000)]
    assert unanswered.wait_s(0.5) is None


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


def test_an_urgent_number_does_not_wait():
    """P11: an `ack_immediately` publish is confirmed when handled; its neighbours may wait."""
    unanswered = received((1, 399))
    unanswered.received(400, 400, 1, urgent=True)
    unanswered.received(401, 1000, 1)
    assert confirms(unanswered, range(2, 501, 2)) == [(400, 400)]
    assert confirms(unanswered, range(1, 500, 2)) == [("up to", 500)]


def test_few_pieces_go_at_once():
    """P5: a transient message among persistent ones is confirmed when it is enqueued."""
    unanswered = received((1, 1000))
    assert confirms(unanswered, [5, 7, 900]) == [(5, 5), (7, 7), (900, 900)]


def test_what_came_before_is_told_apart():
    """P10: a number received again while its answer is pending is recognized as in progress."""
    unanswered = received((1, 10))
    assert unanswered.received(8, 12, 1) == BitMap64([8, 9, 10])
    assert unanswered.in_progress(11, 1 << 61) == BitMap64([11, 12])
    confirms(unanswered, range(1, 13))
    assert unanswered.received(8, 9, 1) == BitMap64()


def test_a_nack_is_told_once():
    """P3: a number that was nacked before is left out of a second nack."""
    unanswered = received((1, 5))
    assert unanswered.nacked(BitMap64([2, 3])) == BitMap64([2, 3])
    assert unanswered.nacked(BitMap64([3, 4])) == BitMap64([4])
    assert confirms(unanswered, range(1, 6)) == [("up to", 5)]


def test_ranges():
    """P8: publish numbers are reported as ranges."""
    assert ranges(BitMap64()) == []
    assert ranges(BitMap64([7])) == [(7, 7)]
    assert ranges(BitMap64([1, 2, 3, 7, 9, 10])) == [(1, 3), (7, 7), (9, 10)]


@given(st.data())
def test_every_number_is_answered_exactly_once(data):
    """P3: in any order of confirms a client that applies them answers each number once."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    unanswered = PendingConfirms()
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
