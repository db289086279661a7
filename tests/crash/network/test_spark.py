"""A short run of a query over a network with faults; the long form is a command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]


def test_a_query_loses_and_doubles_nothing():
    """K1-K3, S1-S4: queue -> Spark -> queue, and no call of source or sink is overdue.

    In a process of its own, because its time-outs are low.
    """
    command = [sys.executable, "-m", "tests.crash.network.spark", "--minutes", "0.1", "--seed", "2"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = dict(re.findall(r"^(\w+): (.*)$", ended.stdout, re.MULTILINE))
    assert " faults " in told["source"]
    assert " faults " in told["sink"]
    assert {"latestOffset", "read", "write", "commit"} <= told.keys()
