"""Bytes of messages that are delivered and not settled."""

from hypothesis import given
from hypothesis import strategies as st

from ackq.wire.held_bytes import HeldBytes


def test_a_batch_that_is_settled_in_part():
    """L19, C8: settled rows count with their batch's mean size, in any order."""
    held = HeldBytes()
    held.add(1, 4, 40)
    held.add(5, 7, 60)
    held.remove(4, 5)
    assert held.total == 100 - 10 - 20
    held.remove(1, 3)
    assert held.total == 40
    held.remove(6, 7)
    assert held.total == 0


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 99)), min_size=1), st.data())
def test_nothing_is_left_when_all_are_settled(batches, data):
    held, last = HeldBytes(), 0
    for rows, size in batches:
        held.add(last + 1, last + rows, size)
        last += rows
    assert held.total == sum(size for _, size in batches)
    cuts = sorted(data.draw(st.sets(st.integers(1, last))) | {last})
    ranges = [(first + 1, end) for first, end in zip([0, *cuts], cuts, strict=False)]
    for first, end in data.draw(st.permutations(ranges)):
        held.remove(first, end)
        assert held.total >= 0
    assert held.total == 0
