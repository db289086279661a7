"""The broker's clocks: wall time that never runs backwards (Q8), and uptime without its delays.

Invariant: neither ever runs backwards; the first decides when messages expire, the second when a
client counts as silent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ackq import limits
from ackq_broker.engine.events import event

_log = logging.getLogger(__name__)

_JUMP_US: Final = limits.CLOCK_JUMP_MS * 1000
_WAIT_US: Final = limits.CLOCK_JUMP_WAIT_MS * 1000
# A tick that comes later than this was delayed.
_TICK_MOST_S: Final = 1.25 * limits.UPTIME_TICK_MS / 1000


def _steady_ns() -> int:
    """Nanoseconds since the machine started, time asleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class BrokerClock:
    """Monotonic wall clock of the broker.

    It stands still while the machine's clock is behind a time that it returned before. When the
    machine's clock jumps ahead by more than `CLOCK_JUMP_MS`, this one continues at its pace, so
    that nothing expires by mistake; the jump is accepted once it has lasted `CLOCK_JUMP_WAIT_MS`.
    Time that the broker was down is no jump.

    Args:
        floor_us: The newest time the journal knows; the clock begins no earlier.
        wall_ns: Nanoseconds since the Unix epoch; injected by tests.
        steady_ns: Nanoseconds of a clock that nobody sets; injected by tests.
    """

    def __init__(
        self,
        floor_us: int = 0,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = _steady_ns,
    ) -> None:
        self._last_us = floor_us
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        # The largest accepted lead of the wall clock over the steady one.
        self._ahead_us: int | None = None
        # The steady time at which a jump was seen that is not accepted yet.
        self._jumped_us: int | None = None

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, never less than in the call before."""
        wall_us, steady_us = self._wall_ns() // 1000, self._steady_ns() // 1000
        if self._ahead_us is None:
            self._ahead_us = wall_us - steady_us
        jump_us = wall_us - steady_us - self._ahead_us
        if jump_us > _JUMP_US and not self._accepted(jump_us, steady_us):
            self._last_us = max(self._last_us, steady_us + self._ahead_us)
            return self._last_us
        if self._jumped_us is not None and jump_us <= _JUMP_US:
            _log.warning(
                "the machine's clock is right again after its jump ahead; no message expired "
                "because of it",
                extra=event("clock_back"),
            )
        self._jumped_us = None
        self._ahead_us = max(self._ahead_us, wall_us - steady_us)
        self._last_us = max(self._last_us, wall_us)
        return self._last_us

    def jump_us(self) -> int:
        """How far the machine's clock is ahead of `now_us`, by a jump that is not accepted yet."""
        self.now_us()
        if self._jumped_us is None:
            return 0
        # After its jump the machine's clock may still be behind the time that the journal knows.
        return max(0, self._wall_ns() // 1000 - self._last_us)

    @property
    def ahead_us(self) -> int:
        """Lead over the machine's clock, during which this clock stands still."""
        return max(0, self._last_us - self._wall_ns() // 1000)

    def _accepted(self, jump_us: int, steady_us: int) -> bool:
        """Whether a jump has lasted long enough; logs when it is seen and when it is accepted."""
        if self._jumped_us is None:
            self._jumped_us = steady_us
            _log.warning(
                "the machine's clock jumped ahead by %d s: the broker's time continues from "
                "before the jump, and nothing expires for %d s. Set the clock right within that "
                "time, or messages that are due by it then expire",
                jump_us // 1_000_000,
                _WAIT_US // 1_000_000,
                extra=event("clock_jumped", seconds=jump_us // 1_000_000),
            )
        if steady_us - self._jumped_us < _WAIT_US:
            return False
        _log.warning(
            "the machine's clock stayed %d s ahead: the broker now follows it",
            jump_us // 1_000_000,
            extra=event("clock_believed", seconds=jump_us // 1_000_000),
        )
        return True


def age_ms(since_us: int, now_us: int) -> int:
    """Milliseconds since a time; 0 when there is none."""
    return max(0, now_us - since_us) // 1000 if since_us else 0


class Uptime:
    """Monotonic seconds without the time by which this process was late (C12, S5).

    A broker that was stopped, or starved of CPU, or busy, has not read what its clients sent
    meanwhile. That is not silence of the clients: a delay of the event loop does not count. The
    delay shows in ticks that come late, not between two callbacks of a long turn.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticked_s = clock()
        self._uptime_s = 0.0

    def __call__(self) -> float:
        """The uptime so far, in seconds."""
        return self._uptime_s + min(self._clock() - self._ticked_s, _TICK_MOST_S)

    def tick(self) -> None:
        """Counts the time since the last tick; called by the event loop every `UPTIME_TICK_MS`."""
        self._uptime_s = self()
        self._ticked_s = self._clock()
