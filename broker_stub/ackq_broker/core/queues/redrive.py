"""Redrive: dead letters move back to the queues they came from, or to another (Q6).

Invariant: one record moves at most `MOST_REDRIVEN` of them.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from ackq.errors import InvalidArgumentError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import queue_named
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Decision
from ackq_broker.core.queues import dead_letters, enqueue
from ackq_broker.core.queues.bounds import room
from ackq_broker.core.queues.dead_letters import Cause, RemovalPlan
from ackq_broker.core.state.origins import DeadLetterOrigin
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State

# Messages that one record moves: some 1 us for a block each, 6 us for scattered rows of it, between
# which other commands must get their turn.
MOST_REDRIVEN: Final = 10_000

# The causes of dead letters.
_DEATHS: Final = (Cause.REJECTED.value, Cause.EXPIRED.value, Cause.DELIVERY_LIMIT.value)


def redrive(state: State, command: commands.Redrive, now_us: int) -> Decision:
    """Q6: moves dead letters in one record, lowest positions first, as far as targets have room."""
    queue = queue_named(state, command.queue)
    target = _target(state, command)
    last = command.last or queue.next_position - 1
    ready = bitmaps.between(queue.available(now_us), command.first, last)
    wanted_count = 0
    homes: dict[int, BitMap64] = {}
    for origin, positions in queue.origins.groups(ready):
        if not _is_wanted(origin, command):
            continue
        wanted_count += len(positions)
        home = _home(state, origin) if target is None or origin is None else target
        if home is not None and home is not queue:
            homes.setdefault(home.queue_id, BitMap64()).update(positions)
    fitting = {to: _fitting(state, queue, to, those) for to, those in homes.items()}
    movable = BitMap64.union(BitMap64(), *fitting.values())
    wanted = min(command.max_messages or len(movable), len(movable))
    chosen = bitmaps.lowest(movable, min(wanted, MOST_REDRIVEN))
    plan = RemovalPlan(state)
    for to, positions in fitting.items():
        moving = positions & chosen
        if moving:
            plan.move(queue, moving, to, Cause.REDRIVEN)
    more = bool(plan.moves) and wanted > MOST_REDRIVEN
    reply = commands.Redriven(plan.moved, wanted_count - plan.moved, more, last)
    if not plan.moves:
        return Decision(reply=reply)
    return Decision((records.Redriven(tuple(plan.moves), now_us, plan.drops()),), reply)


def apply_redriven(state: State, sequence: int, record: records.Redriven) -> None:
    """Moves the messages, which are then no longer dead letters."""
    dead_letters.apply_moves(state, sequence, record.moves, record.at_us)
    enqueue.drop_heads(state, record.drops)


def _fitting(state: State, queue: Queue, to: int, positions: BitMap64) -> BitMap64:
    """The lowest of these positions of the queue, as many as the target queue has room for."""
    left = room(state.queues[to])
    count, _ = queue.placements.fit(positions, left.messages, left.payload_bytes)
    return bitmaps.lowest(positions, count)


def _target(state: State, command: commands.Redrive) -> Queue | None:
    """The target queue that the command names; None if it names none."""
    if command.cause not in ("", *_DEATHS):
        raise InvalidArgumentError(
            f"'{command.cause}' is not a cause of dead letters. Causes: {', '.join(_DEATHS)}.",
            cause=command.cause,
        )
    if not command.to_queue:
        return None
    if command.to_queue == command.queue:
        raise InvalidArgumentError(
            f"The messages of queue '{command.queue}' are already in it. Name another target "
            "queue, or none to move each message to the queue it came from.",
            queue=command.queue,
        )
    return queue_named(state, command.to_queue)


def _is_wanted(origin: DeadLetterOrigin | None, command: commands.Redrive) -> bool:
    """Whether messages of this origin have the cause and the reason that the command names."""
    if origin is None:
        return not (command.cause or command.reason)
    return command.cause in ("", origin.cause) and command.reason in ("", origin.reason)


def _home(state: State, origin: DeadLetterOrigin | None) -> Queue | None:
    """The queue that dead letters came from: by its id, else by its name."""
    if origin is None:
        return None
    queue = state.queues.get(origin.queue_id)
    if queue is not None and not queue.deleted:
        return queue
    queue_id = state.queue_ids.get(origin.queue)
    return state.queues[queue_id] if queue_id is not None else None
