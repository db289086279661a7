"""A queue: which of its positions are ready, which unacked, and which kept for a replay.

Invariant: every placed position is exactly one of the three until it is gone (I4).
"""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core import bitmaps
from ackq_broker.core.bitmaps import Int64s
from ackq_broker.core.commands import QueueProperties
from ackq_broker.core.placements import Placement, Placements


class Queue:
    """Positions count from 1 and are never given twice.

    Attributes:
        deleted: Its name is gone, and it stays only for the bodies that are still leased (Q4).
        deliveries: For n >= 1, the positions that were delivered n times and put back; all others
            never were (C7).
        kept: Accepted and gone for everyone but the session that may replay them (K2); no count of
            messages or bytes has them.
        requeued: What was put back, with the sequence of the record that did so (K5).
        staged: Rows that writers have staged for this queue; `staged_bytes` is their payload (K3).
        published: Messages ever placed; `accepted`: messages ever accepted.
        bindings: (exchange, binding key) pairs that name this queue; an index.
        sessions: Names of the sessions that read it; an index.
    """

    __slots__ = (
        "accepted",
        "bindings",
        "deleted",
        "deliveries",
        "kept",
        "name",
        "next_position",
        "placements",
        "properties",
        "published",
        "queue_id",
        "ready",
        "requeued",
        "sessions",
        "staged",
        "staged_bytes",
        "unacked",
    )

    def __init__(self, queue_id: int, name: str, properties: QueueProperties) -> None:
        self.queue_id = queue_id
        self.name = name
        self.properties = properties
        self.deleted = False
        self.next_position = 1
        self.ready = BitMap64()
        self.unacked = BitMap64()
        self.kept = BitMap64()
        self.placements = Placements()
        self.deliveries: dict[int, BitMap64] = {}
        self.requeued: list[tuple[int, BitMap64]] = []
        self.staged = 0
        self.staged_bytes = 0
        self.published = 0
        self.accepted = 0
        self.bindings: set[tuple[str, str]] = set()
        self.sessions: set[str] = set()

    @property
    def messages(self) -> int:
        """Ready and unacked messages."""
        return len(self.ready) + len(self.unacked)

    @property
    def payload_bytes(self) -> int:
        """Payload of the ready and unacked messages; runs cut pro rata."""
        return self.placements.payload_bytes - self.placements.size(self.kept)

    @property
    def drained(self) -> bool:
        """Whether nothing is left, not even for a replay."""
        return not self.placements.live

    @property
    def in_use(self) -> bool:
        """Whether something other than ready messages refers to the queue (Q4)."""
        return bool(self.sessions or self.unacked or self.staged)

    def place(self, placement: Placement) -> None:
        """Appends a run of ready messages."""
        assert placement.first_position == self.next_position
        assert placement.rows > 0
        self.placements.append(placement)
        self.next_position += placement.rows
        self.ready.add_range(placement.first_position, self.next_position)
        self.published += placement.rows
        self._check()

    def lease(self, positions: BitMap64) -> None:
        """Ready messages become unacked."""
        assert positions.issubset(self.ready)
        self.ready -= positions
        self.unacked |= positions
        self._forget_requeued(positions)
        self._check()

    def requeue(self, positions: BitMap64, sequence: int) -> None:
        """Unacked messages become ready at their old place, one delivery older (C6, C7)."""
        assert positions.issubset(self.unacked)
        self.unacked -= positions
        self.ready |= positions
        self._count_delivery(positions)
        if positions:
            self.requeued.append((sequence, positions.copy()))
        self._check()

    def accept(self, positions: BitMap64) -> None:
        """Unacked messages are done with; they stay for a replay until they are let go."""
        assert positions.issubset(self.unacked)
        self.unacked -= positions
        self.kept |= positions
        self.accepted += len(positions)
        self._check()

    def let_go(self, positions: BitMap64) -> BitMap64:
        """No replay can come any more; gives the blocks that lost their run."""
        assert positions.issubset(self.kept)
        self.kept -= positions
        return self._remove(positions)

    def drop(self, positions: BitMap64) -> BitMap64:
        """Ready messages go (purge, drop-head, delete); gives the blocks that lost their run."""
        assert positions.issubset(self.ready)
        self.ready -= positions
        self._forget_requeued(positions)
        return self._remove(positions)

    def vanish(self, positions: BitMap64) -> BitMap64:
        """A restart takes messages of any state (Q7); gives the blocks that lost their run."""
        self.ready -= positions
        self.unacked -= positions
        self.kept -= positions
        self._forget_requeued(positions)
        return self._remove(positions)

    def eligible(self, horizon: int) -> BitMap64:
        """The ready positions; with a horizon, those that were so by that sequence (K5)."""
        if not horizon:
            return self.ready
        found = bitmaps.between(self.ready, 1, self.placements.visible_by(horizon))
        for sequence, positions in self.requeued:
            if sequence > horizon:
                found -= positions
        return found

    def delivered_before(self, positions: BitMap64, *, also: BitMap64 | None = None) -> int:
        """How many of these positions were delivered and put back before, or are in `also`."""
        levels = [*self.deliveries.values(), *([also] if also else [])]
        return BitMap64.union(*levels).intersection_cardinality(positions) if levels else 0

    def delivery_counts(self, positions: BitMap64) -> Int64s:
        """The number of each position's present or next delivery: 1 the first time (C7)."""
        counts = np.ones(len(positions), np.int64)
        if self.deliveries:
            values = bitmaps.array(positions)
            for count, level in self.deliveries.items():
                counts[np.searchsorted(values, bitmaps.array(level & positions))] += count
        return counts

    def oldest_us(self, *, without: BitMap64 | None = None) -> int:
        """When the oldest message, those `without` left out, became visible; 0 for none."""
        unacked = self.unacked - without if without else self.unacked
        heads = [positions.min() for positions in (self.ready, unacked) if positions]
        return self.placements.published_us(min(heads)) if heads else 0

    def _remove(self, positions: BitMap64) -> BitMap64:
        for count in list(self.deliveries):
            self.deliveries[count] -= positions
            if not self.deliveries[count]:
                del self.deliveries[count]
        blocks = self.placements.remove(positions)
        self._check()
        return blocks

    def _count_delivery(self, positions: BitMap64) -> None:
        rest = positions
        for count in sorted(self.deliveries, reverse=True):
            raised = self.deliveries[count] & positions
            if raised:
                self.deliveries[count] -= raised
                self._add_level(count + 1, raised)
                rest = rest - raised
            if not self.deliveries[count]:
                del self.deliveries[count]
        self._add_level(1, rest)

    def _add_level(self, count: int, positions: BitMap64) -> None:
        if positions:
            self.deliveries[count] = self.deliveries.get(count, BitMap64()) | positions

    def _forget_requeued(self, positions: BitMap64) -> None:
        if self.requeued:
            rest = ((sequence, entry - positions) for sequence, entry in self.requeued)
            self.requeued = [(sequence, entry) for sequence, entry in rest if entry]

    def _check(self) -> None:
        """I4: every message is in exactly one state."""
        assert self.ready.isdisjoint(self.unacked)
        assert self.kept.isdisjoint(self.ready)
        assert self.kept.isdisjoint(self.unacked)
        assert self.messages + len(self.kept) == self.placements.live
        assert self.placements.payload_bytes >= 0
