"""Low time-outs, so that a dead connection is noticed in seconds; and the resulting bound."""

import os
import sys
import tempfile

from ackq import limits
from tests.fakes import machine

LOW = {
    "HEARTBEAT_MS": 3_000,
    "HEARTBEAT_SEND_MS": 1_000,
    "KEEPALIVE_MS": 1_000,
    "KEEPALIVE_TIMEOUT_MS": 1_000,
    "CONNECT_TIMEOUT_MS": 3_000,
    "REQUEST_TIMEOUT_MS": 5_000,
    "MAX_ADVANCE_WAIT_MS": 4_000,
}


def lower():
    """Runs this program again with low limits, unless it has them, as its brokers then do."""
    if any(getattr(limits, name) != value for name, value in LOW.items()):
        env = machine.with_limits(tempfile.mkdtemp(prefix="ackq-limits-"), LOW)
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, os.environ | env)  # noqa: S606 - this program


def notice_s():
    """Seconds in which any client has noticed that its connection is dead, and made another.

    The silence before a ping and the wait for its answer, or the heartbeat; then a call that meets
    the same connection, and one that cannot be made.
    """
    ping_ms = limits.KEEPALIVE_MS + 2 * limits.KEEPALIVE_TIMEOUT_MS
    most_ms = max(ping_ms, limits.HEARTBEAT_MS) + limits.REQUEST_TIMEOUT_MS
    return (most_ms + limits.CONNECT_TIMEOUT_MS) / 1000
