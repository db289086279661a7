"""The delivery numbers of a link's held messages, by their positions in its queue.

Invariant: a position is in one run at most: each delivery of a subscription takes another message.
The cost follows the number of runs and of positions asked for; there is no object per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import LinkedRun

Uint64s = npt.NDArray[np.uint64]

_NONE = np.empty(0, np.int64)


class NumberRanges(NamedTuple):
    """Ranges of delivery numbers: the first and the last of each, and whether it is rejected.

    `rejected` is empty if no range is to be rejected (L28).
    """

    first: list[int]
    last: list[int]
    rejected: list[int]


class DeliveryNumbers:
    """The numbers of the present subscription's deliveries that have no permit yet."""

    def __init__(self) -> None:
        # Parallel arrays, by position: each run's first position and number, its rows, and the
        # number of its rows not taken yet.
        self._positions = self._numbers = self._rows = self._left = _NONE

    def __len__(self) -> int:
        """The number of positions that were added and not yet taken."""
        return int(self._left.sum())

    def add(self, runs: Iterable[LinkedRun]) -> None:
        """Adds runs that are stored and not permitted; their positions must be new."""
        added = np.array(
            [(run.first_position, run.first_number, run.rows) for run in runs], np.int64
        ).reshape(-1, 3)
        if not len(added):
            return
        positions = np.concatenate((self._positions, added[:, 0]))
        order = np.argsort(positions, kind="stable")  # the positions are nearly sorted
        self._positions = positions[order]
        self._numbers = np.concatenate((self._numbers, added[:, 1]))[order]
        self._rows = np.concatenate((self._rows, added[:, 2]))[order]
        self._left = np.concatenate((self._left, added[:, 2]))[order]

    def take(self, positions: Uint64s, rejected: BitMap64 | None = None) -> NumberRanges:
        """Removes and returns the delivery numbers of positions, in order, with reject flags."""
        if not len(positions):
            return NumberRanges([], [], [])
        asked = positions.astype(np.int64)
        at = np.searchsorted(self._positions, asked, side="right") - 1
        assert at.min() >= 0, "a permit is of a delivery of this subscription"
        offsets = asked - self._positions[at]
        assert (offsets < self._rows[at]).all(), "a permit is of a delivery of this subscription"
        numbers = self._numbers[at] + offsets
        self._left = self._left - np.bincount(at, minlength=len(self._left))
        self._drop_taken()
        changes = np.diff(numbers) != 1
        flags = np.zeros(0, np.int64)
        if rejected:
            flags = np.isin(asked, bitmaps.array(rejected)).astype(np.int64)
            changes |= np.diff(flags) != 0
        breaks = np.flatnonzero(changes) + 1
        begins = np.concatenate(([0], breaks))
        last = numbers[np.concatenate((breaks - 1, [len(numbers) - 1]))]
        said = flags[begins].tolist() if rejected else []
        return NumberRanges(numbers[begins].tolist(), last.tolist(), said)

    def clear(self) -> None:
        """Forgets all numbers, because another subscription began."""
        self._positions = self._numbers = self._rows = self._left = _NONE

    def _drop_taken(self) -> None:
        kept = self._left > 0
        if not kept.all():
            self._positions, self._numbers = self._positions[kept], self._numbers[kept]
            self._rows, self._left = self._rows[kept], self._left[kept]
