"""Counts by position against a dict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.columns.position_counts import Counts

positions = st.sets(st.integers(1, 200), min_size=1)


@settings(max_examples=60)
@given(actions=st.lists(st.tuples(st.sampled_from(["add", "forget", "reload"]), positions)))
def test_counts_are_those_of_a_dict(actions: list[tuple[str, set[int]]]) -> None:
    """C7, C13: counts are added, forgotten and looked up together."""
    counts, expected = Counts(), dict.fromkeys(range(1, 201), 0)
    every = BitMap64(expected)
    for action, chosen in actions:
        if action == "add":
            counts.add(BitMap64(chosen))
            expected |= {position: expected[position] + 1 for position in chosen}
        elif action == "forget":
            counts.forget(BitMap64(chosen))
            expected |= dict.fromkeys(chosen, 0)
        else:
            counts = Counts.load(counts.dump())
        assert counts.at(every).tolist() == list(expected.values())
        assert set(counts.some(BitMap64(chosen))) == {p for p in chosen if expected[p]}
        whole = {n: BitMap64(p for p in every if expected[p] == n) for n in expected.values() if n}
        assert Counts.load(tuple(whole.items())).dump() == counts.dump()


def test_counts_go_down_as_they_went_up() -> None:
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
