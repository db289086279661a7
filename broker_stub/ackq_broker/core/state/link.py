"""A link (L): its holder, its subscription, and the entries of its messages.

An entry is a message of the link that is in its queue, or that was and whose acknowledgement there
may still come to nothing. Invariant: every entry is bound to one delivery of the present
subscription, or loose since a subscription ended, or proven.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.origin_keys import OriginKeys
from ackq_broker.core.commands import LinkAck
from ackq_broker.core.records import Holder
from ackq_broker.core.state.queue import Queue

_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3_600 * _SECOND_US
# Batches of permits whose proof is counted one by one; more are joined by twos.
_MOST_BATCHES: Final = 1_000
# Deliveries that need not be known any more, before they are forgotten.
_STALE_DELIVERIES: Final = 4_096
_NO_DELIVERIES: Final = np.zeros((3, 0), np.int64)


class Batch(NamedTuple):
    """Permits of one record, of an instant; `size` of them, whatever was lost since."""

    size: int
    positions: BitMap64
    at_us: int


class LinkCounts(NamedTuple):
    """What a link did since it was opened first (L26)."""

    taken: int = 0
    stored: int = 0
    matched_held: int = 0
    matched_settled: int = 0
    ambiguous: int = 0
    id_reused: int = 0
    permitted: int = 0
    proven: int = 0
    rejected: int = 0

    def plus(self, **more: int) -> LinkCounts:
        """The counts with some of them risen."""
        return self._replace(**{name: getattr(self, name) + more[name] for name in more})


class Link:
    """Everything of a link; one that has `subscription` 0 has consumed nothing yet.

    Attributes:
        history: The number of the history in which it was opened (Q8).
        subscribed: The subscription goes on; else the link is to consume anew.
        fresh_from: Positions from here on were stored in this subscription.
        next_number: The number of the next delivery; `lowest_unanswered`: those below it were
            answered (L5).
        deliveries: Runs of deliveries at consecutive positions: first number, rows and first
            position of each, in three rows. What is below `lowest_unanswered` and needs no
            acknowledgement any more leaves it now and then.
        entries: The keys by position; `content` are the positions whose keys are of their content.
        bound: The entries of this subscription's deliveries; `waiting`: those without a permit.
        batches: Permits that are not proven, in their order (L10); `permits` are their positions,
            an index. `proved` counts the permits before them.
        subscribed_us: When the subscription began.
        redelivered: Those of them that say nothing of what is fresh: they had been delivered
            before, or came first so soon after the subscription began that others may be behind.
        reject_there: What is rejected here is rejected there (L28); `rejected`: the entries whose
            message was, and is to be or has been rejected there.
        fresh_proven: A whole batch of messages that came first in this subscription is proven.
        loose: Entries that were not proven when a subscription ended, by the hour.
        doubt: Those of them that had a permit.
        graces: Proven entries, by the instant from which another proof forgets them.
    """

    __slots__ = (
        "ack",
        "batches",
        "bound",
        "content",
        "counts",
        "deliveries",
        "doubt",
        "drop_ambiguous",
        "entries",
        "epoch",
        "fresh_from",
        "fresh_proven",
        "graces",
        "history",
        "holder",
        "incarnation",
        "loose",
        "lowest_unanswered",
        "name",
        "next_number",
        "opened_us",
        "paused",
        "permits",
        "proved",
        "queue_id",
        "redelivered",
        "reject_there",
        "rejected",
        "source",
        "subscribed",
        "subscribed_us",
        "subscription",
        "user",
        "waiting",
    )

    def __init__(self, name: str, incarnation: str, holder: Holder, source: str) -> None:
        self.name = name
        self.incarnation = incarnation
        self.holder = holder
        self.source = source
        self.user = ""
        self.epoch = 1
        self.queue_id = 0
        self.ack = LinkAck.SETTLED
        self.drop_ambiguous = False
        self.reject_there = False
        self.paused = False
        self.opened_us = 0
        self.history = 0
        self.subscription = 0
        self.entries = OriginKeys()
        self.content = BitMap64()
        self.doubt = BitMap64()
        self.rejected = BitMap64()
        self.loose: dict[int, BitMap64] = {}
        self.graces: dict[int, BitMap64] = {}
        self.counts = LinkCounts()
        self.subscribed = False
        self.subscribed_us = 0
        self.fresh_from = 0
        self.next_number = 1
        self.lowest_unanswered = 1
        self.deliveries = _NO_DELIVERIES
        self.bound = BitMap64()
        self.waiting = BitMap64()
        self.batches: list[Batch] = []
        self.permits = BitMap64()
        self.proved = 0
        self.redelivered = BitMap64()
        self.fresh_proven = False

    # --- what is asked ---

    def held(self, queue: Queue) -> BitMap64:
        """The entries whose message is in the queue, and was not permitted to be acknowledged."""
        kept = self.entries.positions - self.permits
        for proven in self.graces.values():
            kept -= proven
        if self.ack is LinkAck.STORED:
            kept -= self.doubt
        return kept - queue.gone(kept)

    def missing(self, queue: Queue) -> BitMap64:
        """L18: of those held, the ones that this subscription was not delivered again."""
        return self.held(queue) - self.bound - self.doubt

    def awaited(self) -> BitMap64:
        """The entries of earlier subscriptions that never had a permit: they must come again."""
        return BitMap64.union(BitMap64(), *self.loose.values()) - self.doubt

    def proven_entries(self) -> BitMap64:
        """The entries that are kept for a while although they are proven."""
        return BitMap64.union(BitMap64(), *self.graces.values())

    def never_permitted(self, positions: BitMap64) -> BitMap64:
        """Those of some positions that are entries without a permit: the other broker has them.

        A permit of an earlier subscription does not count once the entry is matched: it came again.
        """
        found = positions & self.entries.positions
        return found.difference(self.permits, self.doubt, *self.graces.values())

    def unproven(self) -> int:
        """Acknowledgements that were permitted and are not proven."""
        return len(self.permits) + len(self.doubt)

    def provable(self, proven: int) -> int:
        """How many batches the first permits, so many of them, are whole."""
        ends = np.cumsum([batch.size for batch in self.batches]) + self.proved
        return int(np.count_nonzero(ends <= proven))

    def names(self, proven: int, number: int) -> bool:
        """Whether permit `proven`, of those that were given, is of delivery `number` (L10)."""
        ends = np.cumsum([batch.size for batch in self.batches]) + self.proved
        batch = self.batches[int(np.searchsorted(ends, proven))]
        position = self._position_of(number)
        if position in batch.positions:
            return True
        # An entry that was forgotten since has left its batch, and is in no other.
        return len(batch.positions) < batch.size and position not in self.permits

    def permitted(self) -> int:
        """How many permits this subscription has had."""
        return self.proved + sum(batch.size for batch in self.batches)

    def settles_in(self, now_us: int) -> bool:
        """L10: whether what an older connection there held may still come behind fresh messages."""
        return now_us < self.subscribed_us + limits.LINK_ACK_GRACE_S * _SECOND_US

    def delivered(self, first: int, last: int) -> tuple[Int64s, Int64s]:
        """The numbers and positions of known deliveries first..last, by number."""
        firsts, rows, positions = self.deliveries
        numbers = bitmaps.expanded(firsts, rows)
        inside = slice(*np.searchsorted(numbers, (first, last + 1)).tolist())
        return numbers[inside], bitmaps.expanded(positions, rows)[inside]

    # --- transitions ---

    def subscribe(self, queue: Queue, at_us: int) -> None:
        """L17: the next subscription begins: everything unproven is delivered again."""
        self.cut(at_us)
        self.subscription += 1
        self.subscribed = True
        self.subscribed_us = at_us
        self.fresh_from = queue.next_position

    def cut(self, at_us: int) -> None:
        """The subscription ends: what is not proven is loose, and in doubt if it was permitted.

        What has no key is forgotten: nothing could be found to be it.
        """
        self.forget(self.entries.keyless.copy())
        loose = self.waiting | self.permits
        if loose:
            hour_us = -(-at_us // _HOUR_US) * _HOUR_US
            self.loose[hour_us] = self.loose.get(hour_us, BitMap64()) | loose
        self.doubt |= self.permits
        self.subscribed = False
        self.next_number = self.lowest_unanswered = 1
        self.deliveries = _NO_DELIVERIES
        self.bound, self.waiting, self.permits = BitMap64(), BitMap64(), BitMap64()
        self.batches, self.redelivered = [], BitMap64()
        self.proved = self.fresh_from = 0
        self.fresh_proven = False

    def distrust(self) -> None:
        """Q8: what it permitted since may be missing: no entry is sure to have no permit."""
        self.doubt |= self.entries.positions - self.proven_entries()

    def match(self, positions: BitMap64) -> None:
        """L6: entries are bound to deliveries of this subscription, without a permit yet."""
        assert positions.issubset(self.entries.positions)
        assert positions.isdisjoint(self.bound)
        self._free(positions)
        self.bound |= positions
        self.waiting |= positions

    def store(self, positions: Int64s, keys: bytes, checks: bytes, content: BitMap64) -> None:
        """Messages at new positions are entries, and bound."""
        halves = np.frombuffer(keys, "<u8").reshape(-1, 2).astype(np.uint64)
        column = np.frombuffer(checks, "<u8").astype(np.uint64)
        self.entries.append(positions, halves, column)
        self.content |= content
        new = bitmaps.of(positions)
        self.bound |= new
        self.waiting |= new

    def deliver(self, first_number: int, positions: Int64s, lowest_unanswered: int) -> None:
        """L5: the next deliveries, with where their messages are."""
        assert first_number == self.next_number
        begins = np.flatnonzero(np.diff(positions, prepend=positions[0] - 2) != 1)
        rows = np.diff(begins, append=len(positions))
        runs = np.array((begins + first_number, rows, positions[begins]), np.int64)
        self.deliveries = _joined(self.deliveries, runs)
        self.next_number += len(positions)
        self.lowest_unanswered = max(self.lowest_unanswered, lowest_unanswered)
        needed = self.next_number - self.lowest_unanswered + len(self.waiting) + len(self.permits)
        if self.deliveries[1].sum() > 2 * needed + _STALE_DELIVERIES:
            self._forget_deliveries()

    def reject(self, positions: BitMap64) -> None:
        """L28: messages were rejected here, and those that are entries are to be there."""
        self.rejected |= self.never_permitted(positions)

    def permit(self, positions: BitMap64, at_us: int) -> None:
        """L10: bound entries may be acknowledged, or rejected if their message was."""
        if not positions:
            return
        assert positions.issubset(self.waiting)
        self.waiting -= positions
        self.permits |= positions
        self.batches.append(Batch(len(positions), positions, at_us))
        rejected = len(positions & self.rejected) if self.rejected else 0
        self.counts = self.counts.plus(permitted=len(positions), rejected=rejected)
        if len(self.batches) > _MOST_BATCHES:
            even = len(self.batches) // 2 * 2
            pairs = zip(self.batches[0:even:2], self.batches[1:even:2], strict=True)
            self.batches = [joined(pair) for pair in pairs] + self.batches[even:]

    def join_permits(self) -> None:
        """The permits that are not proven are one batch."""
        if self.batches:
            self.batches = [joined(self.batches)]

    def prove(self, proven: int, at_us: int) -> None:
        """L10: the whole batches of the first permits, so many of them, are proven.

        Entries that were are forgotten when it applied what was permitted some time later, of
        fresh messages: a node that was down meanwhile brings back what it lost before those.
        """
        count = self.provable(proven)
        if not count:
            return
        done = joined(self.batches[:count])
        fresh_us = max(map(self._fresh_us, self.batches[:count]))
        self.fresh_proven |= fresh_us > 0
        del self.batches[:count]
        self.proved += done.size
        self.permits -= done.positions
        self.redelivered -= done.positions
        due = [gone for until_us, gone in self.graces.items() if until_us <= fresh_us]
        self.forget(BitMap64.union(BitMap64(), *due))
        until_us = -(-at_us // _SECOND_US + -limits.LINK_ACK_GRACE_S) * _SECOND_US
        self.graces[until_us] = self.graces.get(until_us, BitMap64()) | done.positions
        self.counts = self.counts.plus(proven=done.size)

    def forget_due(self, queue: Queue, at_us: int) -> None:
        """L10: forgets what will not come again.

        An entry that is loose for a day, of a message that is gone, is not redelivered when a whole
        batch of fresh messages was: redelivered ones come before those.
        """
        if not self.fresh_proven:
            return
        before_us = at_us - limits.LINK_DOUBT_S * _SECOND_US
        for since_us in [each for each in self.loose if each <= before_us]:
            loose = self.loose[since_us]
            self.forget(queue.gone(loose) | (loose & self.doubt))

    def forget(self, positions: BitMap64) -> None:
        """Entries are no more."""
        if not positions:
            return
        self._free(positions)
        self.entries.remove(positions)
        self.content -= positions
        self.bound -= positions
        self.waiting -= positions
        self.redelivered -= positions
        self.rejected -= positions
        if not self.permits.isdisjoint(positions):
            self.permits -= positions
            self.batches = [
                batch._replace(positions=batch.positions - positions) for batch in self.batches
            ]

    def check(self) -> None:
        """What must always hold. For tests: it costs as much as the link has entries."""
        loose = [*self.loose.values(), *self.graces.values()]
        assert BitMap64.union(self.bound, *loose) == self.entries.positions
        apart = [*self.loose.values(), *self.graces.values(), self.waiting, self.permits]
        assert sum(map(len, apart)) == len(self.entries)
        assert self.waiting.isdisjoint(self.permits)
        assert (self.waiting | self.permits).issubset(self.bound)
        assert self.permits == BitMap64.union(BitMap64(), *(each[1] for each in self.batches))
        assert self.doubt.isdisjoint(self.bound)
        keyless = self.entries.keyless
        for some in (self.content, self.doubt, self.redelivered, self.rejected, keyless):
            assert some.issubset(self.entries.positions)

    # --- inside ---

    def _position_of(self, number: int) -> int:
        """The position of a known delivery; 0: it is not known."""
        firsts, rows, positions = self.deliveries
        at = int(np.searchsorted(firsts, number, "right")) - 1
        if at < 0 or number >= firsts[at] + rows[at]:
            return 0
        return int(positions[at]) + number - int(firsts[at])

    def _fresh_us(self, batch: Batch) -> int:
        """When a batch of messages that came here first was permitted; 0 for another one."""
        positions = batch.positions
        if not positions or positions.min() < self.fresh_from:
            return 0
        return batch.at_us if positions.isdisjoint(self.redelivered) else 0

    def _free(self, positions: BitMap64) -> None:
        """Entries are not loose, in doubt or proven any more."""
        self.doubt -= positions
        self.loose = _without(self.loose, positions)
        self.graces = _without(self.graces, positions)

    def _forget_deliveries(self) -> None:
        """Leaves the deliveries that are unanswered, or to be acknowledged and not proven."""
        numbers, positions = self.delivered(1, self.next_number)
        open_ones = bitmaps.array(self.waiting | self.permits)
        kept = np.isin(positions, open_ones) | (numbers >= self.lowest_unanswered)
        numbers, positions = numbers[kept], positions[kept]
        breaks = (np.diff(numbers) != 1) | (np.diff(positions) != 1)
        begins = np.flatnonzero(np.append(True, breaks)[: len(numbers)])
        rows = np.diff(begins, append=len(numbers))
        self.deliveries = np.array((numbers[begins], rows, positions[begins]), np.int64)


def joined(batches: list[Batch] | tuple[Batch, ...]) -> Batch:
    """Batches as one."""
    positions = BitMap64.union(BitMap64(), *(batch.positions for batch in batches))
    first_us = min((batch.at_us for batch in batches), default=0)
    return Batch(sum(batch.size for batch in batches), positions, first_us)


def _joined(runs: Int64s, more: Int64s) -> Int64s:
    """Runs of deliveries with those that follow; two that continue each other are one."""
    if runs.shape[1]:
        number, rows, position = runs[:, -1].tolist()
        if (number + rows, position + rows) == (int(more[0, 0]), int(more[2, 0])):
            last = np.array([[number], [rows + int(more[1, 0])], [position]], np.int64)
            return np.hstack((runs[:, :-1], last, more[:, 1:]))
    return np.hstack((runs, more))


def _without(groups: dict[int, BitMap64], positions: BitMap64) -> dict[int, BitMap64]:
    """Groups without some positions; what is left of each is a bitmap of its own."""
    left = ((key, group - positions) for key, group in groups.items())
    return {key: group for key, group in left if group}
