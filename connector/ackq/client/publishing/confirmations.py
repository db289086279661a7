"""Confirmations of single publishes, and their futures.

A future holds almost nothing until a thread or coroutine waits for it: measured with 100,000 alive,
0.2 us to make one, and a third of the memory of a `LightFuture`. All futures share one lock. One
lock per frame would not do: `concurrent.futures.wait` takes the locks of its futures in the order
of the futures, so two such calls could deadlock.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple

from ackq.client.futures import LightFuture
from ackq.errors import AckqError, UnroutableError

_log = logging.getLogger(__name__)
# A future itself logs an `Exception` of its callbacks. Any other exception, for instance of
# `sys.exit()`, would end the publisher's thread and leave every other future unresolved.
RAISED = "A callback of a publish's future raised an exception"


class Confirmation(NamedTuple):
    """Confirmation that the broker has taken responsibility for a message (P3).

    Attributes:
        number: The publish number (P2).
        returned: Why no queue got the message, if it was mandatory and unroutable and was reported
            to `on_return` (P7); else None.
    """

    number: int
    returned: UnroutableError | None = None


# A lock written in C: Ctrl-C may interrupt a method in Python between two steps, and leave it held.
_LOCK: Any = threading.RLock()
# A thread that the child of a fork lacks may have held it.
os.register_at_fork(after_in_child=_LOCK._at_fork_reinit)  # noqa: SLF001 - as `threading` does


class ConfirmationFuture(LightFuture[Confirmation]):
    """Future of a publish; only `confirm` and `fail` resolve it."""

    _condition: Any = _LOCK
    _number = 0
    _returned: UnroutableError | None = None

    def __init__(self) -> None:
        """Does not call `LightFuture.__init__`, because the lock is shared."""

    @property
    def _result(self) -> Confirmation | None:  # type: ignore[override] # nobody sets it
        return Confirmation(self._number, self._returned) if self._number else None

    def confirm(self, number: int, returned: UnroutableError | None) -> bool:
        """Resolves the future, under the lock; returns whether `call_back` must follow."""
        self._number, self._returned = number, returned
        return self._finish()

    def fail(self, error: AckqError) -> bool:
        """Fails the future, under the lock; returns whether `call_back` must follow."""
        # Each future has its own copy: raising one error repeatedly grows its traceback.
        self._exception = copy(error)
        return self._finish()

    def call_back(self) -> None:
        """Runs the future's callbacks, without the lock."""
        try:
            self._invoke_callbacks()  # type: ignore[attr-defined] # the stubs lack it
        except BaseException:  # noqa: BLE001 - see RAISED
            _log.exception(RAISED)


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
    """Fails futures, each with its own copy of the error."""
    with _LOCK:
        observed = [future for future in futures if future.fail(error)]
    for future in observed:
        future.call_back()
