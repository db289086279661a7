"""Tasks cover a lease exactly, in balance, and are cut at block edges where possible."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.spark.options.options import SplitOptions
from ackq.spark.source.partitions import SizedSpan, TagSpan, split

MIB = 1 << 20


def spans_of(*sizes, rows=100):
    return [SizedSpan(i * rows, (i + 1) * rows, size) for i, size in enumerate(sizes)]


STEPS = st.tuples(st.integers(0, 5), st.integers(1, 3000), st.integers(0, 4 * MIB))


@given(
    steps=st.lists(STEPS, min_size=1, max_size=40),
    start=st.integers(0, 1 << 50),
    least=st.integers(0, 64),
    largest=st.integers(1, 64 * MIB),
    cores=st.integers(1, 64),
)
def test_ranges_cover_the_lease(steps, start, least, largest, cores):
    """K2: each tag of the lease is in exactly one task, and no task is empty."""
    spans, tag = [], start
    for gap, rows, size in steps:
        spans.append(SizedSpan(tag + gap, tag + gap + rows, size))
        tag += gap + rows
    ranges = split(spans, SplitOptions(least, largest), cores)
    assert ranges[0].after == spans[0].after
    assert ranges[-1].last == spans[-1].last
    assert all(part.after < part.last for part in ranges)
    assert all(one.last == two.after for one, two in pairwise(ranges))
    assert ranges == split(spans, SplitOptions(least, largest), cores)


@pytest.mark.parametrize(
    ("spans", "options", "cores", "ends"),
    [
        # An empty lease has no tasks; a batch that fits one block is one task.
        ([], SplitOptions(), 4, []),
        (spans_of(1000, 1000), SplitOptions(), 8, [200]),
        # `minPartitions` splits inside blocks when there are fewer blocks than tasks.
        (spans_of(1000), SplitOptions(min_partitions=4), 1, [25, 50, 75, 100]),
        # Each task has at least one row, so `minPartitions` above the rows has no effect.
        (spans_of(10, rows=3), SplitOptions(min_partitions=10), 1, [1, 2, 3]),
        # A large batch is split over all cores.
        (spans_of(*[MIB] * 8), SplitOptions(), 2, [400, 800]),
        # `maxBytesPerPartition` bounds the bytes that a task reads.
        (spans_of(*[MIB] * 8), SplitOptions(0, 2 * MIB), 1, [200, 400, 600, 800]),
        # A cut moves to a near edge, so that no two tasks read one block.
        (spans_of(*[MIB] * 9), SplitOptions(min_partitions=2), 1, [400, 900]),
    ],
)
def test_where_a_lease_is_cut(spans, options, cores, ends):
    """A lease is cut by options, cores, and the edges of blocks."""
    assert split(spans, options, cores) == [TagSpan(*each) for each in pairwise([0, *ends])]
