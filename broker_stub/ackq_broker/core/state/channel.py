"""Unacked messages of a channel by tag, until each is settled (C1).

Invariant: an outstanding tag stands for one unacked position of one queue, and no two tags for the
same. A tag is a bit, and a stretch of tags that follow a stretch of positions is 16 bytes (C16).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.step_function import Dumped, Steps

# `shift` is added to a tag to get its position.
_SHIFT: Final = np.dtype([("shift", "<i8")])


class UnackedRun:
    """Unacked messages of one queue on a channel: `tags` are the outstanding ones."""

    __slots__ = ("_shifts", "tags")

    def __init__(self) -> None:
        self.tags = BitMap64()
        self._shifts = Steps(_SHIFT)

    def add(self, first_tag: int, positions: BitMap64) -> None:
        """Assigns positions, lowest first, the tags from `first_tag` on."""
        firsts, counts = bitmaps.runs(positions)
        tag = first_tag
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
            self._shifts.append(tag, count, (first - tag,))
            tag += count
        self.tags.add_range(first_tag, tag)

    def positions(self, tags: BitMap64) -> BitMap64:
        """The positions of outstanding tags, at least one."""
        found = self._shifts.constant(tags.min(), tags.max())
        if found is not None:
            return tags.shift(*found)
        return bitmaps.of(self.each_position(bitmaps.array(tags)))

    def each_position(self, tags: Int64s) -> Int64s:
        """The position of each outstanding tag, in the order of the tags, which must ascend."""
        found: Int64s = tags + self._shifts.at(tags)["shift"]
        return found

    def remove(self, tags: BitMap64) -> None:
        """Removes outstanding tags, as they are settled."""
        self.tags -= tags
        self._shifts.remove(tags, self.tags)

    def dump_shifts(self) -> Dumped:
        """The mapping from tags to positions; equal runs give equal bytes."""
        return self._shifts.dump(self.tags)

    @classmethod
    def load(cls, tags: BitMap64, shift_keys: bytes, shifts: bytes) -> UnackedRun:
        """Restores the run from `tags` and the output of `dump_shifts`."""
        self = cls()
        self.tags = tags
        self._shifts = Steps.load(_SHIFT, shift_keys, shifts, tags)
        return self


class ChannelTags:
    """Tags of a channel: the next tag, and the unacked tags of each queue, by queue id."""

    __slots__ = ("next_tag", "unacked")

    def __init__(self, next_tag: int = 1) -> None:
        self.next_tag = next_tag
        self.unacked: dict[int, UnackedRun] = {}

    def outstanding(self) -> BitMap64:
        """The tags that are not settled yet."""
        tags = [run.tags for run in self.unacked.values()]
        return BitMap64.union(*tags) if tags else BitMap64()

    def up_to(self, tag: int) -> BitMap64:
        """C3: the outstanding tags up to and including this one."""
        found = BitMap64()
        for run in self.unacked.values():
            found |= bitmaps.between(run.tags, 1, tag)
        return found

    def unknown(self, tags: BitMap64) -> BitMap64:
        """C2: the given tags that are not outstanding."""
        rest = tags
        for run in self.unacked.values():
            rest = rest - run.tags
        return rest

    def assign_tags(self, queue_id: int, positions: BitMap64) -> None:
        """C1: gives delivered positions, lowest first, the next tags."""
        if queue_id not in self.unacked:
            self.unacked[queue_id] = UnackedRun()
        self.unacked[queue_id].add(self.next_tag, positions)
        self.next_tag += len(positions)

    def positions(self, tags: BitMap64) -> dict[int, BitMap64]:
        """The messages of outstanding tags, by queue id, ascending."""
        found = ((queue_id, run.tags & tags) for queue_id, run in sorted(self.unacked.items()))
        return {
            queue_id: self.unacked[queue_id].positions(part) for queue_id, part in found if part
        }

    def take(self, tags: BitMap64) -> dict[int, BitMap64]:
        """Returns the messages of outstanding tags as `positions` does, and settles the tags."""
        found = self.positions(tags)
        for queue_id in found:
            run = self.unacked[queue_id]
            run.remove(run.tags & tags)
            if not run.tags:
                del self.unacked[queue_id]
        return found
