"""Positions that channels accepted and a queue retains (S13), in groups that end together.

Invariant: a group has the messages that were accepted in 1/512 of the retention, or until it had 64
MiB. So there are few groups however many messages, and one that ends early is no large loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyroaring import BitMap64

from ackq_broker.core.columns.deadlines import Deadlines

_PARTS: Final = 512
_BYTES: Final = 64 << 20
# An instant that never comes.
_NEVER: Final = 2**63 - 1


class Retained:
    """Groups of positions by the instant at which they end; a position is in one group at most.

    Attributes:
        from_us: All that channels accepted from this instant on is retained.
        last_bytes: The payload that the last group ever got.
    """

    __slots__ = ("_ends", "_retain_us", "from_us", "last_bytes")

    def __init__(self, retain_ms: int) -> None:
        self._retain_us = retain_ms * 1000
        self._ends = Deadlines()
        self.from_us = 0
        self.last_bytes = 0

    def __bool__(self) -> bool:
        """Whether the queue retains messages."""
        return self._retain_us > 0

    def add(self, positions: BitMap64, payload_bytes: int, at_us: int) -> None:
        """Adds positions that were accepted at this instant, no earlier than those before."""
        until_us = self._ends.last()
        if at_us + self._retain_us > until_us or self.last_bytes >= _BYTES:
            until_us = at_us + self._retain_us + self._retain_us // _PARTS
            self.last_bytes = 0
        self.last_bytes += payload_bytes
        self._ends.add(until_us, positions)

    def forget(self, positions: BitMap64) -> None:
        """Removes positions from their groups."""
        self._ends.forget(positions)

    def end(self, until_us: int = _NEVER, at_us: int = _NEVER) -> BitMap64:
        """Removes the groups that end until an instant, or all; returns their positions.

        A group that is still filling may be among them: it has nothing that is accepted after
        `at_us`.
        """
        self.from_us = min(until_us - self._retain_us, at_us)
        return self._ends.pop(until_us)

    def is_due(self, now_us: int) -> bool:
        """Whether a group has reached its end."""
        return bool(self._ends.due(now_us))

    def since(self, from_us: int = 0) -> BitMap64:
        """The positions that were accepted from an instant on, or in the same group as such."""
        return self._ends.after(from_us + self._retain_us)

    def groups(self) -> Iterator[tuple[int, int, BitMap64]]:
        """Each group, oldest first: about when it was accepted, when it ends, its positions."""
        for until_us, positions in self._ends.buckets():
            yield until_us - self._retain_us, until_us, positions

    def dump(self) -> tuple[tuple[int, BitMap64], ...]:
        """The ends of the groups, with copies of their positions."""
        return tuple((until_us, positions.copy()) for until_us, positions in self._ends.buckets())

    def load(self, dumped: Iterable[tuple[int, BitMap64]]) -> None:
        """Restores the groups from the output of `dump`."""
        self._ends = Deadlines.load(dumped)
