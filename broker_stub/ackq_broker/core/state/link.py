"""An inbound link (L): its holder, its subscription, and the entries of its messages.

An entry is a message of the link that is in its queue, or that was in it and whose acknowledgement
at the remote broker may still be lost. Invariant: every entry is bound to one delivery of the
present subscription, or loose since a subscription ended, or proven.
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
from ackq_broker.core.fields import Holder
from ackq_broker.core.state.queue import Queue

_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3_600 * _SECOND_US
# Batches of permits that are proven one by one; with more, they are joined in pairs.
_MOST_BATCHES: Final = 1_000
# Deliveries that are no longer needed, before they are forgotten.
_STALE_DELIVERIES: Final = 4_096
_NO_DELIVERIES: Final = np.zeros((3, 0), np.int64)


class Batch(NamedTuple):
    """Permits of one record, given at one instant; `size` is their number when they were given."""

    size: int
    positions: BitMap64
    at_us: int


class LinkCounts(NamedTuple):
    """Counters of a link since it was first opened (L26)."""

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
        """Returns the counters with some of them increased."""
        return self._replace(**{name: getattr(self, name) + more[name] for name in more})


class Link:
    """The whole state of a link; one with `subscription` 0 has consumed nothing yet.

    Attributes:
        history: The number of the history in which it was opened (Q8).
        subscribed: Whether the subscription goes on; else the link has to consume again.
        fresh_from: Positions from this one on were stored in this subscription.
        next_number: The number of the next delivery; `lowest_unanswered`: the numbers below it were
            answered (L5).
        deliveries: Runs of deliveries at consecutive positions: first number, rows and first
            position of each, in three rows. Deliveries below `lowest_unanswered` that no longer
            need an acknowledgement are removed from time to time.
        entries: The origin keys by position; `content` are the positions whose key is derived from
            content.
        bound: The entries of this subscription's deliveries; `waiting`: the ones without a permit.
        batches: Permits that are not proven, in their order (L10); `permits` are their positions,
            an index. `proved` counts the permits before them.
        subscribed_us: When the subscription began.
        redelivered: Bound positions that do not count as fresh: they had been delivered before, or
            came first so soon after the subscription began that redeliveries may still follow them.
        reject_there: Whether messages rejected at the local broker are rejected at the remote
            broker (L28); `rejected`: the entries whose message was rejected, and is to be or has
            been rejected at the remote broker.
        fresh_proven: Whether a whole batch of messages that came first in this subscription is
            proven.
        loose: Entries that were not proven when a subscription ended, by the hour.
        doubt: Loose entries that had a permit.
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

    # --- queries ---

    def held(self, queue: Queue) -> BitMap64:
        """Entries whose message is in the queue, and that have no permit for an acknowledgement."""
        kept = self.entries.positions - self.permits
        for proven in self.graces.values():
            kept -= proven
        if self.ack is LinkAck.STORED:
            kept -= self.doubt
        return kept - queue.gone(kept)

    def missing(self, queue: Queue) -> BitMap64:
        """L18: the held entries that this subscription has not been delivered again."""
        return self.held(queue) - self.bound - self.doubt

    def awaited(self) -> BitMap64:
        """Entries of earlier subscriptions that never had a permit: they must be redelivered."""
        return BitMap64.union(BitMap64(), *self.loose.values()) - self.doubt

    def proven_entries(self) -> BitMap64:
        """Entries that are kept for a while although they are proven."""
        return BitMap64.union(BitMap64(), *self.graces.values())

    def spare(self, at_us: int) -> BitMap64:
        """Entries proven so long ago that they are forgotten where the link has too many (L10)."""
        old = [proven for until_us, proven in self.graces.items() if until_us <= at_us]
        return BitMap64.union(BitMap64(), *old)

    def never_permitted(self, positions: BitMap64) -> BitMap64:
        """The given positions that are entries without a permit: the remote broker still has them.

        A permit of an earlier subscription does not count once the entry is matched: the message
        was redelivered.
        """
        found = positions & self.entries.positions
        return found.difference(self.permits, self.doubt, *self.graces.values())

    def unproven(self) -> int:
        """Number of acknowledgements that were permitted and are not proven."""
        return len(self.permits) + len(self.doubt)

    def provable(self, proven: int) -> int:
        """Number of permit batches fully covered by the first `proven` acknowledgements."""
        ends = np.cumsum([batch.size for batch in self.batches]) + self.proved
        return int(np.count_nonzero(ends <= proven))

    def names(self, proven: int, number: int) -> bool:
        """Whether the permit numbered `proven` belongs to delivery `number` (L10)."""
        ends = np.cumsum([batch.size for batch in self.batches]) + self.proved
        batch = self.batches[int(np.searchsorted(ends, proven))]
        position = self._position_of(number)
        if position in batch.positions:
            return True
        # An entry that was forgotten since has left its batch, and is in no other.
        return len(batch.positions) < batch.size and position not in self.permits

    def permitted(self) -> int:
        """Number of permits that this subscription has had."""
        return self.proved + sum(batch.size for batch in self.batches)

    def settles_in(self, now_us: int) -> bool:
        """L10: whether messages that an older connection held may still come after fresh ones."""
        return now_us < self.subscribed_us + limits.LINK_ACK_GRACE_S * _SECOND_US

    def delivered(self, first: int, last: int) -> tuple[Int64s, Int64s]:
        """Numbers and positions of the known deliveries first..last, ordered by number."""
        firsts, rows, positions = self.deliveries
        numbers = bitmaps.expanded(firsts, rows)
        inside = slice(*np.searchsorted(numbers, (first, last + 1)).tolist())
        return numbers[inside], bitmaps.expanded(positions, rows)[inside]

    # --- transitions ---

    def subscribe(self, queue: Queue, at_us: int) -> None:
        """L17: begins the next subscription, in which everything unproven is redelivered."""
        self.cut(at_us)
        self.subscription += 1
        self.subscribed = True
        self.subscribed_us = at_us
        self.fresh_from = queue.next_position

    def cut(self, at_us: int) -> None:
        """Ends the subscription: unproven entries become loose, and in doubt if they had a permit.

        Entries without a key are forgotten: no redelivery could be matched with them.
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
        """Q8: puts all unproven entries in doubt, as records of later permits may be missing."""
        self.doubt |= self.entries.positions - self.proven_entries()

    def match(self, positions: BitMap64) -> None:
        """L6: binds entries to deliveries of this subscription, without a permit yet."""
        assert positions.issubset(self.entries.positions)
        assert positions.isdisjoint(self.bound)
        self._free(positions)
        self.bound |= positions
        self.waiting |= positions

    def store(self, positions: Int64s, keys: bytes, checks: bytes, content: BitMap64) -> None:
        """Adds the messages at new positions as entries, and binds them."""
        halves = np.frombuffer(keys, "<u8").reshape(-1, 2).astype(np.uint64)
        column = np.frombuffer(checks, "<u8").astype(np.uint64)
        self.entries.append(positions, halves, column)
        self.content |= content
        new = bitmaps.of(positions)
        self.bound |= new
        self.waiting |= new

    def deliver(self, first_number: int, positions: Int64s, lowest_unanswered: int) -> None:
        """L5: records the next deliveries, with the positions of their messages."""
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
        """L28: marks entries without a permit for rejection, as their message was rejected."""
        self.rejected |= self.never_permitted(positions)

    def permit(self, positions: BitMap64, at_us: int) -> None:
        """L10: permits the acknowledgement of bound entries, or the rejection of rejected ones."""
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
        """Joins all permits that are not proven into one batch."""
        if self.batches:
            self.batches = [joined(self.batches)]

    def prove(self, proven: int, at_us: int) -> None:
        """L10: marks the whole batches among the first `proven` permits as proven.

        Entries proven earlier are forgotten once the remote broker has applied acknowledgements of
        fresh messages that were permitted some time after that proof: a node that was down in
        between redelivers the messages it lost before the fresh ones.
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
        """L10: forgets entries that will not be redelivered.

        An entry that has been loose for a day, and is in doubt or its message has left the queue,
        is not redelivered once a whole batch of fresh messages is proven: redeliveries come before
        those.
        """
        if not self.fresh_proven:
            return
        before_us = at_us - limits.LINK_DOUBT_S * _SECOND_US
        for since_us in [each for each in self.loose if each <= before_us]:
            loose = self.loose[since_us]
            self.forget(queue.gone(loose) | (loose & self.doubt))

    def forget(self, positions: BitMap64) -> None:
        """Removes entries."""
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
        """Checks the invariants. For tests: the cost grows with the number of entries."""
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

    # --- internals ---

    def _position_of(self, number: int) -> int:
        """Position of a known delivery; 0 if it is not known."""
        firsts, rows, positions = self.deliveries
        at = int(np.searchsorted(firsts, number, "right")) - 1
        if at < 0 or number >= firsts[at] + rows[at]:
            return 0
        return int(positions[at]) + number - int(firsts[at])

    def _fresh_us(self, batch: Batch) -> int:
        """When a batch of fresh messages was permitted; 0 if not all of its messages are fresh."""
        positions = batch.positions
        if not positions or positions.min() < self.fresh_from:
            return 0
        return batch.at_us if positions.isdisjoint(self.redelivered) else 0

    def _free(self, positions: BitMap64) -> None:
        """Removes positions from the loose, doubtful and proven entries."""
        self.doubt -= positions
        self.loose = _without(self.loose, positions)
        self.graces = _without(self.graces, positions)

    def _forget_deliveries(self) -> None:
        """Keeps only deliveries that are unanswered, waiting for a permit, or not proven."""
        numbers, positions = self.delivered(1, self.next_number)
        open_ones = bitmaps.array(self.waiting | self.permits)
        kept = np.isin(positions, open_ones) | (numbers >= self.lowest_unanswered)
        numbers, positions = numbers[kept], positions[kept]
        breaks = (np.diff(numbers) != 1) | (np.diff(positions) != 1)
        begins = np.flatnonzero(np.append(True, breaks)[: len(numbers)])
        rows = np.diff(begins, append=len(numbers))
        self.deliveries = np.array((numbers[begins], rows, positions[begins]), np.int64)


def joined(batches: list[Batch] | tuple[Batch, ...]) -> Batch:
    """Joins batches into one."""
    positions = BitMap64.union(BitMap64(), *(batch.positions for batch in batches))
    first_us = min((batch.at_us for batch in batches), default=0)
    return Batch(sum(batch.size for batch in batches), positions, first_us)


def _joined(runs: Int64s, more: Int64s) -> Int64s:
    """Appends runs of deliveries; two runs that continue each other become one."""
    if runs.shape[1]:
        number, rows, position = runs[:, -1].tolist()
        if (number + rows, position + rows) == (int(more[0, 0]), int(more[2, 0])):
            last = np.array([[number], [rows + int(more[1, 0])], [position]], np.int64)
            return np.hstack((runs[:, :-1], last, more[:, 1:]))
    return np.hstack((runs, more))


def _without(groups: dict[int, BitMap64], positions: BitMap64) -> dict[int, BitMap64]:
    """Removes positions from groups; the remainder of each is a new bitmap."""
    left = ((key, group - positions) for key, group in groups.items())
    return {key: group for key, group in left if group}
