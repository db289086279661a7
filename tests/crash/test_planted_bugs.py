"""The simulation has teeth: bugs that are planted in the product are found.

All of them, with the seeds that each takes: `python tests/crash/simulate.py --bugs`.
"""

import pytest

from tests.crash.simulation.bugs import BUGS
from tests.crash.simulation.search import SECONDS, Choice, run

LEAST = 25
# Cheap ones of each kind: (bug, a seed that finds it).
FOUND = ()


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


@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_a_planted_bug_is_found(name, seed):
    """P4, Q7, I1, K3: a world that is fine without a bug fails with it."""
    choice = Choice(seed, SECONDS)
    found, _ = run(choice)
    assert not found.failure, found.failure
    with BUGS[name]():
        found, _ = run(choice)
    assert found.failure
