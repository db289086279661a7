"""Builds replies to deliveries: runs of consecutive numbers and positions with equal status."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands import LinkedRun
from ackq_broker.core.state.link import Link

Flags = NDArray[np.bool_]


def linked_runs(
    numbers: Int64s, positions: Int64s, matched: Flags, permitted: Flags, rejected: Flags
) -> tuple[LinkedRun, ...]:
    """Groups deliveries, in their order, into the fewest runs."""
    if not len(numbers):
        return ()
    breaks = np.ones(len(numbers), np.bool_)
    flags = (matched, permitted, permitted & rejected)
    for column, step in ((numbers, 1), (positions, 1), *((each, 0) for each in flags)):
        same = np.diff(column.astype(np.int64)) == step
        breaks[1:] = same if column is numbers else breaks[1:] & same
    breaks[1:] = ~breaks[1:]
    begins = np.flatnonzero(breaks)
    rows = np.diff(begins, append=len(numbers))
    columns = (numbers[begins], rows, positions[begins], *(each[begins] for each in flags))
    return tuple(map(LinkedRun, *(column.tolist() for column in columns)))


def known_runs(link: Link, first: int, last: int) -> tuple[LinkedRun, ...]:
    """L5: runs of the known deliveries first..last, with their present permits."""
    numbers, positions = link.delivered(first, last)
    assert len(numbers) == last - first + 1
    return _runs(link, numbers, positions)


def unproven_runs(link: Link) -> tuple[LinkedRun, ...]:
    """Runs of the deliveries of the subscription whose acknowledgement is not proven."""
    numbers, positions = link.delivered(1, link.next_number)
    unproven = members(positions, link.waiting | link.permits)
    return _runs(link, numbers[unproven], positions[unproven])


def members(positions: Int64s, some: BitMap64) -> Flags:
    """Flags of the positions, in any order, that are in a bitmap."""
    if not some:  # usually nothing is rejected
        return np.zeros(len(positions), np.bool_)
    found: Flags = np.isin(positions, bitmaps.array(bitmaps.of(positions) & some))
    return found


def _runs(link: Link, numbers: Int64s, positions: Int64s) -> tuple[LinkedRun, ...]:
    # A delivery that does not wait has a permit, proven or not.
    permitted = ~members(positions, link.waiting)
    rejected = members(positions, link.rejected)
    return linked_runs(numbers, positions, positions < link.fresh_from, permitted, rejected)
