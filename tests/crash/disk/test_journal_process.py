"""A process with an open journal is killed: what it reported is on disk, its lock is released."""

import os
import subprocess
import sys

import pytest

from ackq.errors import InUseError
from ackq_broker.journal import POINTS, verify
from tests.crash.disk.journal_kills import data_of
from tests.unit.journal.life import check
from tests.unit.journal.notes import read_notes
from tests.unit.journal.running_journal import recovered


def test_the_lock_dies_with_its_process(tmp_path):
    """A journal's lock belongs to a process; it is not a file that a crash leaves behind."""
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


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """A folder with a run for each failpoint, killed there."""
    folder = tmp_path_factory.mktemp("lives")
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.disk.journal_kills", str(folder)],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    return folder


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_there_loses_nothing(lives, point):
    """Q7, O5: a process killed at a failpoint loses nothing that it reported.

    SIGKILL at each point, when it is reached first and in the middle of a run: reported records are
    on disk, with their blocks, and a backup that has its final name is whole.
    """
    killed = sorted(lives.glob(f"{point}-*"))
    assert killed
    for life in killed:
        check(data_of(life), read_notes(life / "notes"), life.name)
        for backup in data_of(life).parent.glob("backups/whole"):
            report = verify(backup)
            assert (report.opens, report.lost_blocks) == (True, ())
