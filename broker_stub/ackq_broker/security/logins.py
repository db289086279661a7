"""Delays of login failures (A3), the longer the more failures came from one address.

Invariant: a right token never waits, wherever it comes from; and few failures wait at a time, so
that they take no room from other calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# The wait after the first failure; it doubles with each further one.
_FIRST_S: Final = 0.1
_MOST_S: Final = 5.0
# The failures of an address are forgotten after this time without a failure.
_FORGET_S: Final = 60.0
_ADDRESSES: Final = 10_000
# The most failures that wait at a time, and of one address; a further one is answered at once:
# a token cannot be guessed (256 bits), however fast.
_WAITING: Final = 64
_WAITING_EACH: Final = 4


class LoginFailures:
    """The recent login failures, by address.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._waiting: dict[str, int] = {}

    async def slow(self, peer: str) -> None:
        """Records a failed login, and returns when it may be answered."""
        address = address_of(peer)
        wait_s = self.failed(address)
        here = self._waiting.get(address, 0)
        if here >= _WAITING_EACH or sum(self._waiting.values()) >= _WAITING:
            return
        self._waiting[address] = here + 1
        try:
            await asyncio.sleep(wait_s)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    def failed(self, address: str) -> float:
        """Records a failure of an address; returns the seconds by which to delay its answer."""
        now = self._clock()
        count, last = self._failures.pop(address, (0, now))
        count = 0 if now - last > _FORGET_S else count
        self._failures[address] = (count + 1, now)
        if len(self._failures) > _ADDRESSES:
            self._failures.popitem(last=False)
        return min(_FIRST_S * float(1 << min(count, 10)), _MOST_S)


def address_of(peer: str) -> str:
    """The address of a peer as gRPC names it, without the port: `ipv4:127.0.0.1:40123`.

    A peer over HTTP has no port; it is its address.
    """
    if peer.startswith("unix"):
        return "unix"
    return peer.rpartition(":")[0] if peer.startswith("ipv") else peer
