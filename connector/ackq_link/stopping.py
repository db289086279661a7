"""Waits that a stop ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """The link was asked to stop."""


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T], grace_s: float = 0) -> T:
    """The result of `work`; it is cancelled when it is not done so long after a stop.

    Raises:
        StoppedError: It was cancelled.
    """
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and grace_s:
            await asyncio.wait((task,), timeout=grace_s)
        if not task.done():
            raise StoppedError
        return task.result()
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
