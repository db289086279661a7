"""Ports for servers that need to know theirs before they start.

Invariant: none is in the range from which the system assigns ports on request, so that no other
process gets it by chance between its choice and its use: not the brokers of another worker, for
example. Each worker of pytest-xdist has its share of them, and a process gives none twice.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from typing import Final

_FIRST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_given: set[int] = set()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports of this machine that no process listens on."""
    candidates = range(_FIRST + _WORKER, int(_EPHEMERAL.read_text().split()[0]), _WORKERS)
    found: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if len(found) == count:
            break
        if port in _given:
            continue
        try:
            socket.create_server((host, port)).close()
        except OSError:
            continue
        _given.add(port)
        found.append(port)
    assert len(found) == count, f"no {count} free ports from {_FIRST} on"
    return found
