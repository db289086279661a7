"""Tasks cover a lease exactly, in balance, and are cut at block edges where possible."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ackq.spark.options.options import SplitOptions
from ackq.spark.source.partitions import SizedSpan, TagSpan, split

MIB = 1 << 20


def spans_of(*sizes, rows=100):
    return [SizedSpan(i * rows, (i + 1) * rows, size) for i, size in enumerate(sizes)]


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 3000), st.integers(0, 4 * MIB)),
        min_size=1,
        max_size=40,
    ),
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


def test_nothing_to_split():
    """An empty lease has no tasks."""
    assert split([], SplitOptions(), 4) == []


def test_small_batch_is_one_task():
    """A batch that fits one block is one task."""
    assert split(spans_of(1000, 1000), SplitOptions(), 8) == [TagSpan(0, 200)]


def test_min_partitions():
    """`minPartitions` splits inside blocks when there are fewer blocks than tasks."""
    assert split(spans_of(1000), SplitOptions(min_partitions=4), 1) == [
        TagSpan(0, 25),
        TagSpan(25, 50),
        TagSpan(50, 75),
        TagSpan(75, 100),
    ]


def test_min_partitions_above_rows():
    """Each task has at least one row, so `minPartitions` above the rows has no effect."""
    assert len(split(spans_of(10, rows=3), SplitOptions(min_partitions=10), 1)) == 3


def test_parallel_by_default():
    """A large batch is split over all cores."""
    assert split(spans_of(*[MIB] * 8), SplitOptions(), 2) == [TagSpan(0, 400), TagSpan(400, 800)]


def test_max_bytes_per_partition():
    """`maxBytesPerPartition` bounds the bytes that a task reads."""
    ranges = split(spans_of(*[MIB] * 8), SplitOptions(max_bytes_per_partition=2 * MIB), 1)
    assert ranges == [TagSpan(0, 200), TagSpan(200, 400), TagSpan(400, 600), TagSpan(600, 800)]


def test_cuts_fall_on_block_edges():
    """A cut moves to a near edge, so that no two tasks read one block."""
    spans = spans_of(*[MIB] * 9)
    assert split(spans, SplitOptions(min_partitions=2), 1) == [TagSpan(0, 400), TagSpan(400, 900)]
