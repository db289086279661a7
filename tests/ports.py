"""Ports for servers that need to know theirs before they start, or bind it again after a restart.

Invariant: none is in the range from which the system assigns ports on request, so that no other
process gets it by chance while its server is down. Each is locked until the process that chose it
ends: no other test process chooses it. A process gives none again before all others.
"""

from __future__ import annotations

import fcntl
import functools
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

_FIRST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOCKS: Final = Path(tempfile.gettempdir(), f"ackq-ports-{os.getuid()}.lock")


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that no process listens on."""
    most = int(_EPHEMERAL.read_text().split()[0]) - _FIRST
    free = filter(_is_free, itertools.islice(_all_in_turn(), most))
    found = list(itertools.islice(free, count))
    assert len(found) == count, f"no {count} free ports from {_FIRST} on"
    return found


def _is_free(port: int) -> bool:
    """Locks a port, and looks whether no process listens on it."""
    try:
        # Of a process, not of a descriptor: a child does not keep it. One file has all locks.
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@functools.cache
def _all_in_turn() -> Iterator[int]:
    """All candidates in a random order, again and again."""
    candidates = list(range(_FIRST, int(_EPHEMERAL.read_text().split()[0])))
    random.Random().shuffle(candidates)
    return itertools.cycle(candidates)


@functools.cache
def _locks() -> IO[bytes]:
    """A file with a byte for each port; closing it in this process would give up all locks."""
    return _LOCKS.open("wb")
