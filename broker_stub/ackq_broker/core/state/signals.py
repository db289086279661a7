"""Volatile data that queues share: signals to the service, due instants, sums over all queues."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, KeysView
from typing import Final

# Counts of messages that only grow, by name; for dead letters the name is this and the cause.
Totals = Counter[str]
DEAD_LETTERED: Final = "dead_lettered:"

# Returns the next due instant of a queue by its id, as of now; 0 for none.
NextOf = Callable[[int], int]


class Signals:
    """Collects queues that gained ready messages, and an agenda of due instants.

    Invariant of the agenda: a queue for which something is due at an instant is in it at that
    instant or before.

    Attributes:
        woken: Names of queues that gained ready messages.
        now_us: When the last command was decided.
        started_us: When this process began.
        origins: How many origins of dead letters the queues keep together (C13).
        dead_letters: How many messages became dead letters since the last report, by queue and
            cause.
        departed: The counts of deleted queues; `before`: the counts of all queues when the process
            began.
    """

    __slots__ = (
        "_agenda",
        "_noted",
        "before",
        "dead_letters",
        "departed",
        "now_us",
        "origins",
        "started_us",
        "woken",
    )

    def __init__(self) -> None:
        self.woken: dict[str, None] = {}
        self.now_us = 0
        self.started_us = 0
        self.origins = 0
        self.dead_letters = Counter[tuple[str, str]]()
        self.departed = Totals()
        self.before = Totals()
        self._agenda: list[tuple[int, int]] = []
        self._noted: dict[int, int] = {}

    def drain_woken(self) -> KeysView[str]:
        """The queues that gained ready messages since the last call, in the order they did so."""
        woken, self.woken = self.woken, {}
        return woken.keys()

    def note(self, queue_id: int, instant_us: int) -> None:
        """Notes that something is due for a queue at this instant or later."""
        if instant_us < self._noted.get(queue_id, 1 << 62):
            self._noted[queue_id] = instant_us
            heapq.heappush(self._agenda, (instant_us, queue_id))

    def next_due_us(self, next_of: NextOf) -> int:
        """The first instant at which something is due for a queue; 0 for none."""
        while self._agenda:
            instant, queue_id = self._agenda[0]
            current = self._noted.get(queue_id) == instant
            following = next_of(queue_id) if current else 0
            if following == instant:
                return instant
            heapq.heappop(self._agenda)
            if current:
                del self._noted[queue_id]
            if following:
                self.note(queue_id, following)
        return 0

    def due(self, now_us: int, next_of: NextOf) -> list[int]:
        """Ids of the queues for which something is due, ascending."""
        found = {}
        while self._agenda and 0 < (instant := self.next_due_us(next_of)) <= now_us:
            _, queue_id = heapq.heappop(self._agenda)
            found[queue_id] = self._noted.pop(queue_id)
            assert found[queue_id] == instant
        for queue_id, noted in found.items():
            self.note(queue_id, noted)
        return sorted(found)
