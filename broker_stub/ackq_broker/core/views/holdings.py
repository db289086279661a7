"""Holders of a queue's messages, and messages that wait for something but a consumer (Q9).

Invariant: every unacked message of a queue is in exactly one holding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core.checks import queue_named
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import HoldingInfo, Waiting
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import Session, State


class Keeper(NamedTuple):
    """A session by its name, or else a channel by its id, that holds messages of a queue."""

    session: str = ""
    channel_id: bytes = b""


def keepers(state: State, name: str, position: int = 0) -> list[Keeper]:
    """Holders of a queue's messages: sessions by name, then channels, the oldest channel first.

    With a position, only the holder of the message at that position. A session is also listed when
    everything that it leases of the queue is holes. Raises QueueNotFoundError.
    """
    queue = queue_named(state, name)
    found = [
        Keeper(session)
        for session in sorted(queue.sessions)
        if _leases(state.sessions[session], queue.queue_id)
    ]
    found += [
        Keeper(channel_id=channel_id)
        for channel_id, channel in state.channels.items()
        if queue.queue_id in channel.unacked
    ]
    if not position:
        return found
    if position not in queue.unacked:
        return []
    return [keeper for keeper in found if position in _held(state, queue, keeper)[0]]


def holding(state: State, name: str, keeper: Keeper, position: int = 0) -> HoldingInfo | None:
    """The messages of a queue that one of the `keepers` holds; None if it no longer holds any.

    With a position, `first_tag` is the tag of that message. The cost grows with the messages: a
    million take 10 ms. Raises QueueNotFoundError.
    """
    queue = queue_named(state, name)
    held, since_us = _held(state, queue, keeper)
    if not held:
        return None
    first = held.min()
    return HoldingInfo(
        session=keeper.session,
        channel_id=keeper.channel_id,
        messages=len(held),
        payload_bytes=queue.placements.size(held),
        blocks=queue.placements.blocks_of(held),
        first_position=first,
        last_position=held.max(),
        since_us=since_us,
        oldest_us=queue.placements.published_us(first),
        first_tag=_tag(state, queue, keeper, position),
    )


def waiting_messages(state: State, name: str) -> Waiting:
    """Messages of a queue that wait for something but a consumer; raises QueueNotFoundError."""
    queue = queue_named(state, name)
    failures = queue.failures.at(queue.failures.positions())
    oldest = [found.min() for found in (queue.ready, queue.delayed, queue.unacked) if found]
    return Waiting(
        next_ready_us=queue.delays.first(queue.delayed),
        next_expiry_us=queue.expiries.first(queue.ready, queue.delayed, queue.unacked),
        staged_bytes=queue.staged_bytes,
        most_failures=int(failures.max()) if len(failures) else 0,
        oldest_position=min(oldest, default=0),
    )


def _leases(session: Session, queue_id: int) -> bool:
    """Whether a session has a lease with tags of a queue."""
    lease = session.lease if not session.detached else None
    return lease is not None and any(part.queue_id == queue_id for part in lease.segments)


def _held(state: State, queue: Queue, keeper: Keeper) -> tuple[BitMap64, int]:
    """The positions that a keeper holds, and since when, which is not known (0) for a channel."""
    if keeper.session:
        session = state.sessions.get(keeper.session)
        if session is None or session.lease is None:
            return BitMap64(), 0
        return session.held().get(queue.queue_id, BitMap64()), session.lease.leased_us
    channel = state.channels.get(keeper.channel_id)
    run = channel.unacked.get(queue.queue_id) if channel is not None else None
    return (run.positions(run.tags) if run is not None and run.tags else BitMap64()), 0


def _tag(state: State, queue: Queue, keeper: Keeper, position: int) -> int:
    """The tag of a message that a keeper holds, for position 0 its lowest tag; 0: not held."""
    if keeper.session:
        lease = state.sessions[keeper.session].lease
        parts = lease.segments if lease is not None else ()
        (part,) = (part for part in parts if part.queue_id == queue.queue_id)
        return max(part.tags(BitMap64((position,))), default=0) if position else part.first_tag
    run = state.channels[keeper.channel_id].unacked[queue.queue_id]
    if not position:
        return int(run.tags.min())
    tags = bitmaps.array(run.tags)
    # Positions need not ascend with the tags of a channel: some may have been requeued.
    at = np.flatnonzero(run.each_position(tags) == position)
    return int(tags[at[0]]) if len(at) else 0
