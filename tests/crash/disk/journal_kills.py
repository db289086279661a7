"""Kills a process with an open journal at each failpoint: a program for `test_journal_process`.

    python -m tests.crash.disk.journal_kills FOLDER

Each run is a fork of this process and has a folder of its own, `POINT-HIT`, with the data directory
and the file `notes`: the promises that the process made before it died.
"""

import contextlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from ackq_broker.journal import POINTS, kill_at
from tests.unit.journal.life import live_twice
from tests.unit.journal.notes import NotingDisk


def data_of(folder):
    """The data directory of a run, whose parent does not exist either."""
    return folder / "new" / "data"


def live_and_die(folder, failpoint):
    """Runs a journal in a folder; a fork that survives it ends with an exit status."""
    folder.mkdir()
    live_twice(data_of(folder), NotingDisk(folder / "notes"), failpoint=failpoint)


def hits(met):
    """The first time that a point is reached, and one in the middle of many.

    The number depends on the concurrency of a run's threads: the second may not be reached.
    """
    return sorted({1, met // 2 + 1})


def kill(folder, point, hit):
    """Kills a fork at a failpoint; returns whether SIGKILL ended it."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            live_and_die(folder / f"{point}-{hit}", kill_at(f"{point}:{hit}"))
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def main(folder):
    """Prints the points at which no process died; none is success."""
    met = []
    live_and_die(folder / "whole", met.append)
    times = Counter(met)
    survived = [
        point
        for point in POINTS
        for hit in hits(times[point])
        if not kill(folder, point, hit) and hit == 1
    ]
    print("\n".join(survived))
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
