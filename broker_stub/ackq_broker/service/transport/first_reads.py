"""First requests of calls, which are read before anything is known of what a call may do (I6).

gRPC holds what has come of a request that is not complete, up to a whole frame, and nobody sees how
much. Invariant: of one caller only a few first requests are read at a time, so that others neither
wait for them nor lose the memory that those take.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ackq import limits
from ackq.errors import BrokerUnavailableError

T = TypeVar("T")

# The part of the memory that the unfinished first requests of one caller may take, and the least
# number of them.
_PART: Final = 4
_LEAST: Final = 2
# One that is not complete after so long lets the caller's next one be read, and is ended when the
# process uses more than this part of the limit.
_SLOW_S: Final = 0.5
_USED: Final = 0.75


class _Read:
    """A first request that is being read; it may have let the next one begin."""

    __slots__ = ("began_s", "ended", "slow", "task", "who")

    def __init__(self, who: str, task: asyncio.Task[object] | None, began_s: float) -> None:
        assert task is not None
        self.who = who
        self.task = task
        self.began_s = began_s
        self.slow = self.ended = False


class FirstReads:
    """The first requests that are being read, by caller.

    Args:
        limit: Memory that the process may use.
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
        """What `read` returns, once no more than a few others of this caller are read.

        Raises:
            BrokerUnavailableError: It was slow, and ended because memory is short.
        """
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
        """Lets others begin beside those that are slow, or ends these where memory is short."""
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
        """Gives a caller's place to its next one."""
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
