"""Counts by position against a dict."""

import pytest
from pyroaring import BitMap64

from ackq_broker.core.columns.position_counts import Counts


def test_counts_go_down_as_they_went_up():
    """I3: a position is forgotten with its last count; one without a count cannot lose it."""
    counts, every = Counts(), BitMap64(range(1, 200))
    times = {position: position % 7 for position in every}
    for most in range(7):
        counts.add(BitMap64(p for p, n in times.items() if n > most))
    for _ in range(3):
        some = counts.some(every)
        assert list(some) == [p for p, n in times.items() if n]
        counts.subtract(some)
        times = {p: max(n - 1, 0) for p, n in times.items()}
        assert counts.at(every).tolist() == list(times.values())
    for _ in range(3):
        counts.subtract(counts.positions())
    assert counts.dump() == ()
    with pytest.raises(AssertionError):
        counts.subtract(BitMap64((1,)))
