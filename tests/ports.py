"""Ports for servers that need to know theirs before they start.

Invariant: none is in the range from which the system assigns ports on request, so that no other
process gets it by chance between its choice and its use: not the brokers of another worker, for
example.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_FIRST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports of this machine that no process listens on."""
    candidates = range(_FIRST, int(_EPHEMERAL.read_text().split()[0]))
    found: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if len(found) == count:
            break
        try:
            socket.create_server((host, port)).close()
        except OSError:
            continue
        found.append(port)
    assert len(found) == count, f"no {count} free ports from {_FIRST} on"
    return found
