"""Bytes of messages that are delivered and not settled."""

from hypothesis import given
from hypothesis import strategies as st

from ackq.wire.held_bytes import HeldBytes


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
