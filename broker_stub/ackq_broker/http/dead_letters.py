"""Counts of dead letters by origin and cause, for the dashboard (C13).

Invariant: the reasons, however many, are added up in slices, between other work (I6).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ackq.errors import QueueNotFoundError
from ackq_broker.core import views
from ackq_broker.core.core import Core

_SLICE: Final = 500
_PAUSE_S: Final = 0.002
_MOST_REASONS: Final = 50
_MOST_CAUSES: Final = 50
_FRESH_S: Final = 1.0
_SHARE: Final = 20


@dataclass(slots=True)
class DeadLetters:
    """Counts of the dead letters of one queue, by cause and origin, and by reason.

    `by_cause` has (cause, original queue) as keys, `by_reason` the reason as well.
    """

    queue: str
    messages: int = 0
    by_cause: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_reason: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The counts as values for JSON, the most common first, with the number of all reasons."""
        return {
            "queue": self.queue,
            "messages": self.messages,
            "causes": [
                {"cause": cause, "queue": queue, "messages": messages}
                for (cause, queue), messages in self.by_cause.most_common(_MOST_CAUSES)
            ],
            "reasons": [
                {"cause": cause, "queue": queue, "reason": reason, "messages": messages}
                for (cause, queue, reason), messages in self.by_reason.most_common(_MOST_REASONS)
            ],
            "reason_count": len(self.by_reason),
        }


class DeadLetterCounts:
    """Cache of the dead-letter counts of queues; a stale count is computed again on request.

    Args:
        core: The state, read between other work.
        clock: Returns seconds.
        pause: Sleeps for the given seconds.
    """

    def __init__(
        self,
        core: Core,
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._core = core
        self._clock = clock
        self._pause = pause
        self._counting = asyncio.Lock()
        # By queue: the time until which the count is fresh, and the count.
        self._counted: dict[str, tuple[float, DeadLetters]] = {}

    async def of(self, queue: str) -> DeadLetters:
        """The dead-letter counts of one queue; raises QueueNotFoundError."""
        async with self._counting:
            views.ready(self._core.state, queue)
            fresh_until_s, known = self._counted.get(queue, (0.0, None))
            if known is None or self._clock() >= fresh_until_s:
                known, busy_s = await self._count(queue)
                fresh_s = max(_FRESH_S, busy_s * _SHARE)
                now = self._clock()
                fresh = {name: each for name, each in self._counted.items() if each[0] > now}
                self._counted = {**fresh, queue: (now + fresh_s, known)}
            return known

    async def of_all(self, queues: Iterable[str]) -> list[DeadLetters]:
        """The counts of the given queues, without deleted ones; forgets the counts of others."""
        found = []
        for queue in queues:
            try:
                found.append(await self.of(queue))
            except QueueNotFoundError:
                continue
        wanted = {each.queue for each in found}
        self._counted = {name: kept for name, kept in self._counted.items() if name in wanted}
        return found

    async def _count(self, queue: str) -> tuple[DeadLetters, float]:
        """Counts the dead letters of a queue; returns them and the seconds of event loop used."""
        found = DeadLetters(queue)
        busy_s, began_s = 0.0, self._clock()
        for number, group in enumerate(views.dead_letters(self._core.state, queue), 1):
            found.messages += group.messages
            found.by_cause[group.cause, group.queue] += group.messages
            found.by_reason[group.cause, group.queue, group.reason] += group.messages
            if number % _SLICE == 0:
                busy_s += self._clock() - began_s
                await self._pause(_PAUSE_S)
                began_s = self._clock()
        return found, busy_s + self._clock() - began_s
