"""The sync gate: holds an answer back until the journal has synced what it depends on (I1)."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class SyncGate:
    """Answers waiting for the disk, released in sequence order, in bulk per sync.

    Lives on one event loop, which calls `advance` after every sync of the journal.

    Args:
        synced: The journal sequence that is on disk already.
    """

    def __init__(self, synced: int) -> None:
        self.synced = synced
        self._shut = False
        self._waiting: list[tuple[int, int, Callable[[], object]]] = []
        self._order = 0

    def when_synced(self, sequence: int, release: Callable[[], object]) -> None:
        """Calls `release` once `sequence` is synced: at once when it is, else with that sync."""
        if self._shut:
            return
        if sequence <= self.synced:
            release()
            return
        self._order += 1
        heapq.heappush(self._waiting, (sequence, self._order, release))

    async def wait(self, sequence: int) -> None:
        """Returns once `sequence` is synced; never when the gate is shut before."""
        if sequence <= self.synced and not self._shut:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_synced(sequence, lambda: None if done.done() else done.set_result(None))
        await done

    def shut(self) -> None:
        """Holds back every answer for ever, also answers that wait for no sync."""
        self._shut = True
        self._waiting.clear()

    def advance(self, synced: int) -> None:
        """Releases the answers that waited for sequences up to `synced`, which are on disk."""
        assert synced >= self.synced, (synced, self.synced)
        self.synced = synced
        while self._waiting and self._waiting[0][0] <= synced:
            heapq.heappop(self._waiting)[2]()
