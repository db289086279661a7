"""A queue: its positions that are ready, delayed, unacked, and kept for a replay.

Invariant: every placed position is in exactly one of the four states until it is removed (I4).

Transitions of a message, by event and state; `leased` is unacked by a session, `-` is no change.
A message that is accepted, dead-lettered, expired or removed leaves nothing in its queue.

| event                     | ready      | delayed    | unacked     | leased     | kept         |
| ------------------------- | ---------- | ---------- | ----------- | ---------- | ------------ |
| delivered                 | unacked C1 | -          | -           | -          | -            |
| leased                    | leased S1  | -          | -           | -          | -            |
| channel accepts           | -          | -          | accepted C4 | -          | -            |
| channel accepts, retained | -          | -          | kept S13    | -          | -            |
| channel releases          | -          | -          | ready C6    | -          | -            |
| channel fails             | -          | -          | delayed C14 | -          | -            |
| channel fails last        | -          | -          | dead C13    | -          | -            |
| channel rejects           | -          | -          | dead C13    | -          | -            |
| channel closes            | -          | -          | ready C6    | -          | -            |
| session accepts           | -          | -          | -           | kept K2    | -            |
| session fails             | -          | -          | -           | delayed S6 | -            |
| session rejects           | -          | -          | -           | dead S6    | -            |
| session is released       | -          | -          | -           | ready S8   | accepted S8  |
| session times out         | -          | -          | -           | ready S5   | -            |
| session is rewound        | -          | -          | -           | -          | ready S14    |
| queue is rewound          | -          | -          | -           | -          | ready S14    |
| retention is over         | -          | -          | -           | -          | accepted S13 |
| replay is over            | -          | -          | -           | -          | accepted K2  |
| expires                   | expired Q3 | expired Q3 | - S7        | - S7       | -            |
| expires to a queue        | dead C13   | dead C13   | - S7        | - S7       | -            |
| delay ends                | -          | ready C14  | -           | -          | -            |
| purged                    | removed Q4 | -          | -           | -          | -            |
| queue is deleted          | removed Q4 | removed Q4 | - Q4        | - Q4       | - Q4         |
| restart                   | - Q7       | - Q7       | ready Q7    | - Q7       | - Q7         |
| restart, transient        | removed Q7 | removed Q7 | removed Q7  | removed S5 | accepted Q7  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.deadlines import Deadlines
from ackq_broker.core.columns.position_counts import Counts
from ackq_broker.core.columns.requeued import Requeued
from ackq_broker.core.columns.retained import Retained
from ackq_broker.core.commands import BatchKey, Demand, Piece
from ackq_broker.core.fields import QueueProperties
from ackq_broker.core.state.block_sizes import BlockSizes
from ackq_broker.core.state.origins import Origins
from ackq_broker.core.state.placements import Moved, Placement, Placements, Rows
from ackq_broker.core.state.signals import DEAD_LETTERED, Signals, Totals

# An instant in the past, whatever the time is.
_LONG_AGO: Final = 1


class Gone(StrEnum):
    """Reason why a tag of a lease is a hole (S5)."""

    TAKEN = "taken"  # another reader has or had the message
    SETTLED = "settled"  # an operator settled it (S8)
    EXPIRED = "expired"
    PURGED = "purged"  # also: deleted with its queue, or dropped as a queue was over its bounds
    VANISHED = "vanished"  # it was transient, and the broker restarted


class Queue:
    """A queue and the state of its messages; positions count from 1 and are never reused.

    Attributes:
        deleted: Its name is free, and it exists only for the bodies that are still leased (Q4).
        delayed: Requeued messages that become ready when their delay is over (C14).
        kept: Removed for all but the sessions that retain them (S13); no count of messages or bytes
            includes them. `kept_bytes` is their payload; `rejected` are those whose removal was no
            accept, which a rewind leaves out (S14).
        replays: For each position, the number of kept leases that hold it and for which it is, or
            was, a message at the same time: an accept that requeued or rejected it leaves it
            readable (S6). A position that one session alone has held and accepted is not counted.
        retained: The kept positions that channels accepted (S13).
        rewound: The batch that each position was accepted with before a rewind (S14), plus 2; 1 for
            one that a channel accepted.
        watched: Positions that a detached session had leased (S5). `departed` are the watched
            positions that have left the queue since, by reason.
        deliveries: How often each position was delivered and requeued (C7).
        failures: How often each position was settled as FAILED (C13).
        expiries: When messages expire (Q3); `late`: messages whose expiry was processed while they
            could not expire, and which expire as soon as they are no longer unacked (S7).
        delays: When delayed messages become ready.
        origins: Origins of dead letters (C13).
        transient_rows: Transient messages stored in a persistent block (P12).
        requeued: The sequence at which each ready position was requeued (K5).
        staged: Number of rows that writers have staged for this queue; `staged_bytes` is their
            payload (K3). `staged_by` has the rows of each batch, oldest first; an index.
        published: Number of messages ever placed; `accepted`, `expired`, `dead_lettered` and
            `dropped`: number of messages that ended so.
        delivered: Messages leased or delivered since the process began; `redelivered`: the ones
            that had been delivered before; `dead_letters`: dead-lettered messages by cause;
            volatile.
        bindings: (exchange, binding key) pairs that name this queue; an index.
        sessions: Names of the sessions that read it; `sources`: ids of the other queues whose dead
            letters come to this one; both are indexes.
        links: Names of the links that bring messages to it (L1); an index.
        signals: Collects the queues with newly ready messages, and the instants at which something
            is due.
        consumers: Number of its consumers in the service; `demand` returns how many messages they
            have room for; `used_us` is when the queue was last used (queue expiry). All are
            volatile.
    """

    __slots__ = (
        "accepted",
        "bindings",
        "consumers",
        "dead_lettered",
        "dead_letters",
        "delayed",
        "delays",
        "deleted",
        "delivered",
        "deliveries",
        "demand",
        "departed",
        "dropped",
        "expired",
        "expiries",
        "failures",
        "kept",
        "kept_bytes",
        "late",
        "links",
        "name",
        "next_position",
        "origins",
        "placements",
        "properties",
        "published",
        "queue_id",
        "ready",
        "redelivered",
        "rejected",
        "replays",
        "requeued",
        "retained",
        "rewound",
        "sessions",
        "signals",
        "sources",
        "staged",
        "staged_by",
        "staged_bytes",
        "transient_rows",
        "unacked",
        "used_us",
        "watched",
    )

    def __init__(
        self,
        queue_id: int,
        name: str,
        properties: QueueProperties,
        signals: Signals,
        block_sizes: BlockSizes,
    ) -> None:
        self.queue_id = queue_id
        self.name = name
        self.properties = properties
        self.deleted = False
        self.next_position = 1
        self.ready = BitMap64()
        self.delayed = BitMap64()
        self.unacked = BitMap64()
        self.kept = BitMap64()
        self.kept_bytes = 0
        self.rejected = BitMap64()
        self.replays = Counts()
        self.retained = Retained(properties.retain_ms)
        self.rewound = Counts()
        self.watched = BitMap64()
        self.departed: dict[str, BitMap64] = {}
        self.placements = Placements(block_sizes)
        self.deliveries = Counts()
        self.failures = Counts()
        self.expiries = Deadlines()
        self.late = BitMap64()
        self.delays = Deadlines()
        self.origins = Origins(signals)
        self.transient_rows = BitMap64()
        self.requeued = Requeued()
        self.staged = 0
        self.staged_bytes = 0
        self.staged_by: dict[BatchKey, int] = {}
        self.published = 0
        self.accepted = 0
        self.expired = 0
        self.dead_lettered = 0
        self.dropped = 0
        self.delivered = 0
        self.redelivered = 0
        self.dead_letters: dict[str, int] = {}
        self.bindings: set[tuple[str, str]] = set()
        self.sessions: set[str] = set()
        self.sources: set[int] = set()
        self.links: set[str] = set()
        self.signals = signals
        self.consumers = 0
        self.demand: Callable[[], Demand] = Demand
        self.used_us = 0

    def reserve(self, rows: int, payload_bytes: int, batch: BatchKey | None = None) -> None:
        """Reserves room for staged rows of a batch or a transaction (None); negative: frees it."""
        self.staged += rows
        self.staged_bytes += payload_bytes
        assert self.staged >= 0
        self.use()
        if batch is not None:
            self.staged_by[batch] = self.staged_by.get(batch, 0) + rows
            if not self.staged_by[batch]:
                del self.staged_by[batch]

    # --- counts ---

    def totals(self) -> Totals:
        """Counters of the queue that only grow."""
        return Totals(
            {
                "published": self.published,
                "delivered": self.delivered,
                "redelivered": self.redelivered,
                "accepted": self.accepted,
                "expired": self.expired,
                "dropped": self.dropped,
                **{DEAD_LETTERED + cause: n for cause, n in self.dead_letters.items()},
            }
        )

    def count_anew(self) -> None:
        """Resets the counters that count since the process began."""
        self.delivered = self.redelivered = 0
        self.dead_letters = {}

    # --- content ---

    @property
    def messages(self) -> int:
        """Ready, delayed and unacked messages."""
        return len(self.ready) + len(self.delayed) + len(self.unacked)

    @property
    def present(self) -> BitMap64:
        """Positions of its ready, delayed and unacked messages."""
        return self.ready | self.delayed | self.unacked

    @property
    def holds_messages(self) -> bool:
        """Whether the queue has any message, staged ones included."""
        return bool(self.ready or self.delayed or self.unacked or self.staged)

    @property
    def payload_bytes(self) -> int:
        """Payload bytes of its messages."""
        return self.placements.payload_bytes - self.kept_bytes

    @property
    def ready_bytes(self) -> int:
        """Payload bytes of the ready messages.

        Computed by subtracting the other states, which usually have fewer messages.
        """
        held = self.placements.size(self.unacked) + self.placements.size(self.delayed)
        return self.payload_bytes - held

    @property
    def drained(self) -> bool:
        """Whether the queue has no message left, not even for a replay."""
        return not self.placements.live

    @property
    def in_use(self) -> bool:
        """Whether something other than waiting messages refers to the queue (Q4)."""
        used = self.sessions or self.unacked or self.staged or self.consumers or self.sources
        return bool(used or self.links)

    def gone(self, positions: BitMap64) -> BitMap64:
        """The given positions that are no longer messages of the queue."""
        return positions - self.ready - self.delayed - self.unacked

    def timely(self, positions: BitMap64, now_us: int) -> BitMap64:
        """The given positions that are not overdue (Q3)."""
        for gone in (self.expiries.due(now_us), self.late):
            if gone and not gone.isdisjoint(positions):
                positions = positions - gone
        return positions

    def available(self, now_us: int, horizon: int = 0) -> BitMap64:
        """Messages that can be delivered or leased: the ready positions that are not overdue (Q3).

        With a horizon, only the positions that were ready by that sequence (K5).
        """
        if not horizon:
            return self.timely(self.ready, now_us)
        found = bitmaps.between(self.ready, 1, self.placements.visible_by(horizon))
        found -= self.requeued.after(horizon)
        return self.timely(found, now_us)

    def delivered_before(self, positions: BitMap64, *, also: BitMap64 | None = None) -> int:
        """Number of the given positions that were delivered and requeued, or are in `also`."""
        found = self.deliveries.some(positions)
        if also:
            found |= also & positions
        return len(found)

    def delivery_counts(self, positions: BitMap64) -> Int64s:
        """Number of each position's present or next delivery: 1 the first time (C7)."""
        return self.deliveries.at(positions) + 1

    def oldest_us(self, *, without: BitMap64 | None = None) -> int:
        """Publish time of the oldest message, the positions in `without` left out; 0 for none."""
        ready, unacked = self.ready, self.unacked
        if without:
            unacked = unacked - without
            ready = ready if ready.isdisjoint(without) else ready - without
        heads = [found.min() for found in (ready, self.delayed, unacked) if found]
        return self.placements.published_us(min(heads)) if heads else 0

    def pieces(self, rows: Rows) -> Iterable[Piece]:
        """The block rows of present positions; dead letters with their origin (C13).

        Rewound messages have the batch of then (S14), which a lease may give with its rows.
        """
        if self.rewound and not len(rows.rewound):
            rows = rows._replace(rewound=self.rewound.at(bitmaps.of(rows.positions)))
        pieces = self.origins.attach(self.placements.pieces, self.name, rows)
        return rows.marked(pieces) if len(rows.rewound) else pieces

    # --- transitions ---

    def place(self, placement: Placement) -> None:
        """Appends a run of ready messages."""
        assert placement.first_position == self.next_position
        self.placements.append(placement)
        self._placed(placement.rows)

    def enqueue(self, moved: Moved, at_us: int, sequence: int) -> BitMap64:
        """Appends runs that come from another queue; returns their positions."""
        first, messages = self.next_position, moved.messages
        self.placements.extend(moved, first, at_us, sequence)
        self._placed(messages)
        return bitmaps.span(first, first + messages - 1)

    def expire_at(self, instant_us: int, positions: BitMap64) -> None:
        """Q3: sets the expiry of placed messages; they expire at the end of this bucket."""
        self.expiries.add(instant_us, positions)
        self.signals.note(self.queue_id, instant_us)

    def lease(self, positions: BitMap64) -> None:
        """Makes ready messages unacked."""
        assert positions.issubset(self.ready)
        self.ready -= positions
        self.unacked |= positions
        self.delivered += len(positions)
        if self.deliveries:
            self.redelivered += len(self.deliveries.some(positions))
        self._check()

    def requeue(self, positions: BitMap64, sequence: int) -> None:
        """Makes unacked messages ready at their old position, one delivery older (C6, C7)."""
        self._return(positions)
        self._make_ready(positions, sequence)

    def postpone(self, positions: BitMap64, until_us: int) -> None:
        """C14: requeues unacked messages with a delay; they are ready only when it is over."""
        self._return(positions)
        self.delayed |= positions
        self.delays.add(until_us, positions)
        self.signals.note(self.queue_id, until_us)
        self._check()

    def mature(self, positions: BitMap64, sequence: int) -> None:
        """C14: makes delayed messages ready, as their delay is over."""
        assert positions.issubset(self.delayed)
        self.delayed -= positions
        self._make_ready(positions, sequence)

    def rewind(self, positions: BitMap64, sequence: int) -> None:
        """S14: makes kept messages ready again at their old places; they no longer expire."""
        assert positions.issubset(self.kept)
        own = self._unretain(positions)
        self.replays.add(positions - own - self.replays.some(positions))
        self.rewound.forget(positions)
        self.expiries.forget(positions)
        self.kept -= positions
        self.rejected -= positions
        self._uncount_kept(self.placements.size(positions))
        self.deliveries.add(positions)
        self._make_ready(positions, sequence)

    def accept(self, positions: BitMap64) -> None:
        """Accepts unacked messages; they stay for a replay until `release_kept`."""
        assert positions.issubset(self.unacked)
        self.replays.add(self.replays.some(positions))
        self.unacked -= positions
        self._keep(positions)
        self.accepted += len(positions)
        self._note_gone(positions, Gone.TAKEN)
        self._check()

    def keep_readable(self, positions: BitMap64) -> None:
        """Keeps unacked messages readable for a replay, in spite of their outcome (S6)."""
        assert positions.issubset(self.unacked)
        self.replays.add(positions)

    def release_kept(self, positions: BitMap64) -> list[int]:
        """Releases positions a session can no longer replay; returns the blocks that lost a run."""
        shared = self.replays.some(positions)
        if shared:
            self.replays.subtract(shared)
            # The remaining ones are still messages, or another session may replay them.
            positions = positions - shared | (shared & self.kept) - self.replays.some(shared)
        assert positions.issubset(self.kept)
        before = self.placements.payload_bytes
        self.kept -= positions
        blocks = self._remove(positions)
        self._uncount_kept(before - self.placements.payload_bytes)
        return blocks

    def finish(self, positions: BitMap64, at_us: int) -> list[int]:
        """Accepts unacked messages of a channel, and removes them unless the queue retains them.

        Returns the blocks that lost a run.
        """
        if self.deleted or not self.retained:
            self.accepted += len(positions)
            return self.discard(positions)
        self.accept(positions)
        self.retained.add(positions, self.placements.size(positions), at_us)
        return []

    def discard(self, positions: BitMap64) -> list[int]:
        """Removes unacked messages; returns the blocks that lost a run."""
        assert positions.issubset(self.unacked)
        self.unacked -= positions
        return self._leave(positions, Gone.TAKEN)

    def drop(self, positions: BitMap64, reason: Gone) -> list[int]:
        """Removes ready or delayed messages; returns the blocks that lost a run."""
        assert positions.isdisjoint(self.unacked)
        assert positions.isdisjoint(self.kept)
        self.ready -= positions
        self.delayed -= positions
        return self._leave(positions, reason)

    def vanish(self, positions: BitMap64) -> list[int]:
        """Removes messages of any state at a restart (Q7); returns the blocks that lost a run."""
        self.ready -= positions
        self.delayed -= positions
        self.unacked -= positions
        gone = positions & self.kept
        self._uncount_kept(self.placements.size(gone))
        self.kept -= gone
        self.retained.forget(gone)
        self.replays.forget(positions)
        return self._remove(positions)

    # --- detached leases ---

    def watch(self, positions: BitMap64) -> None:
        """S5: watches positions that a detached session has tags for but no longer holds."""
        self.watched |= positions

    def still_ready(self, positions: BitMap64) -> BitMap64:
        """S5: the watched positions among these that are ready and never left the queue.

        One that another reader accepted may be ready again by a rewind (S14).
        """
        return (positions & self.ready) - BitMap64.union(BitMap64(), *self.departed.values())

    def unwatch(self, positions: BitMap64) -> None:
        """S5: stops watching positions, as no session has tags for them without holding them."""
        self.watched -= positions
        for reason in tuple(self.departed):
            self.departed[reason] -= positions
            if not self.departed[reason]:
                del self.departed[reason]

    # --- time ---

    def overdue(self, now_us: int) -> BitMap64:
        """The ready and delayed messages that have expired (Q3)."""
        found = BitMap64()
        for positions in (self.expiries.due(now_us), self.late):
            if positions:
                found |= positions & self.ready
                found |= positions & self.delayed
        return found

    def matured(self, now_us: int) -> BitMap64:
        """The delayed messages whose delay is over (C14)."""
        return self.delays.due(now_us) & self.delayed

    def ticks(self, now_us: int) -> bool:
        """Whether anything is due in the queue."""
        return bool(self.expiries.due(now_us) or self.delays.due(now_us) or self.overdue(now_us))

    def tick(self, now_us: int) -> None:
        """Forgets the due deadlines; messages that stay (unacked, or too many at once) are late."""
        due = self.expiries.pop(now_us)
        for present in (self.ready, self.delayed, self.unacked):
            self.late |= due & present
        self.delays.pop(now_us)

    def forget_deadlines(self) -> None:
        """Drops all deadlines, so that nothing expires (Q4: leased messages of a deleted queue)."""
        self.expiries, self.delays, self.late = Deadlines(), Deadlines(), BitMap64()

    def next_due_us(self) -> int:
        """Instant at which something is due next; 0 for never."""
        if not (self.late.isdisjoint(self.ready) and self.late.isdisjoint(self.delayed)):
            return _LONG_AGO
        instants = (
            self.expiries.first(self.ready, self.delayed, self.unacked),
            self.delays.first(self.delayed),
            self._unused_us(),
        )
        return min(filter(None, instants), default=0)

    def unused(self, now_us: int) -> bool:
        """Q3: whether the queue was unused for its `expires_ms`."""
        return not self.in_use and 0 < self._unused_us() <= now_us

    def use(self) -> None:
        """Marks the queue as used now, which restarts its expiry, if it has one."""
        if self.properties.expires_ms and not self.deleted:
            self.used_us = self.signals.now_us
            self.signals.note(self.queue_id, self._unused_us())

    def _unused_us(self) -> int:
        """Instant at which the queue expires if nothing uses it until then; 0 for never."""
        if self.deleted or not self.properties.expires_ms:
            return 0
        wait_us = self.properties.expires_ms * 1000
        since_us = max(self.used_us, self.signals.started_us)
        if self.in_use and since_us + wait_us <= self.signals.now_us:
            self.used_us = since_us = self.signals.now_us
        return since_us + wait_us

    # --- internals ---

    def check(self) -> None:
        """I4: checks that each message is in exactly one state, and that no data of others is kept.

        For tests: the cost grows with the length of the queue.
        """
        states = (self.ready, self.delayed, self.unacked, self.kept)
        everything = BitMap64.union(*states)
        assert len(everything) == sum(map(len, states)) == self.placements.live
        for known in (self.deliveries, self.failures, self.origins, self.replays, self.rewound):
            assert known.positions().issubset(everything)
        assert self.retained.since().issubset(self.kept)
        for departed in self.departed.values():
            assert departed.issubset(self.watched)
            assert departed.isdisjoint(self.present - self.rewound.positions())
        assert self.late.issubset(self.present)
        assert self.rejected.issubset(self.kept)
        assert self.transient_rows.issubset(everything)

    def _placed(self, messages: int) -> None:
        assert messages > 0
        first = self.next_position
        self.next_position += messages
        self.ready.add_range(first, self.next_position)
        self.published += messages
        self.signals.woken[self.name] = None
        self._check()

    def _return(self, positions: BitMap64) -> None:
        assert positions.issubset(self.unacked)
        self.unacked -= positions
        self.deliveries.add(positions)
        if not positions.isdisjoint(self.late):
            self.signals.note(self.queue_id, _LONG_AGO)

    def _make_ready(self, positions: BitMap64, sequence: int) -> None:
        self.ready |= positions
        self.requeued.add(sequence, positions, self.ready)
        self.signals.woken[self.name] = None
        self._check()

    def _leave(self, positions: BitMap64, reason: Gone) -> list[int]:
        """Removes messages, but keeps the ones that a kept lease may still read."""
        self._note_gone(positions, reason)
        stay = self.replays.some(positions)
        if stay:
            self._keep(stay)
            positions = positions - stay
        return self._remove(positions)

    def _keep(self, positions: BitMap64) -> None:
        self.late -= positions
        self.kept |= positions
        self.kept_bytes += self.placements.size(positions)

    def _unretain(self, positions: BitMap64) -> BitMap64:
        """Ends the retention of positions that channels accepted; returns them, still kept."""
        own = self.retained.since() & positions
        if own:
            self.retained.forget(own)
            self.replays.subtract(self.replays.some(own))
        return own

    def _uncount_kept(self, payload_bytes: int) -> None:
        # In a block without a column of sizes a share may be rounded otherwise than before.
        self.kept_bytes = self.kept_bytes - payload_bytes if self.kept else 0

    def _note_gone(self, positions: BitMap64, reason: Gone) -> None:
        if not self.watched.isdisjoint(positions):
            gone = self.departed.setdefault(reason.value, BitMap64())
            gone |= self.watched & positions

    def _remove(self, positions: BitMap64) -> list[int]:
        self.deliveries.forget(positions)
        self.failures.forget(positions)
        self.rewound.forget(positions)
        self.rejected -= positions
        self.late -= positions
        self.transient_rows -= positions
        self.origins.forget(positions)
        blocks = self.placements.remove(positions)
        self._check()
        return blocks

    def _check(self) -> None:
        """I4, checked at almost no cost: with each change checked, the sums suffice."""
        assert self.messages + len(self.kept) == self.placements.live
        assert self.placements.payload_bytes >= 0
