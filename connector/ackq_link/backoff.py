"""The wait before the next attempt: doubling, with a bound."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.1
MOST_S: Final = 30.0


class RetryDelay:
    """Waits between attempts; each is twice the one before, up to a bound, minus up to a quarter.

    Args:
        first_s: The first wait, in seconds.
        most_s: The longest.
    """

    def __init__(self, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The wait before the next attempt, in seconds."""
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._most_s)
        return wait_s * random.uniform(0.75, 1)

    def reset(self) -> None:
        """An attempt succeeded: the next wait is the first one again."""
        self._next_s = self._first_s
