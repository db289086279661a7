"""Who holds which delivery tags of a channel: what prefetch counts and what a settlement may name.

Invariant: a tag that is open is held by exactly one holder, and is outstanding in the core.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from ackq.errors import OutcomeNotSupportedError
from ackq.outcomes import Outcome
from ackq_broker.core.columns import bitmaps


class Holder:
    """A consumer, or all pulls together, in the ledger.

    Attributes:
        name: The consumer; empty for pulls.
        outcomes: What its messages may be settled with (C5).
        tags: Its unsettled ones; `unacked` of them, known without counting (C16).
    """

    __slots__ = ("name", "outcomes", "tags", "unacked")

    def __init__(self, name: str, outcomes: Iterable[Outcome]) -> None:
        self.name = name
        self.outcomes = frozenset((Outcome.ACCEPTED, *outcomes))
        self.tags = BitMap64()
        self.unacked = 0


class Ledger:
    """The open tags of one channel.

    Attributes:
        open: Delivered and not settled.
        last_tag: The last tag given.
        pulled: Holds what pulls got; every outcome may be used for it, and no prefetch counts it.
        consumed: How many open tags consumers hold.
    """

    def __init__(self) -> None:
        self.open = BitMap64()
        self.last_tag = 0
        self.pulled = Holder("", Outcome)
        self.consumed = 0
        # Those that have tags, also after their consumer has ended.
        self._holders: dict[Holder, None] = {}

    def give(self, holder: Holder, first_tag: int, messages: int) -> None:
        """A holder gets consecutive tags."""
        self.open.add_range(first_tag, first_tag + messages)
        self._holders.setdefault(holder)
        holder.tags.add_range(first_tag, first_tag + messages)
        holder.unacked += messages
        if holder is not self.pulled:
            self.consumed += messages

    def up_to(self, tag: int) -> BitMap64:
        """The open tags up to and including one that was given (C3)."""
        if tag > self.last_tag:
            return BitMap64()
        return bitmaps.between(self.open, 1, tag)

    def check(self, outcome: Outcome, tags: BitMap64) -> None:
        """C5: refuses an outcome that the consumer of one of the tags did not declare.

        Raises:
            OutcomeNotSupportedError: Names the consumer, the outcome and the tag.
        """
        for holder in self._holders:
            if outcome in holder.outcomes:
                continue
            wrong = holder.tags & tags
            if wrong:
                raise OutcomeNotSupportedError(
                    f"Required Settlement Outcome Not Supported: the consumer '{holder.name}' did"
                    f" not declare {outcome.value}, and delivery tag {wrong.min()} was settled with"
                    " it. Declare the outcomes in the subscription; the channel is closed, and what"
                    " it held is delivered again.",
                    consumer=holder.name,
                    outcome=outcome.value,
                    delivery_tag=wrong.min(),
                )

    def settled(self, tags: BitMap64) -> list[Holder]:
        """Tags that were open are so no more; gives who held them."""
        touched = []
        for holder in tuple(self._holders):
            count = holder.tags.intersection_cardinality(tags)
            if not count:
                continue
            touched.append(holder)
            holder.tags -= tags
            holder.unacked -= count
            if holder is not self.pulled:
                self.consumed -= count
            if not holder.unacked:
                del self._holders[holder]
        return touched
