"""The sequences of requeued positions against a dict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.columns import requeued
from ackq_broker.core.columns.requeued import Requeued

positions = st.sets(st.integers(1, 200), min_size=1)


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(positions, st.booleans(), st.booleans()), min_size=1, max_size=30),
    sweep=st.sampled_from([1, 5, 1024]),
)
def test_the_requeue_log_is_a_dict_of_sequences(steps, sweep):
    """K5: the latest sequence of each ready position counts, swept or not."""
    log, expected, ready = Requeued(), {}, BitMap64(range(1, 201))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(requeued, "_SWEEP_ROWS", sweep)
        patched.setattr(requeued, "_POSITIONS_PER_ROW", 10_000)
        for sequence, (chosen, reload, take) in enumerate(steps, 1):
            part = BitMap64(chosen)
            ready |= part
            log.add(sequence, part, ready)
            expected |= dict.fromkeys(chosen, sequence)
            if take:
                ready -= part
            if reload:
                log = Requeued.load(bytes(log.dump()))
            for horizon in range(sequence + 1):
                later = {p for p in ready if expected.get(p, 0) > horizon}
                assert set(log.after(horizon) & ready) == later
    assert len(log.after(len(steps))) == 0


def test_a_requeue_storm_leaves_a_bounded_log():
    """C16, K5: a message that is requeued again and again does not add up rows in the log."""
    log, ready = Requeued(), BitMap64((5,))
    for sequence in range(1, 10_000):
        log.add(sequence, ready, ready)
    assert len(bytes(log.dump())) < 1100 * 24
    assert list(log.after(9_998)) == [5]
    assert Requeued.load(b"").after(0) == BitMap64()
