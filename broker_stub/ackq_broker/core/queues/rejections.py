"""Rejections forwarded to the remote broker, not to a local dead-letter queue (L28, `on-reject`).

Invariant: a forwarded message was never permitted to be acknowledged at the remote broker (L10),
which therefore still has it; any other message is dead-lettered locally, where its only copy is.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from ackq_broker.core.checks import BUILT_IN_DEAD
from ackq_broker.core.fields import RejectedThere
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State


def dead_letter_queue(state: State, queue: Queue) -> str:
    """The name of the dead-letter queue of a queue; empty if it has none.

    A queue of a link that rejects at the remote broker has the built-in one, for messages that the
    link has acknowledged before.
    """
    if queue.properties.dead_letter_queue:
        return queue.properties.dead_letter_queue
    there = any(state.links[name].reject_there for name in queue.links)
    return BUILT_IN_DEAD if there else ""


def rejectable_there(state: State, queue: Queue, positions: BitMap64) -> BitMap64:
    """The positions whose rejection is forwarded to the remote broker."""
    found = BitMap64()
    for name in queue.links:
        link = state.links[name]
        if link.reject_there:
            found |= link.never_permitted(positions)
    return found


def note_rejected(state: State, rejections: Iterable[RejectedThere]) -> None:
    """Counts messages rejected at the remote broker, and notes it in their links' entries (L10).

    Their queue counts them as dead letters of their cause, though the remote broker has them.
    """
    for each in rejections:
        queue, count = state.queues[each.queue_id], len(each.positions)
        for name in queue.links:
            state.links[name].reject(each.positions)
        queue.dead_lettered += count
        queue.dead_letters[each.cause] = queue.dead_letters.get(each.cause, 0) + count
        state.signals.dead_letters[queue.name, each.cause] += count
