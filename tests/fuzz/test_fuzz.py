"""The short form: some examples of each target, the same in every run."""

import random
from contextlib import contextmanager, nullcontext

import pytest

from tests.fuzz import answers, blocks, calls, journals, links, texts
from tests.fuzz.targets import AROUND, TARGETS

SEED = 20
# Each takes about half a second.
EXAMPLES = {
    **dict.fromkeys(blocks.TARGETS, 200),
    **dict.fromkeys(texts.TARGETS, 100),
    **dict.fromkeys(journals.TARGETS, 15),
    **dict.fromkeys(links.TARGETS, 500),
    **dict.fromkeys(answers.TARGETS, 10),
    **dict.fromkeys(calls.TARGETS, 50),
    "coalesced": 60,
    "users_file": 40,
}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_hostile_bytes(name):
    """P8, I6: hostile bytes give typed errors or sound results. Run a failure by `--replay`."""
    said = set()
    with AROUND.get(name, nullcontext)():
        for number in range(1, EXAMPLES[name] + 1):
            which = f"{name}:{SEED}:{number}"
            with because(which):
                said.add(TARGETS[name](random.Random(which)))
    assert len(said) > 1, "examples that all come to the same end test nothing"


@contextmanager
def because(which):
    """Adds to a failure the command that runs its example again."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"python -m tests.fuzz --replay {which}")
        raise
