"""Connects the threads of a stream with an asyncio event loop, without blocking the loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

from ackq.errors import InvalidArgumentError

T = TypeVar("T")


class Waker:
    """Wakes coroutines of the running event loop from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wakes the waiting coroutine; may be called from any thread."""
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait_for(self, poll: Callable[[], T | None]) -> T:
        """Waits for the first result of `poll` that is not None; polls after each wake-up."""
        while True:
            self._woken.clear()
            found = poll()
            if found is not None:
                return found
            await self._woken.wait()


class LoopCallback(Generic[T]):
    """A callback of the application that runs on its event loop, whichever thread calls it.

    Args:
        callback: The application's callback.

    Attributes:
        loop: The event loop on which it runs; set before the callback can be called.
    """

    def __init__(self, callback: Callable[[T], object]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._callback = callback

    def __call__(self, argument: T) -> None:
        """Schedules the callback on the event loop; may be called from any thread."""
        assert self.loop is not None, "a stream starts on the loop"
        with suppress(RuntimeError):  # the loop is closed: the callback cannot run
            self.loop.call_soon_threadsafe(self._callback, argument)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs blocking work on a thread that ends with it; the loop's own threads would stay alive.

    If the coroutine is cancelled, the work continues on its thread without a waiter.
    """
    one = ThreadPoolExecutor(1, thread_name_prefix="ackq-close")
    doing = asyncio.get_running_loop().run_in_executor(one, work)
    try:
        return await doing
    finally:
        one.shutdown(wait=not doing.cancelled())


def refuse_coroutine(callback: object, name: str, remedy: str) -> None:
    """Raises InvalidArgumentError for a coroutine function, which would never be awaited."""
    inner = callback
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = getattr(inner, "__call__", None)  # noqa: B004 - an instance may have an async one
    if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called):
        raise InvalidArgumentError(
            f"'{name}' is a coroutine function, which would never be awaited; {remedy}.",
            argument=name,
        )
