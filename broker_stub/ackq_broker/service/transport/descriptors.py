"""File descriptors (I6): the limit of the process, shared out between connections and the journal.

Invariant: clients cannot take the descriptors that the journal needs.
"""

from __future__ import annotations

import resource
from typing import Final

# The most for files: open segments to read, the end of the log, a snapshot; and for the process.
_RESERVED: Final = 256
# Where the hard limit is none.
_MOST: Final = 1 << 20


def raise_limit() -> int:
    """Raises the soft limit to the hard one; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def for_connections(limit: int, listeners: int) -> int:
    """The descriptors that clients may take of each listener: gRPC counts them for each."""
    return max(1, (limit - min(_RESERVED, limit * 3 // 4)) // max(1, listeners))
