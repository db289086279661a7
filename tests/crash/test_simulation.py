"""Simulated worlds: a fixed set of seeds, and the replay of a seed.

`python tests/crash/simulate.py` runs as many as there is time for.
"""

import os
import subprocess
import sys

import pytest

from tests.crash.simulation.bugs import BUGS
from tests.crash.simulation.search import LINK_SECONDS, SECONDS, Choice, quiet, run, shrink
from tests.sizes import sized

SEEDS = sized(24, 160)
LINK_SEEDS = sized(12, 80)
SHARES = 4
REPLAYED = sized(2, 6)
# A planted bug takes far fewer.
MOST_SEEDS = 300


@pytest.mark.parametrize("share", range(SHARES))
def test_worlds(share):
    """I1, I2, I4, A10, P4, P10, P13, C7, S3, K3, Q7: no confirmed message is lost or doubled.

    Whatever ends, is cut or fails, and whatever a stranger tries: no message is placed twice, and
    no answer is taken back.
    """
    with quiet():
        results = [run(Choice(seed, SECONDS))[0] for seed in range(share, SEEDS, SHARES)]
    for result in results:
        assert not result.failure, f"{result.choice.command()}\n{result.failure}"


@pytest.mark.parametrize("share", range(SHARES))
def test_worlds_with_links(share):
    """L1, L5-L11, L17, L20: links lose no confirmed message, and double none that has an id.

    Whatever ends, is cut or fails, on the local broker, the remote one or between them: of messages
    without ids no more are doubled than are counted, and no message is acknowledged at the remote
    broker while it is held here.
    """
    with quiet():
        choices = (
            Choice(seed, LINK_SECONDS, links=True) for seed in range(share, LINK_SEEDS, SHARES)
        )
        results = [run(choice)[0] for choice in choices]
    for result in results:
        assert not result.failure, f"{result.choice.command()}\n{result.failure}"


@pytest.mark.parametrize("links", [False, True])
def test_a_seed_says_everything(links):
    """I2: a world replays identically, whatever the hashes of the process are."""
    with quiet():
        here = [run(Choice(seed, SECONDS, links=links))[0].digest for seed in range(REPLAYED)]
    program = (
        "from tests.crash.simulation.search import Choice, SECONDS, quiet, run\n"
        "with quiet():\n"
        f"    for seed in range({REPLAYED}):\n"
        f"        print(run(Choice(seed, SECONDS, links={links}))[0].digest)\n"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert here == there


def test_a_planted_bug_is_found_and_shrunk():
    """I1: a confirm that does not wait for the disk is found, and its shrunk world fails, too."""
    with quiet(), BUGS["confirm_before_sync"]():
        choices = (Choice(seed, SECONDS) for seed in range(MOST_SEEDS))
        found = next(choice for choice in choices if run(choice)[0].failure)
        less = shrink(found, report=lambda _: None)
        assert run(less)[0].failure
    assert less.seed == found.seed
    assert less.seconds < found.seconds or less.without or less.clients
