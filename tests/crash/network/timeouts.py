"""Low time-outs, so that a dead connection is noticed in seconds; and the resulting bound.

Invariant: imports nothing that reads a limit, so that limits can be lowered first.
"""

from ackq import limits

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
    """Lowers the limits of this process."""
    for name, value in LOW.items():
        setattr(limits, name, value)


def notice_s():
    """Seconds in which any client has noticed that its connection is dead, and made another.

    The silence before a ping and the wait for its answer, or the heartbeat; then a call that meets
    the same connection, and one that cannot be made.
    """
    ping_ms = limits.KEEPALIVE_MS + 2 * limits.KEEPALIVE_TIMEOUT_MS
    most_ms = max(ping_ms, limits.HEARTBEAT_MS) + limits.REQUEST_TIMEOUT_MS
    return (most_ms + limits.CONNECT_TIMEOUT_MS) / 1000
