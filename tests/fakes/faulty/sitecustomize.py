"""A machine with faults for a broker process: Python runs this at its start, found on PYTHONPATH.

Invariant: disk, clock and limits are its own unless a file in the folder that the environment names
says otherwise.
"""

import json
import os
import time
from pathlib import Path

_faults = Path(os.environ["ACKQ_TEST_FAULTS"])
_statvfs, _time_ns = os.statvfs, time.time_ns


def _full_disk(path):
    """`full-disk`: nothing is free."""
    status = _statvfs(path)
    if not (_faults / "full-disk").exists():
        return status
    fields = list(status)
    fields[4] = 0  # f_bavail: blocks free for whoever is not root
    return os.statvfs_result(fields)


def _wrong_clock():
    """`clock`: seconds that the wall clock is ahead."""
    try:
        ahead_s = int((_faults / "clock").read_text())
    except FileNotFoundError:
        ahead_s = 0
    return _time_ns() + ahead_s * 1_000_000_000


def _set_limits():
    """`limits`: values of `ackq.limits` by name, before anything reads them."""
    file = _faults / "limits"
    if not file.exists():
        return
    from ackq import limits

    for name, value in json.loads(file.read_text()).items():
        setattr(limits, name, value)


os.statvfs, time.time_ns = _full_disk, _wrong_clock
_set_limits()
