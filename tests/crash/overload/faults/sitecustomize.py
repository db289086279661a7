"""A slow disk for a broker process: Python runs this at its start, found on PYTHONPATH.

A sync takes as long as a disk of `ACKQ_DISK_BYTES_S` needs for what was written since the one
before, whatever the machine's own disk does.
"""

import os
import time

from ackq_broker.journal.files.disk import Disk

_rate = float(os.environ["ACKQ_DISK_BYTES_S"])
_write, _sync = Disk.write, Disk.sync_data
_unsynced = [0]


def _slow_write(self, fd, buffers, offset):
    _unsynced[0] += sum(memoryview(buffer).nbytes for buffer in buffers)
    _write(self, fd, buffers, offset)


def _slow_sync(self, fd):
    began, size, _unsynced[0] = time.monotonic(), _unsynced[0], 0
    _sync(self, fd)
    time.sleep(max(0.0, size / _rate - (time.monotonic() - began)))


Disk.write, Disk.sync_data = _slow_write, _slow_sync
