"""`Ranges` behaves as the set of integers that it stands for."""

from hypothesis import given
from hypothesis import strategies as st

from ackq.client.ranges import Range, Ranges

SPANS = st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1]))


def numbers(ranges):
    return [number for first, last in ranges for number in range(first, last + 1)]


@given(st.lists(SPANS, max_size=30), SPANS)
def test_ranges_are_a_set(removals, asked):
    """P3: `remove` returns exactly the numbers that were members, each once.

    I5: adjacent extensions are one range: memory grows with runs, not with numbers.
    """
    ranges, expected = Ranges(), set(range(1, 21)) | set(range(31, 51))
    for first, last in ((1, 3), (4, 20), (31, 50)):
        ranges.extend(first, last)
    assert list(ranges) == [Range(1, 20), Range(31, 50)]
    for first, last in removals:
        span = set(range(first, last + 1))
        assert numbers(ranges.remove(first, last)) == sorted(expected & span)
        expected -= span
    assert numbers(ranges) == sorted(expected)
    inside = expected & set(range(asked[0], asked[1] + 1))
    assert numbers(ranges.intersection(*asked)) == sorted(inside)
    assert bool(ranges) == bool(expected)
    if expected:
        assert ranges.lowest == min(expected)
