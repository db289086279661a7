"""A process with an open journal is killed: what it reported is there, its lock is not."""

import os
import signal
import subprocess
import sys

import pytest

from ackq.errors import InUseError
from ackq_broker.journal import POINTS, verify
from tests.unit.journal.running_journal import block_bytes, opened, recovered

PROGRAM = """
import pathlib, sys
from ackq_broker.journal import Journal, kill_at
from tests.unit.journal.running_journal import Running, block

running = Running(pathlib.Path(sys.argv[1]), sync=True, failpoint=kill_at(sys.argv[2]))
for number in range(1, 100):
    print(running.append(block(number)), flush=True)
    if number % 10 == 0:
        running.journal.free_blocks(range(number - 9, number))
        running.snapshot()
        backup = pathlib.Path(sys.argv[1]).with_name(f"backup-{number}")
        running.journal.back_up((b"state",), running.journal.sequence, backup).result()
"""


def test_the_lock_dies_with_its_process(tmp_path):
    """A lock is of a process, not a file that a crash leaves behind."""
    data = tmp_path / "data"
    program = (
        "import sys, pathlib\n"
        "from ackq_broker.journal import Journal\n"
        "journal = Journal.open(pathlib.Path(sys.argv[1]), on_synced=print, on_failure=print)\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(InUseError, match=f"process {process.pid}"):
            recovered(data)
        process.kill()
        process.wait()

    assert recovered(data).created is False


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_there_loses_nothing(tmp_path, point):
    """Q7, O5: SIGKILL at each point; what the process reported is there, with its blocks, and every
    backup that has its name is whole.
    """
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
    for backup in tmp_path.glob("backup-*[0-9]"):
        report = verify(backup)
        assert (report.opens, report.lost_blocks) == (True, ())
