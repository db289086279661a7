"""Waits for facts that a test can only ask for again and again, and works beside a test.

Invariant: a wait that succeeds takes no longer than its fact, and one that fails has looked once
more after its time was over. So a busy machine makes a test slower, and does not fail it.
"""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

# For what takes moments on a quiet machine.
SOON_S: Final = 60


def eventually(
    what: str,
    seen: Callable[[], T],
    holds: Callable[[T], object] = bool,
    *,
    within_s: float = SOON_S,
    every_s: float = 0.05,
) -> T:
    """Calls `seen` until its value holds, and returns that value.

    Args:
        what: What is waited for, for the error.
        seen: Returns the present value.
        holds: Whether a value is the one waited for; by default, whether it is true.
        within_s: The bound, which only a failing test reaches.
        every_s: The pause between two calls.

    Raises:
        AssertionError: No value held in time; it has the last one.
    """
    deadline = time.monotonic() + within_s
    while True:
        last = time.monotonic() >= deadline
        value = seen()
        if holds(value):
            return value
        assert not last, f"waited {within_s} s for {what}; last seen: {value!r}"
        time.sleep(every_s)


async def eventually_async(
    what: str, seen: Callable[[], T], holds: Callable[[T], object] = bool, **bounds: Any
) -> T:
    """The same for a coroutine, whose event loop goes on; `seen` is called by another thread."""
    return await asyncio.to_thread(eventually, what, seen, holds, **bounds)


def equals(wanted: object) -> Callable[[object], bool]:
    """Holds for a value that equals the wanted one."""
    return partial(operator.eq, wanted)


@contextmanager
def meanwhile(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Runs work in a thread; its event is set at the end of the block, which waits for it."""
    ended = threading.Event()
    working = threading.Thread(target=work, args=(ended,))
    working.start()
    try:
        yield
    finally:
        ended.set()
        working.join()
