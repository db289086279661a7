"""One short round of clients over a network with faults; the long form is a command."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_round_loses_and_doubles_nothing():
    """P3, P4, P10, P13, C10-C12, C15, C17, S1-S4, K2, K3: no message is lost, and no call hangs.

    In a process of its own, because its time-outs are low.
    """
    command = [sys.executable, "-m", "tests.crash.network"]
    command += ["--rounds", "1", "--seconds", "3", "--seed", "6"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = dict(re.findall(r"^  (\S+: [\w ]+) (\d+)$", ended.stdout, re.MULTILINE))
    assert int(told["publisher: confirmed"]) > 0
    assert int(told["channel: messages"]) > 0
    assert int(told["source: batches"]) > 0
    assert int(told["sink: batches"]) > 0
