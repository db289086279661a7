"""The short form of `tests.crash.disk.failpoints`: a random choice of the points each time."""

import random
import time

import pytest

from tests.crash.disk.failpoints import IN_LIFE, crash

DEATHS = 3


@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_a_broker_that_dies_at_a_failpoint_loses_nothing(tmp_path):
    """Q7, P4, P10, C4, C15, O5, S13: a broker killed under load in any step of its journal."""
    seed = time.time_ns() % 1_000_000
    points = random.Random(seed).sample(IN_LIFE, DEATHS)
    print("seed", seed, points)

    wrong, ledger = crash(tmp_path, seed, points)

    assert wrong == [], f"seed {seed}: {dict(ledger.figures)}"
    assert ledger.figures["killed"] == DEATHS
    assert ledger.figures["accepted done"] > 0
    assert ledger.figures["retained batches read"] > 0
