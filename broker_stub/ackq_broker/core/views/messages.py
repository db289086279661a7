"""Reads of message rows: fetch of a lease (S2, S8), browse of a queue (Q5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core.checks import queue_named
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import BrowseChunk, Piece
from ackq_broker.core.sessions import checkpoint
from ackq_broker.core.sessions.holder import check_epoch, find_session, session_named
from ackq_broker.core.sessions.lease import delivery_counts, rewound
from ackq_broker.core.state.placements import Rows
from ackq_broker.core.state.state import Lease, State


def fetch(
    state: State,
    name: str,
    incarnation: str,
    epoch: int,
    after_tag: int,
    last_tag: int,
    most_pieces: int | None = None,
) -> list[Piece]:
    """S2: the rows of the tags (after_tag, last_tag], in tag order, without holes.

    With `most_pieces`, only the first pieces, up to that number.

    Raises:
        FencedError: The epoch is over (S3).
        SessionNotFoundError: The incarnation is unknown or ended.
        CheckpointMismatchError: The range is inside neither the outstanding lease nor the one
            accepted last, or the session has another name (S10).
    """
    session = find_session(state, name, incarnation)
    check_epoch(session, epoch)
    lease = checkpoint.fetched(session, after_tag, last_tag)
    if lease is None:
        return []
    return list(islice(rows_of(state, lease, lease.holes, after_tag, last_tag), most_pieces))


def lease_pieces(
    state: State,
    name: str,
    first_tag: int = 0,
    last_tag: int = 0,
    max_messages: int = 0,
    most_pieces: int | None = None,
) -> list[Piece]:
    """S8: the rows of a session's outstanding lease, without holes; SessionNotFoundError.

    For a detached session: the rows that a re-attach could lease again, overdue or not. Tags of 0
    mean the lease's first and last, `max_messages` 0 no bound. With `most_pieces`, only the first
    pieces.
    """
    session = session_named(state, name)
    lease = session.lease
    if lease is None:
        return []
    holes = lease.holes
    if session.detached:
        for segment in lease.segments:
            queue = state.queues.get(segment.queue_id)
            left = segment.positions
            if queue is not None:
                left = left - queue.still_ready(left)
            holes = holes | segment.tags(left)
    first = max(first_tag, lease.floor + 1)
    last = min(last_tag or session.end, session.end)
    if max_messages and first <= last:
        there = bitmaps.lowest(bitmaps.span(first, last) - holes, max_messages)
        last = there.max() if there else first - 1
    return list(islice(rows_of(state, lease, holes, first - 1, last), most_pieces))


def plan_browse(state: State, name: str) -> tuple[BrowseChunk, ...]:
    """Q5: chunks of a queue for a parallel browse; raises QueueNotFoundError."""
    queue = queue_named(state, name)
    return queue.placements.browse_chunks(
        queue.present, limits.LEASE_CHUNK_TARGET_BYTES, limits.MAX_LEASE_CHUNKS
    )


def browse(
    state: State,
    name: str,
    first: int = 0,
    last: int = 0,
    max_messages: int = 0,
    most_pieces: int | None = None,
) -> list[Piece]:
    """Q5: the rows at the positions first..last, in any state; raises QueueNotFoundError.

    A `last` of 0 means the tail, a `max_messages` of 0 no bound. With `most_pieces`, only the first
    pieces. The delivery count is that of the present delivery for leased messages, and of the next
    one for waiting messages.
    """
    queue = queue_named(state, name)
    last = last or queue.next_position
    unacked = bitmaps.between(queue.unacked, first, last)
    positions = bitmaps.between(queue.ready | queue.delayed, first, last) | unacked
    if max_messages:
        positions = bitmaps.lowest(positions, max_messages)
        unacked &= positions
    values = bitmaps.array(positions)
    leased = np.zeros(len(values), np.bool_)
    leased[np.searchsorted(values, bitmaps.array(unacked))] = True
    rows = Rows(values, values, queue.delivery_counts(positions), leased)
    return list(islice(queue.pieces(rows), most_pieces))


def tail(state: State, name: str) -> int:
    """The position of the newest message of a queue; raises QueueNotFoundError."""
    return queue_named(state, name).next_position - 1


def outstanding(state: State, channel_id: bytes) -> BitMap64:
    """The tags that a channel has not settled; none for an unknown channel."""
    channel = state.channels.get(channel_id)
    return channel.outstanding() if channel is not None else BitMap64()


def rows_of(
    state: State, lease: Lease, holes: BitMap64, after_tag: int, last_tag: int
) -> Iterator[Piece]:
    """Yields the rows of the tags (after_tag, last_tag] of a lease, without holes."""
    for segment in lease.segments:
        after = max(after_tag + 1, segment.first_tag)
        last = min(last_tag, segment.last_tag)
        queue = state.queues.get(segment.queue_id)
        if after > last or queue is None:
            continue
        positions = bitmaps.ranked(
            segment.positions, after - segment.first_tag, last + 1 - segment.first_tag
        )
        tags = np.arange(after, last + 1)
        counts = delivery_counts(lease, tags, positions, queue)
        gone = bitmaps.array(bitmaps.between(holes, after, last)) - after
        present = np.delete(bitmaps.array(positions), gone)
        rows = Rows(
            present, np.delete(tags, gone), np.delete(counts, gone), np.ones(len(present), np.bool_)
        )
        if queue.rewound or lease.delivered.rewound:
            then = np.delete(rewound(lease, tags, positions, queue), gone)
            rows = rows._replace(rewound=then)
        yield from queue.pieces(rows)
