"""A few sequences of the ledger of half checkpoints with a bug; without: tests/spark."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
SEQUENCES, SEED = 8, 3
RUNS = 5


def figures(*more):
    """The exit status of a run, and the figures of its last line."""
    command = [sys.executable, "-m", "tests.crash.half_checkpoints", "--delta", "0"]
    command += ["--sequences", str(SEQUENCES), "--seed", str(SEED), *more]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = dict(re.findall(r"([a-z][a-z ]+) (\d+)", ended.stdout.splitlines()[-1]))
    print(ended.stdout, ended.stderr)
    return ended.returncode, {name: int(count) for name, count in told.items()}


def test_the_ledger_finds_the_rule_missing():
    """S11: without the rule, batch ids come again with other rows, which the sink skips.

    Whether they do in one sequence also depends on time.
    """
    runs = (figures("--planted", "--first", str(1 + SEQUENCES * run)) for run in range(RUNS))
    assert any(status == 1 and told["lost"] > 0 for status, told in runs)
