"""The simulation has teeth: bugs that are planted in the product are found.

All of them, with the seeds that each takes: `python tests/crash/simulate.py --bugs`.
"""

import pytest

from tests.crash.simulation.bugs import BUGS
from tests.crash.simulation.search import SECONDS, Choice, quiet, run

LEAST = 50
# Some that are found soon, and seeds that are enough by far.
SOON = (
    "group_not_synced",
    "snapshot_not_synced",
    "live_segment_deleted",
    "fetch_off_by_one",
    "shared_block_counted_once",
)
MOST_SEEDS = 60


def test_every_bug_can_be_planted():
    """I1, I2: the lines that the bugs take away are all there, and come back."""
    assert len(BUGS) >= LEAST
    for bug in BUGS.values():
        codes = [line.function.__code__ for line in bug.lines]
        with bug():
            for line, code in zip(bug.lines, codes, strict=True):
                assert line.function.__code__ is not code, bug.name
        assert [line.function.__code__ for line in bug.lines] == codes
        assert bug.what


@pytest.mark.parametrize("name", SOON)
def test_a_planted_bug_is_found(name):
    """P4, Q7, I1, I4, S2: one of a few worlds fails with it."""
    choices = (Choice(seed, SECONDS) for seed in range(MOST_SEEDS))
    with quiet(), BUGS[name]():
        assert any(run(choice)[0].failure for choice in choices)
