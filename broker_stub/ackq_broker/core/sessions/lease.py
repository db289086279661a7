"""Lease (S1, K5, K6): choice of messages, tags and chunks, and the backlog reported with it.

Decides only: the choice is written into the record, so that `apply` repeats it even if a later
version would choose otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.position_counts import Counts
from ackq_broker.core.commands import Advance, Backlog, Chunk, Released
from ackq_broker.core.fields import QueuePositions
from ackq_broker.core.state.placements import merge
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import Lease, PastDeliveries, Segment, State

_UNBOUNDED: Final = 1 << 62

# Positions by queue id.
Positions = dict[int, BitMap64]


def choose_messages(
    state: State,
    queue_ids: tuple[int, ...],
    turn: int,
    wish: Advance,
    now_us: int,
    *,
    requeued: Positions | None = None,
    resumed: Positions | None = None,
) -> tuple[QueuePositions, ...]:
    """The messages for a new lease, lowest positions first; none when too few are eligible (K6).

    Each queue gets an equal share of the limits, then the room that other queues leave unused; the
    first queue changes with every `turn`. `requeued` has messages that the same record makes ready
    before it leases, and `resumed` messages of the detached lease that it leases again.
    """
    pool = []
    first = turn % len(queue_ids) if queue_ids else 0
    for queue_id in queue_ids[first:] + queue_ids[:first]:
        queue = state.queues[queue_id]
        eligible = queue.available(now_us, wish.horizon)
        if requeued and queue_id in requeued:
            eligible = eligible | queue.timely(requeued[queue_id], now_us)
        if resumed and queue_id in resumed:
            eligible = eligible - resumed[queue_id]
        if eligible:
            pool.append((queue, eligible))
    if not pool or _too_few(pool, wish, now_us):
        return ()
    taken = _share(pool, wish.max_messages or _UNBOUNDED, wish.max_bytes or _UNBOUNDED)
    if not any(taken):
        taken[0] = bitmaps.lowest(pool[0][1], 1)
    return tuple(
        QueuePositions(queue.queue_id, positions)
        for (queue, _), positions in zip(pool, taken, strict=True)
        if positions
    )


def _too_few(pool: list[tuple[Queue, BitMap64]], wish: Advance, now_us: int) -> bool:
    """K6: whether the eligible messages are below the minimum, and none has waited too long.

    Neither bound applies under availableNow, nor under once, whose readers name no minimum (K5);
    readers that do not know their trigger lease at an opening and name one (K13).
    """
    if wish.horizon:
        return False
    if sum(len(eligible) for _, eligible in pool) >= wish.min_messages:
        return False
    oldest = min(queue.placements.published_us(eligible.min()) for queue, eligible in pool)
    return not wish.max_delay_ms or now_us - oldest < wish.max_delay_ms * 1000


def _share(pool: list[tuple[Queue, BitMap64]], messages: int, payload_bytes: int) -> list[BitMap64]:
    """Messages taken from each queue, within the bounds on messages and bytes."""
    taken = [BitMap64() for _ in pool]
    bytes_bounded = payload_bytes < _UNBOUNDED
    for equal in (True, False):
        for index, (queue, eligible) in enumerate(pool):
            rest = eligible - taken[index] if taken[index] else eligible
            among = len(pool) - index if equal else 1
            count, size = min(len(rest), -(-messages // among)), 0
            if bytes_bounded:
                count, size = queue.placements.fit(rest, count, payload_bytes // among)
            if count:
                taken[index] |= bitmaps.lowest(rest, count)
            messages -= count
            payload_bytes -= size
    return taken


def make_segments(taken: tuple[QueuePositions, ...], floor: int) -> tuple[Segment, ...]:
    """Segments of a new lease; its tags continue after `floor`."""
    made = []
    for entry in taken:
        made.append(Segment(floor + 1, entry.queue_id, entry.positions))
        floor = made[-1].last_tag
    return tuple(made)


def lease_chunks(state: State, parts: tuple[Segment, ...]) -> tuple[Chunk, ...]:
    """Chunks of a lease: cut along runs, merged to about `limits.LEASE_CHUNK_TARGET_BYTES`."""
    if not parts:
        return ()
    tags, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for segment in parts:
        queue = state.queues.get(segment.queue_id)
        if queue is not None:
            ranks, run_sizes = queue.placements.cuts(segment.positions)
            tags.append(ranks + segment.first_tag - 1)
            sizes.append(run_sizes)
    last_tags, totals = np.concatenate(tags), np.cumsum(np.concatenate(sizes))
    end = parts[-1].last_tag
    if not len(last_tags):
        return (Chunk(end, 0),)
    cuts = merge(totals, limits.LEASE_CHUNK_TARGET_BYTES, limits.MAX_LEASE_CHUNKS)
    ends = last_tags[cuts]
    # Holes at the very end belong to the last chunk.
    ends[-1] = end
    weights = np.diff(totals[cuts], prepend=0)
    return tuple(Chunk(*row) for row in zip(ends.tolist(), weights.tolist(), strict=True))


def count_messages(held: Positions) -> int:
    """Number of messages in all queues together."""
    return sum(map(len, held.values()))


def release_counts(state: State, held: Positions) -> Released:
    """Numbers of messages a requeue makes ready, and drops because of a deleted queue (Q4)."""
    lost = {i: positions for i, positions in held.items() if state.queues[i].deleted}
    return Released(count_messages(held) - count_messages(lost), count_messages(lost))


class QueueDelta(NamedTuple):
    """Effects of a record on the messages of a session's queues.

    Attributes:
        removed: Unacked messages that leave their queue.
        requeued: Unacked messages that become ready now; `delayed`: after their redelivery delay.
        rewound: Accepted messages that become ready (S14).
        leased: Ready messages that become unacked.
        dead_lettered: Ready messages that each queue gains by dead letters, by id; less its drops.
        lease: The outstanding lease after the record, and its holes.
        holes: See `lease`.
    """

    removed: Positions
    requeued: Positions
    delayed: Positions
    leased: tuple[QueuePositions, ...]
    dead_lettered: dict[int, int]
    lease: tuple[Segment, ...]
    holes: BitMap64
    rewound: Mapping[int, BitMap64] = MappingProxyType({})


def backlog_after(state: State, queue_ids: tuple[int, ...], delta: QueueDelta) -> Backlog:
    """The backlog of these queues once the record is applied."""
    ready = unacked = 0
    oldest = []
    for queue_id in queue_ids:
        queue = state.queues[queue_id]
        removed, requeued, delayed = (
            len(part.get(queue_id, ())) for part in (delta.removed, delta.requeued, delta.delayed)
        )
        leased = sum(len(entry.positions) for entry in delta.leased if entry.queue_id == queue_id)
        gained = requeued + len(delta.rewound.get(queue_id, ())) - leased
        ready += len(queue.ready) + gained + delta.dead_lettered.get(queue_id, 0)
        unacked += len(queue.unacked) - removed - requeued - delayed + leased
        oldest.append(queue.oldest_us(without=delta.removed.get(queue_id)))
    redelivered = sum(
        state.queues[s.queue_id].delivered_before(
            s.present(delta.holes),
            also=delta.requeued.get(s.queue_id, BitMap64())
            | delta.rewound.get(s.queue_id, BitMap64()),
        )
        for s in delta.lease
        if s.queue_id in state.queues
    )
    return Backlog(ready, unacked, min(filter(None, oldest), default=0), redelivered)


def remember_deliveries(lease: Lease, queue: Queue, positions: BitMap64) -> None:
    """S1: keeps the delivery counts of leased messages that are requeued, and their rewinds."""
    segment = next(part for part in lease.segments if part.queue_id == queue.queue_id)
    tags = segment.tags(positions)
    new = tags - lease.delivered.tags
    if not new:
        return
    positions, known = segment.at(new), lease.delivered
    lease.delivered = PastDeliveries(
        known.tags | new,
        _with(known.counts, new, queue.deliveries.at(positions)),
        _with(known.rewound, new, queue.rewound.at(positions)),
    )


def _with(
    known: tuple[tuple[int, BitMap64], ...], tags: BitMap64, counts: Int64s
) -> tuple[tuple[int, BitMap64], ...]:
    """The counts of more tags, added to known ones."""
    if not counts.any():
        return known
    values = bitmaps.array(tags)
    added = ((c, bitmaps.of(values[counts == c])) for c in np.unique(counts).tolist())
    return Counts.load((*known, *added)).dump()


def delivery_counts(lease: Lease, tags: Int64s, positions: BitMap64, queue: Queue) -> Int64s:
    """S1: delivery counts as first delivered, for consecutive tags of a lease."""
    return _as_first(lease, lease.delivered.counts, tags, queue.deliveries.at(positions)) + 1


def rewound(lease: Lease, tags: Int64s, positions: BitMap64, queue: Queue) -> Int64s:
    """S14: `Queue.rewound` as it was when the lease was made, for consecutive tags of it."""
    return _as_first(lease, lease.delivered.rewound, tags, queue.rewound.at(positions))


def _as_first(
    lease: Lease, past: tuple[tuple[int, BitMap64], ...], tags: Int64s, present: Int64s
) -> Int64s:
    """The present values, but past ones where the lease keeps them."""
    if lease.delivered.tags and len(tags):
        known = bitmaps.between(lease.delivered.tags, int(tags[0]), int(tags[-1]))
        present[bitmaps.array(known) - int(tags[0])] = Counts.load(past).at(known)
    return present
