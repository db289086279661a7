"""Decides a `Tick` when something is due: messages expire, delays end, unused queues go (Q3, C14).

Invariant: while something is due at a time, a timer stands for that time or an earlier one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ackq_broker.core import commands
from ackq_broker.service.engine.engine import Engine

_log = logging.getLogger(__name__)

# What is due within so long of a tick shares the next one: messages that expire one by one shall
# not be a record each.
_LEAST_S: Final = 0.02
# The broker's clock may stand still or be set: it is looked at again after so long at the latest.
_MOST_S: Final = 1.0


class Ticker:
    """One timer for all queues.

    Args:
        engine: Knows what is due, and says when it has changed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        engine.after_write.append(self.look_soon)

    def look_soon(self) -> None:
        """Something changed: look in the next turn of the event loop, once for all changes."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def stop(self) -> None:
        """The broker stops: no tick any more."""
        self._looking = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Sets the timer, unless it stands early enough."""
        self._looking = False
        due_us = self._engine.core.next_due_us()
        if not due_us:
            return
        loop = asyncio.get_running_loop()
        wait_s = (due_us - self._engine.clock.now_us()) / 1_000_000
        at_s = loop.time() + min(max(wait_s, _LEAST_S), _MOST_S)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if 0 < self._engine.core.next_due_us() <= self._engine.clock.now_us():
            ticked: commands.Ticked = self._engine.decide(commands.Tick()).reply
            self._engine.counters["expired"] += ticked.expired
            for queue in ticked.deleted:
                _log.info("queue '%s' was deleted: nothing had used it for its time", queue)
        self.look_soon()
