"""Decides a `Tick` when messages expire, delays end or unused queues are to be deleted (Q3, C14).

Invariant: while something is due at a time, a timer is set for that time or an earlier one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ackq_broker.core import commands, views
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event

_log = logging.getLogger(__name__)

# The shortest time between ticks, so that messages that expire one by one share a record.
_LEAST_S: Final = 0.02
# The longest time between two checks, because the broker's clock may stand still or be set.
_MOST_S: Final = 1.0


class TickTimer:
    """The timer that decides ticks, one for all queues.

    Args:
        engine: Knows the next due time, and calls `on_change` listeners.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        engine.on_change.append(self.schedule)

    def schedule(self) -> None:
        """Schedules one check in the next turn of the event loop for all changes until then."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._engine.or_fail(self._set_timer))

    def stop(self) -> None:
        """Stops all ticks, at the broker's stop."""
        self._scheduled = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        """Sets the timer for the next due time, unless it is set early enough."""
        self._scheduled = False
        due_us = views.next_due_us(self._engine.core.state)
        if not due_us:
            return
        loop = asyncio.get_running_loop()
        wait_s = (due_us - self._engine.clock.now_us()) / 1_000_000
        at_s = loop.time() + min(max(wait_s, _LEAST_S), _MOST_S)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._engine.or_fail(self._tick))

    def _tick(self) -> None:
        self._timer = None
        self.schedule()
        if 0 < views.next_due_us(self._engine.core.state) <= self._engine.clock.now_us():
            ticked: commands.Ticked = self._engine.decide(commands.Tick()).reply
            self._engine.counters["expired"] += ticked.expired
            for queue in ticked.deleted:
                _log.info(
                    "queue '%s' was deleted: it was not used within its expires_ms",
                    queue,
                    extra=event("queue_expired", queue=queue),
                )
