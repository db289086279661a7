"""A machine with faults for a broker process: Python runs this at its start, from PYTHONPATH.

Invariant: disk, clock, limits and code are the real ones unless a file says otherwise; the
environment names the folder of these files.
"""

import json
import os
import runpy
import time
from pathlib import Path

_faults = Path(os.environ["ACKQ_TEST_FAULTS"])
_statvfs, _time_ns = os.statvfs, time.time_ns


def _full_disk(path):
    """`full-disk`: reports no free blocks."""
    status = _statvfs(path)
    if not (_faults / "full-disk").exists():
        return status
    fields = list(status)
    fields[4] = 0  # f_bavail: blocks free for users other than root
    return os.statvfs_result(fields)


def _wrong_clock():
    """`clock`: the seconds by which the wall clock is ahead."""
    try:
        ahead_s = int((_faults / "clock").read_text())
    except FileNotFoundError:
        ahead_s = 0
    return _time_ns() + ahead_s * 1_000_000_000


def _set_limits():
    """`limits`: values of `ackq.limits` by name, set before anything reads them."""
    file = _faults / "limits"
    if not file.exists():
        return
    from ackq import limits

    for name, value in json.loads(file.read_text()).items():
        setattr(limits, name, value)


def _slow_down():
    """`slow-disk`: bytes a second that the journal's disk takes, whatever the real one takes."""
    file = _faults / "slow-disk"
    if not file.exists():
        return
    from ackq_broker.journal.files.disk import Disk

    bytes_per_s, write, sync_data = float(file.read_text()), Disk.write, Disk.sync_data
    unsynced = 0

    def counted_write(self, fd, buffers, offset):
        nonlocal unsynced
        unsynced += sum(memoryview(buffer).nbytes for buffer in buffers)
        write(self, fd, buffers, offset)

    def slow_sync(self, fd):
        nonlocal unsynced
        began, size, unsynced = time.monotonic(), unsynced, 0
        sync_data(self, fd)
        time.sleep(max(0.0, size / bytes_per_s - (time.monotonic() - began)))

    Disk.write, Disk.sync_data = counted_write, slow_sync


def _change():
    """`change.py`: a program that changes the product, as a bug would."""
    file = _faults / "change.py"
    if file.exists():
        runpy.run_path(str(file))


os.statvfs, time.time_ns = _full_disk, _wrong_clock
_set_limits()
_slow_down()
_change()
