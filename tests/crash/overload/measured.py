"""The kernel's figures of a process: CPU seconds, memory, threads.

Invariant: read from /proc alone, so that a starved process can be measured from outside.
"""

import os
import re
import time
from pathlib import Path

from tests.benchmarks.cpu import Process

MIB = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid):
    """The CPU seconds that a process has used."""
    return Process.parsed(Path(f"/proc/{pid}/stat").read_text()).own_s


def resident_bytes(pid):
    """The memory that a process uses."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def peak_bytes(pid):
    """The peak memory of a process."""
    return _status(pid, "VmHWM") * 1024


def threads(pid):
    """The number of threads of a process."""
    return _status(pid, "Threads")


def _status(pid, field):
    return int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


class Meter:
    """Measures what a process uses from now on."""

    def __init__(self, pid):
        self._pid = pid
        self._began_s, self._cpu_s = time.monotonic(), cpu_s(pid)

    def said(self):
        """The CPU share since the begin, and the current memory and threads, as text."""
        part = (cpu_s(self._pid) - self._cpu_s) / (time.monotonic() - self._began_s)
        memory = resident_bytes(self._pid) / MIB
        return f"{100 * part:.1f} % CPU, {memory:.0f} MiB, {threads(self._pid)} threads"
