"""The broker's clock: wall time in microseconds that never runs backwards (Q8)."""

from __future__ import annotations

import time
from collections.abc import Callable


class BrokerClock:
    """Wall time that stands still while the machine's clock is behind what was given out before.

    Args:
        floor_us: The newest time the journal knows; the clock begins no earlier.
        wall_ns: Nanoseconds since the Unix epoch; injected by tests.
    """

    def __init__(self, floor_us: int = 0, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._last_us = floor_us
        self._wall_ns = wall_ns

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, never less than the time before."""
        self._last_us = max(self._last_us, self._wall_ns() // 1000)
        return self._last_us


def age_ms(since_us: int, now_us: int) -> int:
    """Milliseconds since a time; 0 when there is none."""
    return max(0, now_us - since_us) // 1000 if since_us else 0
