"""Failpoints: each is met, and a real process that dies there loses nothing it reported."""

import os
import signal
import subprocess
import sys

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.journal import POINTS, kill_at
from tests.unit.journal.support import block, block_bytes, opened

PROGRAM = """
import pathlib, sys
from ackq_broker.journal import Journal, kill_at
from tests.unit.journal.support import Running, block

running = Running(pathlib.Path(sys.argv[1]), sync=True, failpoint=kill_at(sys.argv[2]))
for number in range(1, 100):
    print(running.append(block(number)), flush=True)
    if number % 10 == 0:
        running.journal.free_blocks(range(number - 9, number))
        running.snapshot()
"""


def test_every_point_is_met(tmp_path):
    """The list of points is what the journal calls, in that order at first sight."""
    met = []
    with opened(tmp_path / "data", failpoint=met.append) as running:
        for number in range(1, 20):
            running.append(block(number))
        running.journal.free_blocks(range(1, 20))
        running.snapshot()

    assert tuple(dict.fromkeys(met)) == POINTS


@pytest.mark.parametrize(
    "text", ["", "nowhere", "after_write:0", "after_write:x", "after_write:-1", ":1"]
)
def test_a_bad_failpoint_is_refused(text):
    """A mistyped failpoint would make a crash test that never crashes."""
    with pytest.raises(InvalidArgumentError, match="the points are before_write, after_write"):
        kill_at(text)


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_there_loses_nothing(tmp_path, point):
    """Q7: SIGKILL at each point; what the process reported is there, with its blocks."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), f"{point}:2"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    reported = [int(line) for line in done.stdout.split()]
    last = reported[-1] if reported else 0

    with opened(tmp_path / "data") as running:
        assert running.journal.sequence in (last, last + 1)
        for number in range(last // 10 * 10 + 1, last + 1):
            assert running.journal.read_block(number) == block_bytes(number)
