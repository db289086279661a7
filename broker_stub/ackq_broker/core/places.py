"""Where a row of a block is: the queues and positions at which it is a message (Q9)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.state.state import Session, State

# States of a message; what is gone has none.
READY, DELAYED, UNACKED, KEPT, GONE = "ready", "delayed", "unacked", "accepted", "gone"


class Place(NamedTuple):
    """A position of a queue, and since when the message has been visible there."""

    queue_id: int
    position: int
    published_us: int


def places(state: State, block_id: int, row: int) -> list[Place]:
    """Where a row of a block is a message, or is kept for a replay."""
    sought = np.array((block_id,), np.int64)
    found = []
    for queue in state.queues.values():
        for run in queue.placements.runs_in(sought):
            first = int(run["first"])
            whole = bitmaps.span(first, first + int(run["count"]) - 1)
            rows = queue.placements.rows_of(run, whole)
            if row in rows:
                position = first + rows.rank(row) - 1
                if state_at(state, queue.queue_id, position) != GONE:
                    found.append(Place(queue.queue_id, position, int(run["published_us"])))
    return found


def state_at(state: State, queue_id: int, position: int) -> str:
    """The state of the message at a position of a queue: `READY` to `GONE`."""
    queue = state.queues.get(queue_id)
    if queue is None:
        return GONE
    of_state = {
        READY: queue.ready,
        DELAYED: queue.delayed,
        UNACKED: queue.unacked,
        KEPT: queue.kept,
    }
    return next((name for name, those in of_state.items() if position in those), GONE)


def holder_at(state: State, queue_id: int, position: int) -> tuple[str, int] | None:
    """Who has the message at a position unacked, in words, and its tag there; None: nobody."""
    queue = state.queues.get(queue_id)
    for name in sorted(queue.sessions) if queue is not None else ():
        tag = _leased(state.sessions[name], queue_id, position)
        if tag:
            return f"session '{name}'", tag
    for channel_id, channel in state.channels.items():
        run = channel.unacked.get(queue_id)
        if run is not None and run.tags:
            tags = bitmaps.array(run.tags)
            at = np.flatnonzero(run.each_position(tags) == position)
            if len(at):
                return f"channel {channel_id.hex()[:8]}", int(tags[at[0]])
    return None


def _leased(session: Session, queue_id: int, position: int) -> int:
    """The tag under which a session leases a message; 0: it does not."""
    lease = session.lease
    if lease is None or session.detached:
        return 0
    for segment in lease.segments:
        if segment.queue_id == queue_id and position in segment.positions:
            tag = segment.first_tag + segment.positions.rank(position) - 1
            return 0 if tag in lease.holes else tag
    return 0
