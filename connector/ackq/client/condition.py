"""A condition variable that Ctrl-C may interrupt at any moment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class StreamCondition(threading.Condition):
    """A condition on a re-entrant lock that stays right when KeyboardInterrupt is raised.

    Python raises KeyboardInterrupt after any call, also between two steps of
    `threading.Condition`. `__enter__` then leaves the lock held, and the stream's threads wait for
    it for ever; `wait` leaves it released, and a RuntimeError hides the KeyboardInterrupt. So
    callers enter the lock itself, whose methods are written in C, and `wait` takes the lock back
    wherever it was interrupted.

    Attributes:
        lock: The lock. A thread that waits holds it once.
    """

    # The base class has these methods of the lock and the waiting threads; its stubs do not.
    _release_save: Callable[[], tuple[int, int]]
    _acquire_restore: Callable[[tuple[int, int]], None]
    _waiters: deque[threading.Lock]

    __enter__ = None  # type: ignore[assignment] # see the class

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(lock)
        self.lock = lock

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for a notification, at most `timeout` seconds; False: timed out."""
        held = (1, threading.get_ident())
        woken = threading.Lock()
        woken.acquire()
        self._waiters.append(woken)
        release, take_back = self._release_save, self._acquire_restore
        try:
            held = release()
            return woken.acquire(timeout=-1 if timeout is None else max(0, timeout))
        finally:
            take_back(held)
            with suppress(ValueError):  # a notification has removed it
                self._waiters.remove(woken)
