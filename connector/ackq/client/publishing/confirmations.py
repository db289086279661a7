"""Confirmations of single publishes, and their futures.

A future holds next to nothing until somebody waits for it: measured with 100,000 of them alive,
0.2 us to make one, and a fourth of the memory of a `LightFuture`. All of them share one lock. A
lock for each frame of them would not do: `concurrent.futures.wait` takes the locks of its futures
in the order of the futures, and two such calls could wait for each other.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple

from ackq.client.futures import AwaitableFuture
from ackq.errors import AckqError, UnroutableError

_log = logging.getLogger(__name__)
_RUNNING = "RUNNING"
_FINISHED = "FINISHED"
# A future logs an `Exception` of its callbacks itself. What is none, for instance `sys.exit()`,
# would end the publisher's thread and leave every other future unresolved.
RAISED = "A callback of a publish's future raised"


class Confirmation(NamedTuple):
    """The broker has taken responsibility for a message (P3).

    Attributes:
        number: The publish number (P2).
        returned: Why no queue got the message, when it was mandatory and unroutable, and
            `on_return` was told of it (P7); else None.
    """

    number: int
    returned: UnroutableError | None = None


class _SharedLock:
    """What `concurrent.futures` uses of the condition of a future, but for waiting."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Another thread may have held the lock at a fork; the child has no such thread."""
        self._lock = threading.RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_LOCK = _SharedLock()
os.register_at_fork(after_in_child=_LOCK.renew)


class _Observers:
    """Who is to be told when a future is resolved: threads, `wait` and the like, callbacks."""

    __slots__ = ("callbacks", "threads", "waiters")

    def __init__(self) -> None:
        self.threads: list[threading.Lock] = []
        self.waiters: list[Any] = []
        self.callbacks: list[Callable[[Any], object]] = []


class ConfirmationFuture(AwaitableFuture[Confirmation]):
    """A `Future` like any other, for `wait`, `as_completed` and asyncio, and a coroutine awaits it.

    It runs from the start: a publish that was taken cannot be withdrawn, so `cancel` returns False.
    Only `confirm` and `fail` resolve it.
    """

    # In place of the attributes that Future.__init__ makes.
    _condition: Any = _LOCK
    _state = _RUNNING
    _exception: BaseException | None = None
    _number = 0
    _returned: UnroutableError | None = None
    _observers: _Observers | None = None

    def __init__(self) -> None:
        """Not that of `Future`: see above."""

    def result(self, timeout: float | None = None) -> Confirmation:
        """As `Future.result`."""
        if self._state != _FINISHED:
            self._wait(timeout)
        if self._exception is not None:
            try:
                raise self._exception
            finally:
                self = None  # type: ignore[assignment] # noqa: PLW0642 - breaks the circle, as there
        return Confirmation(self._number, self._returned)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `Future.exception`."""
        if self._state != _FINISHED:
            self._wait(timeout)
        return self._exception

    @property
    def _result(self) -> Confirmation | None:  # type: ignore[override] # nobody sets it
        return Confirmation(self._number, self._returned) if self._number else None

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override] # nobody sets it
        return self._observed().waiters

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        return self._observed().callbacks

    def _observed(self) -> _Observers:
        if self._observers is None:
            self._observers = _Observers()
        return self._observers

    def _wait(self, timeout: float | None) -> None:
        """Waits until it is resolved; raises TimeoutError."""
        woken = threading.Lock()
        woken.acquire()
        with _LOCK:
            if self._state == _FINISHED:
                return
            self._observed().threads.append(woken)
        if not woken.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            with _LOCK:
                if self._state != _FINISHED:
                    self._observed().threads.remove(woken)
                    raise TimeoutError

    def confirm(self, number: int, returned: UnroutableError | None) -> bool:
        """Resolves it; under the lock. True when `call_back` must follow."""
        self._number, self._returned = number, returned
        return self._finish()

    def fail(self, error: AckqError) -> bool:
        """Fails it; under the lock. True when `call_back` must follow."""
        # An error of its own for each: raising one again and again grows its traceback.
        self._exception = copy(error)
        return self._finish()

    def call_back(self) -> None:
        """Runs the callbacks, without the lock."""
        try:
            self._invoke_callbacks()  # type: ignore[attr-defined] # the stubs lack it
        except BaseException:  # noqa: BLE001 - see RAISED
            _log.exception(RAISED)

    def _finish(self) -> bool:
        self._state = _FINISHED
        if self._observers is None:
            return False
        for waiter in self._observers.waiters:
            if self._exception is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
        for woken in self._observers.threads:
            woken.release()
        return True


def confirm(
    futures: Iterable[ConfirmationFuture], first: int, returns: Mapping[int, UnroutableError]
) -> None:
    """Resolves the futures of the publishes from number `first` on; `returns` as in `Receipt`."""
    with _LOCK:
        observed = [
            future
            for number, future in enumerate(futures, first)
            if future.confirm(number, returns.get(number))
        ]
    for future in observed:
        future.call_back()


def fail(futures: Iterable[ConfirmationFuture], error: AckqError) -> None:
    """Fails futures, each with an error of its own."""
    with _LOCK:
        observed = [future for future in futures if future.fail(error)]
    for future in observed:
        future.call_back()
