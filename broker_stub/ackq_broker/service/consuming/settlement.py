"""Settlements that arrived together, folded into few core commands (C2-C5, C15).

Invariant: the commands have the effect of the settlements one by one in their order, up to the
first that is refused; tags are disjoint, so that only what a settlement may name depends on those
before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from pyroaring import BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.service.consuming.tag_runs import has_runs, tags_of
from ackq_broker.service.consuming.unacked import Ledger
from ackq_broker.service.transport.disposition import decode_disposition


class Fold:
    """Collects settlements.

    Args:
        ledger: Knows the open tags; a tag that is settled here is open no more.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._singles: dict[Disposition, array[int]] = {}
        self._many: dict[Disposition, BitMap64] = {}

    def add(self, settle: pb.Settle) -> int:
        """Takes one settlement; gives its messages, 0 when one of its tags is not outstanding (C2).

        Raises:
            OutcomeNotSupportedError: Its consumer did not declare the outcome (C5).
            InvalidArgumentError: It names no outcome, too long a delay, or runs that are none.
            LimitError: It names too many runs.
        """
        disposition = decode_disposition(settle, settle.delivery_tag)
        if has_runs(settle):
            tags = tags_of(settle, self._ledger.last_tag)
            return self._add_tags(tags, disposition) if tags <= self._ledger.open else 0
        if settle.multiple:
            return self._add_tags(self._ledger.up_to(settle.delivery_tag), disposition)
        tag = settle.delivery_tag
        if tag not in self._ledger.open:
            return 0
        if disposition.outcome is not Outcome.ACCEPTED:
            self._ledger.check(disposition.outcome, BitMap64((tag,)))
        self._ledger.open.remove(tag)
        self._singles.setdefault(disposition, array("Q")).append(tag)
        return 1

    def drain(self, channel_id: bytes) -> Iterator[commands.Settle]:
        """What was taken so far, once: a command for each way to settle, by its first use."""
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
        """Open tags, settled alike."""
        if tags:
            if disposition.outcome is not Outcome.ACCEPTED:
                self._ledger.check(disposition.outcome, tags)
            self._ledger.open -= tags
            if disposition in self._many:
                self._many[disposition] |= tags
            else:
                self._many[disposition] = tags
        return len(tags)
