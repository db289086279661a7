"""Settlements that arrived together, coalesced into few core commands (C2-C5, C15).

Invariant: the commands have the effect of the settlements one by one in order, up to the first
refused one; tags are disjoint, so earlier settlements affect only which tags a later one may name.
Runs of tags are checked and converted to a bitmap without Python work for each tag.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError
from ackq.outcomes import Disposition, Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.core.columns import bitmaps
from ackq_broker.service.consuming.unacked import UnackedTags
from ackq_broker.service.transport.fields import decode_disposition

Uint64s = npt.NDArray[np.uint64]


class SettlementBatch:
    """Settlements in order of arrival, until `drain` converts them to commands.

    Args:
        unacked: The channel's unacked tags; tags settled in this batch are no longer outstanding.
    """

    def __init__(self, unacked: UnackedTags) -> None:
        self._unacked = unacked
        self._singles: dict[Disposition, array[int]] = {}
        self._many: dict[Disposition, BitMap64] = {}

    def add(self, settle: pb.Settle) -> int:
        """Adds one settlement; returns its number of messages, 0 if a tag is unknown (C2).

        Raises:
            OutcomeNotSupportedError: Its consumer did not declare the outcome (C5).
            InvalidArgumentError: It has no known outcome, too long a delay, or malformed runs.
            LimitError: It names too many runs.
        """
        disposition = decode_disposition(settle, settle.delivery_tag)
        if has_runs(settle):
            tags = tags_of_runs(settle, self._unacked.last_tag)
            return self._add_tags(tags, disposition) if tags <= self._unacked.outstanding else 0
        if settle.multiple:
            return self._add_tags(self._unacked.up_to(settle.delivery_tag), disposition)
        tag = settle.delivery_tag
        if tag not in self._unacked.outstanding:
            return 0
        if disposition.outcome is not Outcome.ACCEPTED:
            self._unacked.check_outcome(disposition.outcome, BitMap64((tag,)))
        self._unacked.outstanding.remove(tag)
        self._singles.setdefault(disposition, array("Q")).append(tag)
        return 1

    def drain(self, channel_id: bytes) -> Iterator[commands.Settle]:
        """Yields the commands of all settlements since the last drain, one per disposition."""
        singles, self._singles = self._singles, {}
        many, self._many = self._many, {}
        for disposition in {**singles, **many}:
            tags = many.get(disposition) or BitMap64()
            if disposition in singles:
                tags |= BitMap64(singles[disposition])
            yield commands.Settle(
                channel_id, disposition.outcome, tags, 0, disposition.reason, disposition.delay_ms
            )

    def _add_tags(self, tags: BitMap64, disposition: Disposition) -> int:
        """Adds outstanding tags with one disposition; returns their number."""
        if tags:
            if disposition.outcome is not Outcome.ACCEPTED:
                self._unacked.check_outcome(disposition.outcome, tags)
            self._unacked.outstanding -= tags
            if disposition in self._many:
                self._many[disposition] |= tags
            else:
                self._many[disposition] = tags
        return len(tags)


def has_runs(settle: pb.Settle) -> bool:
    """Whether a settlement names runs of tags instead of one tag."""
    return bool(settle.first_tag or settle.rows)


def tags_of_runs(settle: pb.Settle, last_tag: int) -> BitMap64:
    """The tags of runs as a bitmap; of tags above the last one delivered only the lowest.

    Args:
        settle: A settlement that names runs.
        last_tag: The last tag that the channel delivered.

    Raises:
        InvalidArgumentError: The runs are not parallel, ascending and disjoint, or the settlement
            names a tag as well.
        LimitError: There are too many runs.
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
    # The last tag of a run that exceeds 64 bits wraps around to below its first tag.
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
