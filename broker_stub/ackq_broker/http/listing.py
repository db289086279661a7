"""Long lists for the dashboard, read in slices between other work (I6).

Invariant: a slice keeps the event loop for about a millisecond, and all slices of a list take at
most a twentieth of its time, however often the list is requested.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ackq.errors import NotFoundError
from ackq_broker.engine.engine import Engine

T = TypeVar("T")

_SLICE_S: Final = 0.001
_PAUSE_S: Final = 0.003
_FRESH_S: Final = 1.0
_SHARE: Final = 20


class ListedRows(NamedTuple, Generic[T]):
    """Rows in the order of their names, with the time of reading.

    `taken_us` is that time in microseconds, `busy_s` the event loop's time spent on them.
    """

    rows: tuple[T, ...]
    taken_us: int
    busy_s: float


class Listing(Generic[T]):
    """A cached list that is read again on request when it is stale.

    Args:
        engine: Provides the broker's time and worker threads.
        names: Returns all names, cheaply, in any order.
        read: Returns the row of a name, None for one that the list leaves out; raises NotFoundError
            when it does not exist.
        clock: Returns seconds.
        pause: Sleeps for the given seconds.
    """

    def __init__(
        self,
        engine: Engine,
        names: Callable[[], Sequence[str]],
        read: Callable[[str], T | None],
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._names = names
        self._read = read
        self._clock = clock
        self._pause = pause
        self._reading = asyncio.Lock()
        # Of `within`, until its result is taken.
        self._task: asyncio.Task[ListedRows[T]] | None = None
        self._known: Sequence[str] = ()
        self._sorted: Sequence[str] = ()
        self._listed: ListedRows[T] | None = None
        self._fresh_until_s = 0.0

    async def get(self) -> ListedRows[T]:
        """The list, at most about a second old, or older when reading it takes long."""
        async with self._reading:
            if self._listed is None or self._clock() >= self._fresh_until_s:
                self._listed = await self._read_all()
                self._fresh_until_s = self._clock() + max(_FRESH_S, self._listed.busy_s * _SHARE)
            return self._listed

    async def within(self, wait_s: float) -> ListedRows[T] | None:
        """The list as by `get`, or if that takes longer, as it was read last; None: not yet.

        The reading goes on.
        """
        task = self._task = self._task or asyncio.create_task(self.get())
        done, _ = await asyncio.wait([task], timeout=wait_s)
        if done and self._task is task:
            self._task = None
        return task.result() if done else self._listed

    async def _read_all(self) -> ListedRows[T]:
        names = self._names()
        if names != self._known:
            self._known, self._sorted = names, await self._engine.run(partial(sorted, names))
        rows: list[T] = []
        busy_s, began_s = 0.0, self._clock()
        for name in self._sorted:
            try:
                row = self._read(name)
            except NotFoundError:
                continue  # deleted while the others were read
            if row is not None:
                rows.append(row)
            spent_s = self._clock() - began_s
            if spent_s >= _SLICE_S:
                busy_s += spent_s
                await self._pause(_PAUSE_S)
                began_s = self._clock()
        busy_s += self._clock() - began_s
        return ListedRows(tuple(rows), self._engine.clock.now_us(), busy_s)
