"""The short form: some examples of each target, the same in every run."""

import random

import pytest

from tests.fuzz.targets import targets

SEED = 20


@pytest.mark.parametrize("name", sorted(targets()))
def test_hostile_bytes(name):
    """P8, I6: hostile bytes give typed errors or sound results. Run a failure by `--replay`."""
    said, target = set(), targets()[name]
    with target.around():
        for number in range(1, target.examples + 1):
            which = f"{name}:{SEED}:{number}"
            try:
                said.add(target.run(random.Random(which)))
            except BaseException as failure:
                failure.add_note(f"python -m tests.fuzz --replay {which}")
                raise
    assert len(said) > 1, "examples that all come to the same end test nothing"
