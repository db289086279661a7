"""The tags of a settlement that names runs of them (C2, C15).

Invariant: its tags are checked and made a bitmap without Python work for each, and what it claims
beyond the last tag given costs nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError
from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core.columns import bitmaps

Uint64s = npt.NDArray[np.uint64]


def has_runs(settle: pb.Settle) -> bool:
    """Whether a settlement names runs of tags, instead of one tag."""
    return bool(settle.first_tag or settle.rows)


def tags_of(settle: pb.Settle, last_tag: int) -> BitMap64:
    """The tags of runs; of those above the last tag given the lowest stands for all.

    Args:
        settle: Names runs.
        last_tag: The last tag that the channel gave.

    Raises:
        InvalidArgumentError: The runs are not parallel, ascending and disjoint, or a tag stands
            beside them.
        LimitError: There are too many.
    """
    if settle.delivery_tag or settle.multiple or len(settle.first_tag) != len(settle.rows):
        raise _malformed(
            f"{len(settle.first_tag)} first tags, {len(settle.rows)} numbers of rows and"
            f" delivery_tag {settle.delivery_tag}"
        )
    if len(settle.rows) > limits.MAX_SETTLE_RUNS:
        raise LimitError(
            f"A settlement names {len(settle.rows)} runs of tags; at most"
            f" {limits.MAX_SETTLE_RUNS} are allowed. Send several settlements.",
            limit=limits.MAX_SETTLE_RUNS,
        )
    firsts = np.array(settle.first_tag, np.uint64)
    rows = np.array(settle.rows, np.uint64)
    lasts = firsts + rows - np.uint64(1)
    _check(firsts, rows, lasts)
    given = firsts <= last_tag
    within = np.minimum(lasts[given], last_tag) - firsts[given] + np.uint64(1)
    tags = bitmaps.of_runs(firsts[given].astype(np.int64), within.astype(np.int64))
    if lasts[-1] > last_tag:
        beyond = firsts[np.searchsorted(lasts, last_tag, "right")]
        tags.add(max(last_tag + 1, int(beyond)))
    return tags


def _check(firsts: Uint64s, rows: Uint64s, lasts: Uint64s) -> None:
    wrong = (rows == 0) | (firsts == 0)
    # A run that goes past 64 bits ends before it begins.
    wrong |= lasts < firsts
    wrong[1:] |= firsts[1:] <= lasts[:-1]
    if wrong.any():
        at = int(wrong.argmax())
        raise _malformed(f"run {at + 1} from tag {firsts[at]} with {rows[at]} rows")


def _malformed(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"A settlement has {what}; runs of tags have a first tag and a number of rows each, from 1"
        " on, ascend, do not overlap, and stand instead of a delivery_tag."
    )
