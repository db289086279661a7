"""CPU seconds of the processes that a benchmark starts, by part, as the kernel counts them.

Invariant: a process belongs to one part, by its parents: a server is one of `SERVERS`, the JVM is a
child of this process, processes started by the JVM are Spark's Python workers. Ended processes
count with the process that waited for them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

# Servers that benchmarks have started: name -> process id.
SERVERS = {}
ACKQ = "ackq"
PARTS = ("client", "jvm", "worker", "broker")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """The kernel's figures of a process: its parent, and the CPU seconds that it took."""

    pid: int
    name: str
    parent: int
    own_s: float
    children_s: float

    @classmethod
    def parsed(cls, stat):
        """Parses a line of /proc/PID/stat; the name may have blanks and parentheses."""
        pid, _, rest = stat.partition(" (")
        name, _, fields = rest.rpartition(") ")
        values = fields.split()
        user, system, children_user, children_system = (int(value) for value in values[11:15])
        return cls(
            int(pid),
            name,
            int(values[1]),
            (user + system) * _TICK_S,
            (children_user + children_system) * _TICK_S,
        )


def processes():
    """Every process of the machine."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield Process.parsed(stat.read_text(encoding="utf-8", errors="replace"))
        except OSError:  # it has ended meanwhile
            continue


def seconds(server=ACKQ):
    """CPU seconds so far by part; `broker` is one server, other servers are left out."""
    return by_part(list(processes()), os.getpid(), SERVERS, server)


def by_part(found, root, servers, server):
    """The seconds of `root` and its descendants, and of a server, by part."""
    known = {process.pid: process for process in found}
    places = {pid: name for name, pid in servers.items()}
    total = dict.fromkeys(PARTS, 0.0)
    for process in found:
        part = _part(process, known, root, places)
        if part == "client":
            total["client"] += process.own_s
        elif part == "jvm":
            total["jvm"] += process.own_s
            total["worker"] += process.children_s
        elif part == "worker":
            total["worker"] += process.own_s + process.children_s
        elif part == server:
            total["broker"] += process.own_s + process.children_s
    return total


def _part(process, known, root, places):
    """The part of a process, or the name of its server; empty for an unrelated process."""
    line = [process]
    while line[-1].pid not in places and line[-1].pid != root:
        parent = known.get(line[-1].parent)
        if parent is None:
            return ""
        line.append(parent)
    if line[-1].pid in places:
        return places[line[-1].pid]
    if len(line) > 1 and line[-2].name == "java":
        return "jvm" if len(line) == 2 else "worker"
    return "client"


def of_processes(parts):
    """CPU seconds so far of single processes, by name; 0 for one that has ended."""
    known = {process.pid: process.own_s for process in processes()}
    return {name: known.get(pid, 0.0) for name, pid in parts.items()}


def per_row(before, after, rows):
    """Microseconds of CPU for each row, by part."""
    return {part: (after[part] - before[part]) / rows * 1e6 for part in before}


class Meter:
    """Readings of CPU at the ends of micro-batches, as they are noticed.

    The difference of two readings is counted whole: a reading that is late by a part of a
    micro-batch moves that part from one side to the other.
    """

    def __init__(self, server, skip):
        self._server = server
        self._skip = skip
        self._readings = {}

    def at(self, batches):
        """Takes a reading when `batches` micro-batches are done."""
        if batches >= self._skip and batches not in self._readings:
            self._readings[batches] = seconds(self._server)

    def per_row(self, rows_of_batch):
        """Microseconds for each row between the first and the last reading; empty: too few."""
        if len(self._readings) < 2:
            return {}
        first, last = min(self._readings), max(self._readings)
        rows = (last - first) * rows_of_batch
        return per_row(self._readings[first], self._readings[last], rows)
