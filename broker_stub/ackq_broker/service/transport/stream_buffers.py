"""The buffers of a stream: requests that arrived together, and answers that wait for the sync.

Invariant: an answer is taken only after the journal has synced the sequence it was put with (I1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ackq_broker.engine.sync_gate import SyncGate

T = TypeVar("T")

# Bytes that a request takes as an object, however small it is.
_EACH_BYTES: Final = 256


class ResponseBuffer(Generic[T]):
    """Answers of one stream, put by its reader and taken by its writer, in bulk per sync."""

    def __init__(self, sync_gate: SyncGate) -> None:
        self._sync_gate = sync_gate
        self._released: list[T] = []
        self._unwritten = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """The number of answers that were put and not written yet."""
        return self._unwritten

    def put(self, answer: T, sequence: int = 0) -> None:
        """Adds an answer that may leave once `sequence` is synced."""
        self._unwritten += 1
        self._idle.clear()
        self._sync_gate.when_synced(sequence, partial(self._release, answer))

    async def take(self, wait_s: float | None = None) -> list[T]:
        """Waits for the first answer that may leave; returns all that may. Call `written` after.

        With `wait_s`, returns an empty list if no answer may leave within that many seconds.
        """
        if wait_s is None:
            await self._wake.wait()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        self._wake.clear()
        taken, self._released = self._released, []
        return taken

    def written(self, count: int) -> None:
        """Records that `count` of the taken answers have been sent."""
        self._unwritten -= count
        assert self._unwritten >= 0
        if not self._unwritten:
            self._idle.set()

    async def drained(self) -> None:
        """Waits until every answer that was put has been written."""
        await self._idle.wait()

    def _release(self, answer: T) -> None:
        self._released.append(answer)
        self._wake.set()


class RequestBuffer(Generic[T]):
    """Requests of one stream, taken in bulk; bounded in bytes, above which the reader waits."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._requests: list[T] = []
        self._bytes = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, request: T, size_bytes: int) -> None:
        """Adds a request; returns when there is room for the next one."""
        self._requests.append(request)
        self._bytes += _EACH_BYTES + size_bytes
        self._wake.set()
        if self._bytes > self._max_bytes:
            self._room.clear()
            await self._room.wait()

    async def take(self) -> list[T]:
        """Takes all waiting requests; empty only once closed. Raises the error given to `fail`."""
        await self._wake.wait()
        if self._failure is not None:
            raise self._failure
        if not self._closed:
            self._wake.clear()
        taken, self._requests = self._requests, []
        self._bytes = 0
        self._room.set()
        return taken

    def close(self) -> None:
        """Closes the buffer: no request follows."""
        self._closed = True
        self._wake.set()

    def fail(self, error: BaseException) -> None:
        """Makes the next `take` raise the error, before any waiting request is taken."""
        self._failure = error
        self._wake.set()


async def alongside(main: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Runs coroutines until `main` ends, which cancels the others; a failure ends all."""
    tasks = [asyncio.create_task(each) for each in (main, *others)]
    try:
        while not tasks[0].done():
            done, _ = await asyncio.wait(
                [task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
