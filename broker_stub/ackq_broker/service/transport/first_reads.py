"""Bounded reading of calls' first requests, before the broker knows what a call may do (I6).

gRPC holds the received part of an incomplete request, up to a whole frame, and its size is not
visible. Invariant: only a few first requests of one caller are read at a time, so that other
callers neither wait for them nor lose the memory that they take.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ackq import limits
from ackq.errors import BrokerUnavailableError

T = TypeVar("T")

# The unfinished first requests of one caller may take 1 / `_PART` of the memory limit; at least
# `_LEAST` of them are read at a time.
_PART: Final = 4
_LEAST: Final = 2
# A first request that is not complete after `_SLOW_S` lets the caller's next one be read, and is
# ended when the process uses more than the share `_USED` of the limit.
_SLOW_S: Final = 0.5
_USED: Final = 0.75


class _Read:
    """A first request being read; a slow one has let the caller's next one begin."""

    __slots__ = ("began_s", "ended", "slow", "task", "who")

    def __init__(self, who: str, task: asyncio.Task[object] | None, began_s: float) -> None:
        assert task is not None
        self.who = who
        self.task = task
        self.began_s = began_s
        self.slow = self.ended = False


class FirstReads:
    """The first requests being read, by caller.

    Args:
        limit: Bytes of memory that the process may use.
        clock: Monotonic seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._most = max(_LEAST, limit // _PART // limits.MAX_FRAME_BYTES)
        self._reading: dict[_Read, None] = {}  # in the order in which they began
        self._taken = Counter[str]()
        self._waiting = defaultdict[str, deque[asyncio.Future[None]]](deque)

    async def read(self, who: str, read: Callable[[], Awaitable[T]]) -> T:
        """Awaits `read` once few enough reads of this caller are under way; returns its result.

        Raises:
            BrokerUnavailableError: The request did not come in time, or the read was slow and was
                ended because memory is short.
        """
        try:
            async with asyncio.timeout(limits.FIRST_REQUEST_MS / 1000):
                return await self._read_in_turn(who, read)
        except TimeoutError as error:
            raise BrokerUnavailableError(
                f"The call's first request did not come within {limits.FIRST_REQUEST_MS} ms after"
                " it began, and the call was ended. Begin another one."
            ) from error

    async def _read_in_turn(self, who: str, read: Callable[[], Awaitable[T]]) -> T:
        await self._begin(who)
        each = _Read(who, asyncio.current_task(), self._clock())
        self._reading[each] = None
        try:
            return await read()
        except asyncio.CancelledError:
            if not each.ended or each.task.uncancel():
                raise
            raise BrokerUnavailableError(
                "The broker's memory is short, and the call's first request was not complete after"
                f" {_SLOW_S} s. Begin another call."
            ) from None
        finally:
            del self._reading[each]
            if not each.slow:
                self._release(who)

    def poll(self, used: int) -> None:
        """Lets other reads begin next to slow ones, and ends slow reads if memory is short."""
        since_s = self._clock() - _SLOW_S
        for each in tuple(self._reading):
            if each.began_s > since_s:
                return
            if not each.slow:
                each.slow = True
                self._release(each.who)
            if used > self._limit * _USED and not each.ended:
                each.ended = True
                each.task.cancel()

    async def _begin(self, who: str) -> None:
        if self._taken[who] < self._most:
            self._taken[who] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[who].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release(who)
            raise

    def _release(self, who: str) -> None:
        """Passes a finished or slow read's place to the caller's next waiting read."""
        waiting = self._waiting[who]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[who]
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]
