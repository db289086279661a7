"""Deadlines: rounded, bounded, and equal to a dict of deadlines."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq_broker.core.columns.deadlines import rounded


@settings(max_examples=100)
@given(
    waits=st.lists(st.integers(-(10**6), 10**15), min_size=1, max_size=20),
    now=st.integers(10**15, 2 * 10**15),
)
def test_instants_are_rounded_up(waits, now):
    """Q3, C14: instants are never early, late by at most 1/512 of the wait or 16.4 ms."""
    instants = np.array(waits) + now
    late = rounded(instants, now) - instants
    assert (late >= 0).all()
    assert (late <= np.maximum(np.array(waits) / 512, 16_384)).all()


def test_buckets_of_a_steady_stream_are_bounded():
    """I6: a week's TTL on messages of every second needs less than 2,000 buckets."""
    week_us, now = 7 * 24 * 3600 * 10**6, 10**15
    publishes = now + np.arange(0, week_us, 10**6)
    ends = [int(rounded(np.array([at + week_us]), int(at))[0]) for at in publishes[::60]]
    assert len(set(ends)) < 2_000
