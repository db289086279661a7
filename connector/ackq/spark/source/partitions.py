"""Splits a run of delivery tags or positions into tasks; pure: the same range splits alike.

Invariant: the pieces are disjoint, in order, none is empty, and together they are the whole range.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from ackq.limits import LEASE_CHUNK_TARGET_BYTES
from ackq.spark.options.options import SplitOptions

# What a row weighs besides its payload, so that empty bodies count too.
ROW_BYTES: Final = 64
# A cut moves to a block's edge when that unbalances a task by less than this part of it: a block
# that two tasks share is read from disk twice.
_SNAP: Final = 0.25


class Piece(NamedTuple):
    """Tags after `after` up to and including `last` lie together and have about `payload_bytes`."""

    after: int
    last: int
    payload_bytes: int


class Range(NamedTuple):
    """The tags after `after` up to and including `last`."""

    after: int
    last: int


def split(pieces: Sequence[Piece], options: SplitOptions, cores: int | None = None) -> list[Range]:
    """Cuts a range into tasks of about equal weight, at edges of pieces where that is balanced.

    Args:
        pieces: The whole range in order; they may leave gaps between them (tags that are gone).
        options: Bounds; with `min_partitions` 0 there are as many tasks as `cores`, but none below
            a block's size.
        cores: Tasks that run at once; None: the processors of this machine, which in local mode are
            the right number.
    """
    if not pieces:
        return []
    weights = [piece.payload_bytes + ROW_BYTES * (piece.last - piece.after) for piece in pieces]
    edges = list(accumulate(weights, initial=0))
    wanted = _tasks(pieces, options, cores or os.cpu_count() or 1)
    cuts = [_cut(pieces, edges, edges[-1] / wanted, task) for task in range(1, wanted)]
    first, last = pieces[0].after, pieces[-1].last
    bounds = sorted({first, *cuts, last})
    return [Range(after, upto) for after, upto in pairwise(bounds)]


def _tasks(pieces: Sequence[Piece], options: SplitOptions, cores: int) -> int:
    """How many tasks the range is worth."""
    rows = sum(piece.last - piece.after for piece in pieces)
    payload = sum(piece.payload_bytes for piece in pieces)
    useful = (payload + ROW_BYTES * rows) // LEASE_CHUNK_TARGET_BYTES
    least = options.min_partitions or min(cores, useful)
    by_size = -(-payload // options.max_bytes_per_partition)
    return max(1, min(rows, max(least, by_size)))


def _cut(pieces: Sequence[Piece], edges: list[int], share: float, task: int) -> int:
    """The last tag before the cut that ends task number `task`."""
    at = share * task
    index = bisect_left(edges, at, lo=1) - 1
    piece, low, high = pieces[index], edges[index], edges[index + 1]
    if at - low <= _SNAP * share and at - low <= high - at:
        return pieces[index - 1].last if index else piece.after
    if high - at <= _SNAP * share:
        return piece.last
    return piece.after + round((piece.last - piece.after) * (at - low) / (high - low))
