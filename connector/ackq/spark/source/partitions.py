"""Splits a range of delivery tags or positions into tasks; a pure function of range and options.

Invariant: the tasks are disjoint, in order, none is empty, and together they cover the range.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from ackq.limits import LEASE_CHUNK_TARGET_BYTES
from ackq.spark.options.options import SplitOptions

# Weight of a row besides its payload, so that empty bodies count too.
ROW_BYTES: Final = 64
# A boundary moves to a block's edge if that unbalances a task by less than this share: a block that
# two tasks share is read from disk twice.
_SNAP: Final = 0.25


class SizedSpan(NamedTuple):
    """Tags (after, last] in one block, with about `payload_bytes` of payload."""

    after: int
    last: int
    payload_bytes: int


class TagSpan(NamedTuple):
    """Tags (after, last]; of a browse, positions."""

    after: int
    last: int


def split(
    spans: Sequence[SizedSpan], options: SplitOptions, cores: int | None = None
) -> list[TagSpan]:
    """Splits a range into tasks of about equal weight, at block edges where that stays balanced.

    Args:
        spans: The whole range in order; gaps between them are tags that no longer exist.
        options: Bounds; with `min_partitions` 0 there are as many tasks as `cores`, but none below
            a block's size.
        cores: Tasks that run at once; None: the processors of this machine, as in local mode.
    """
    if not spans:
        return []
    weights = [span.payload_bytes + ROW_BYTES * (span.last - span.after) for span in spans]
    edges = list(accumulate(weights, initial=0))
    wanted = _tasks(spans, options, cores or os.cpu_count() or 1)
    cuts = [_cut(spans, edges, edges[-1] / wanted, task) for task in range(1, wanted)]
    first, last = spans[0].after, spans[-1].last
    bounds = sorted({first, *cuts, last})
    return [TagSpan(after, upto) for after, upto in pairwise(bounds)]


def _tasks(spans: Sequence[SizedSpan], options: SplitOptions, cores: int) -> int:
    """Number of tasks."""
    rows = sum(span.last - span.after for span in spans)
    payload = sum(span.payload_bytes for span in spans)
    useful = (payload + ROW_BYTES * rows) // LEASE_CHUNK_TARGET_BYTES
    least = options.min_partitions or min(cores, useful)
    by_size = -(-payload // options.max_bytes_per_partition)
    return max(1, min(rows, max(least, by_size)))


def _cut(spans: Sequence[SizedSpan], edges: list[int], share: float, task: int) -> int:
    """The last tag of task number `task`, counted from 1."""
    at = share * task
    index = bisect_left(edges, at, lo=1) - 1
    span, low, high = spans[index], edges[index], edges[index + 1]
    if at - low <= _SNAP * share and at - low <= high - at:
        return spans[index - 1].last if index else span.after
    if high - at <= _SNAP * share:
        return span.last
    return span.after + round((span.last - span.after) * (at - low) / (high - low))
