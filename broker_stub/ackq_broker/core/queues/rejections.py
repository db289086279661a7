"""Rejections that go to the other broker instead of a dead-letter queue here (L28, `on-reject`).

Invariant: what goes there was never permitted to be acknowledged there (L10), so the other broker
still has it; everything else is dead-lettered here, where its only copy is.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from ackq_broker.core.checks import BUILT_IN_DEAD
from ackq_broker.core.records import RejectedThere
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State


def dead_letter_queue(state: State, queue: Queue) -> str:
    """The name of the dead-letter queue of a queue; empty: it has none.

    A link that rejects there gives it the built-in one, for what it has acknowledged before.
    """
    if queue.properties.dead_letter_queue:
        return queue.properties.dead_letter_queue
    there = any(state.links[name].reject_there for name in queue.links)
    return BUILT_IN_DEAD if there else ""


def rejectable_there(state: State, queue: Queue, positions: BitMap64) -> BitMap64:
    """Those of some positions of a queue whose rejection here is to be one at the other broker."""
    found = BitMap64()
    for name in queue.links:
        link = state.links[name]
        if link.reject_there:
            found |= link.never_permitted(positions)
    return found


def note_rejected(state: State, rejections: Iterable[RejectedThere]) -> None:
    """Counts messages that a record rejects, and gives their entries that outcome (L10).

    In the counts of their queue they are dead letters of their cause, though of another broker.
    """
    for each in rejections:
        queue, count = state.queues[each.queue_id], len(each.positions)
        for name in queue.links:
            state.links[name].reject(each.positions)
        queue.dead_lettered += count
        queue.dead_letters[each.cause] = queue.dead_letters.get(each.cause, 0) + count
        state.signals.dead_letters[queue.name, each.cause] += count
