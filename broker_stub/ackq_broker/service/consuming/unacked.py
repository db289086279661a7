"""The unacked delivery tags of a channel by owner, as prefetch and settlements use them.

Invariant: an outstanding tag has exactly one owner, and is outstanding in the core.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from ackq.errors import OutcomeNotSupportedError
from ackq.outcomes import Outcome
from ackq.wire.held_bytes import HeldBytes
from ackq_broker.core.columns import bitmaps


class UnackedOwner:
    """A consumer, or all pulls of a channel together, with its unacked tags.

    Attributes:
        name: The consumer's name; empty for pulls.
        outcomes: The outcomes that its messages may be settled with (C5).
        tags: Its unacked tags.
        unacked: The number of unacked tags, kept to avoid counting them (C16).
        held: The bytes of its unacked messages; None if they have no bound.
    """

    __slots__ = ("held", "name", "outcomes", "tags", "unacked")

    def __init__(
        self, name: str, outcomes: Iterable[Outcome], held: HeldBytes | None = None
    ) -> None:
        self.name = name
        self.outcomes = frozenset((Outcome.ACCEPTED, *outcomes))
        self.tags = BitMap64()
        self.unacked = 0
        self.held = held


class UnackedTags:
    """The unacked tags of one channel.

    Attributes:
        outstanding: All tags that were delivered and not settled.
        last_tag: The last tag delivered.
        pulled: The owner of pulled messages: it allows every outcome, and no prefetch counts it.
        prefetched: The number of outstanding tags that consumers own.
    """

    def __init__(self) -> None:
        self.outstanding = BitMap64()
        self.last_tag = 0
        self.pulled = UnackedOwner("", Outcome)
        self.prefetched = 0
        # Owners with tags, including owners whose consumer has ended.
        self._owners: dict[UnackedOwner, None] = {}

    def assign(self, owner: UnackedOwner, first_tag: int, messages: int, size: int) -> None:
        """Assigns consecutive tags to an owner; `size` is their messages' payload bytes."""
        self.outstanding.add_range(first_tag, first_tag + messages)
        self._owners.setdefault(owner)
        owner.tags.add_range(first_tag, first_tag + messages)
        owner.unacked += messages
        if owner.held is not None:
            owner.held.add(first_tag, first_tag + messages - 1, size)
        if owner is not self.pulled:
            self.prefetched += messages

    def up_to(self, tag: int) -> BitMap64:
        """Outstanding tags <= `tag`; empty if `tag` itself is not outstanding (C3)."""
        if tag not in self.outstanding:
            return BitMap64()
        return bitmaps.between(self.outstanding, 1, tag)

    def check_outcome(self, outcome: Outcome, tags: BitMap64) -> None:
        """Refuses an outcome that the consumer of one of the tags did not declare (C5).

        Raises:
            OutcomeNotSupportedError: Names the consumer, the outcome and the tag.
        """
        for owner in self._owners:
            if outcome in owner.outcomes:
                continue
            wrong = owner.tags & tags
            if wrong:
                raise OutcomeNotSupportedError(
                    f"Required Settlement Outcome Not Supported: the consumer '{owner.name}' did "
                    f"not declare {outcome.value}, and delivery tag {wrong.min()} was settled "
                    "with it. Declare the outcomes in the subscription; the channel is closed, "
                    "and its unsettled messages are delivered again.",
                    consumer=owner.name,
                    outcome=outcome.value,
                    delivery_tag=wrong.min(),
                )

    def remove(self, tags: BitMap64) -> list[UnackedOwner]:
        """Removes tags from their owners; returns these owners."""
        touched = []
        for owner in tuple(self._owners):
            count = owner.tags.intersection_cardinality(tags)
            if not count:
                continue
            touched.append(owner)
            if owner.held is not None:
                firsts, counts = bitmaps.runs(owner.tags & tags)
                for first, rows in zip(firsts.tolist(), counts.tolist(), strict=True):
                    owner.held.remove(first, first + rows - 1)
            owner.tags -= tags
            owner.unacked -= count
            if owner is not self.pulled:
                self.prefetched -= count
            if not owner.unacked:
                del self._owners[owner]
        return touched
