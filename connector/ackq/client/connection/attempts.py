"""Attempts: the names of a client's openings, by which it knows what fenced it (P10, C11, L1).

Invariant: no two openings have one name, those of two copies of a process included.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from typing import Final

from ackq.errors import AckqError, FencedError

# A network holds back an opening for minutes at most, and a client opens every 0.1 s at most.
_REMEMBERED: Final = 10_000
_SHOWN: Final = 100
_RANDOM_BYTES: Final = 8


class Attempts:
    """The openings of one publisher, channel or link."""

    def __init__(self) -> None:
        self._made = deque[str](maxlen=_REMEMBERED)

    def before(self) -> list[bytes]:
        """The names of the last openings, to show that an opening is of the same client (P10)."""
        return [bytes.fromhex(name) for name in list(self._made)[-_SHOWN:]]

    def new(self) -> bytes:
        """The name of one more opening.

        Copies of a machine may draw the same random bytes, but not in the same nanosecond.
        """
        name = secrets.token_bytes(_RANDOM_BYTES) + time.time_ns().to_bytes(8, "big")
        self._made.append(name.hex())
        return name

    def fenced(self, error: AckqError) -> bool:
        """Whether an error says that one of these openings, which came late, fenced the stream."""
        return isinstance(error, FencedError) and error.fields.get("attempt") in self._made
