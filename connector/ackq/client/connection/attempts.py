"""Attempts: the names of a client's openings, which show what fenced its stream (P10, C11, L1).

Invariant: no two openings have the same name, not even those of two copies of a process.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from typing import Final

from ackq.errors import AckqError, FencedError

# A network delays an opening by minutes at most, and a client opens at most every 0.1 s.
_REMEMBERED: Final = 10_000
# Of openings without an answer: an outage of an hour.
_SHOWN: Final = 1_000
_RANDOM_BYTES: Final = 8


class Attempts:
    """The names of the openings of one publisher, channel or link."""

    def __init__(self) -> None:
        self._made = deque[str](maxlen=_REMEMBERED)
        self._answered: str | None = None

    def before(self) -> list[bytes]:
        """The names of the last openings, which show an opening to be of the same client (P10).

        The one that the broker answered last is among them, however many found no broker since.
        """
        names = list(self._made)[-_SHOWN:]
        if self._answered is not None and self._answered not in names:
            names.insert(0, self._answered)
        return [bytes.fromhex(name) for name in names]

    def answered(self) -> None:
        """Notes that the broker answered the newest opening."""
        self._answered = self._made[-1]

    def new(self) -> bytes:
        """Makes and remembers the name of another opening.

        Copies of a machine may draw the same random bytes, but not in the same nanosecond.
        """
        name = secrets.token_bytes(_RANDOM_BYTES) + time.time_ns().to_bytes(8, "big")
        self._made.append(name.hex())
        return name

    def fenced(self, error: AckqError) -> bool:
        """Whether the error says that one of these openings, arriving late, fenced the stream."""
        return isinstance(error, FencedError) and error.fields.get("attempt") in self._made
