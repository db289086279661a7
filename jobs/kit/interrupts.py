"""Ctrl-C and SIGTERM: raised at once, or only noted while a call to the JVM is under way.

An interrupt that is raised within a call to the JVM breaks the connection that is needed to stop a
query.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Final

EXIT_STATUS: Final = 130

_interrupted: Final = threading.Event()


def requested() -> bool:
    """Whether the run was interrupted."""
    return _interrupted.is_set()


def raise_at_once() -> None:
    """From now on an interrupt raises KeyboardInterrupt."""
    _handle(_raise)


def defer() -> None:
    """From now on the first interrupt is only noted; the second one raises KeyboardInterrupt."""
    _handle(_note)


def _raise(*_: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def _note(*_: object) -> None:
    if requested():
        raise KeyboardInterrupt
    _interrupted.set()


def _handle(handler: Callable[..., None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)
