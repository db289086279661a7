"""Timers: messages expire (Q3), redelivery delays end (C14), unused queues are deleted (Q3)."""

from __future__ import annotations

from typing import Final

from ackq_broker.core import commands, records
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Decision
from ackq_broker.core.fields import DueMessages
from ackq_broker.core.queues import dead_letters, enqueue
from ackq_broker.core.queues.dead_letters import Cause, RemovalPlan
from ackq_broker.core.state.queue import Gone
from ackq_broker.core.state.state import State

# Messages that one tick moves to dead-letter queues: some 1 us for a block each, 6 us for scattered
# rows of it, between which other queues must get their turn. The rest is still due.
MOST_DEAD_LETTERED: Final = 4_096


def next_due_us(state: State) -> int:
    """The next instant at which a message or a queue is due for a tick; 0 for never."""
    return state.signals.next_due_us(lambda queue_id: _next_of(state, queue_id))


def tick(state: State, _command: commands.Tick, now_us: int) -> Decision:
    """Q3, C14: decides all that is due by now, with at most `MOST_DEAD_LETTERED` dead letters."""
    plan = RemovalPlan(state)
    left = MOST_DEAD_LETTERED
    queues: list[DueMessages] = []
    unused: list[records.QueueDeleted] = []
    deleted: list[str] = []
    for queue_id in state.signals.due(now_us, lambda queue_id: _next_of(state, queue_id)):
        queue = state.queues[queue_id]
        if queue.unused(now_us):
            unused.append(records.QueueDeleted(queue_id))
            deleted.append(queue.name)
        elif queue.ticks(now_us):
            expired = overdue = queue.overdue(now_us)
            matured = queue.matured(now_us) - overdue
            if not queue.properties.dead_letter_queue:
                plan.remove(queue, expired)
            elif left or matured:
                expired = bitmaps.lowest(overdue, left)
                left -= len(expired)
                plan.dead_letter(queue, expired, Cause.EXPIRED)
            else:
                continue
            plan.requeue(queue, matured)
            queues.append(DueMessages(queue_id, expired, matured))
    record = records.Ticked(
        at_us=now_us,
        queues=tuple(queues),
        **plan.effects(),
    )
    reply = commands.Ticked(
        expired=sum(len(due.expired) for due in queues),
        dead_lettered=plan.moved,
        matured=sum(len(due.matured) for due in queues),
        deleted=tuple(deleted),
    )
    ticked = (*plan.declared, record) if queues else ()
    return Decision((*ticked, *unused), reply)


def apply_ticked(state: State, sequence: int, record: records.Ticked) -> None:
    """Removes expired messages, and makes messages ready whose delay has ended."""
    expired = {}
    for due in record.queues:
        queue = state.queues[due.queue_id]
        queue.tick(record.at_us)
        queue.expired += len(due.expired)
        queue.mature(due.matured, sequence)
        expired[due.queue_id] = due.expired.copy()
    dead_letters.apply_removals(state, sequence, record, expired)
    for queue_id, positions in expired.items():
        queue = state.queues[queue_id]
        queue.dropped += len(positions)
        state.blocks.release(queue.drop(positions, Gone.EXPIRED))
    enqueue.drop_heads(state, record.drops)


def _next_of(state: State, queue_id: int) -> int:
    queue = state.queues.get(queue_id)
    return queue.next_due_us() if queue is not None else 0
