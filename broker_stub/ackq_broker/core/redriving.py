"""Dead letters go back to where they came from (Q6)."""

from __future__ import annotations

from pyroaring import BitMap64

from ackq_broker.core import bitmaps, commands, dead_letters, placing, records
from ackq_broker.core.admission import Load, room
from ackq_broker.core.commands import Decision
from ackq_broker.core.dead_letters import Cause, Departures
from ackq_broker.core.names import queue_named
from ackq_broker.core.origins import Death
from ackq_broker.core.queues import Queue
from ackq_broker.core.state import State


def redrive(state: State, command: commands.Redrive, now_us: int) -> Decision:
    """Q6: in one record, the lowest positions first, as far as the original queues have room."""
    queue = queue_named(state, command.queue)
    ready = bitmaps.between(
        queue.available(now_us), command.first, command.last or queue.next_position
    )
    homes: dict[int, BitMap64] = {}
    for death, positions in queue.origins.groups(ready):
        home = _home(state, death)
        if home is not None and home is not queue:
            homes.setdefault(home.queue_id, BitMap64()).update(positions)
    wanted = BitMap64.union(BitMap64(), *homes.values())
    wanted = bitmaps.lowest(wanted, command.max_messages or len(wanted))
    plan = Departures(state)
    for queue_id, positions in homes.items():
        chosen = positions & wanted
        size = Load(len(chosen), queue.placements.size(chosen))
        fitting = bitmaps.lowest(chosen, room(state.queues[queue_id], size))
        if fitting:
            plan.move(queue, fitting, queue_id, Cause.REDRIVEN)
    reply = commands.Redriven(plan.moved, len(ready) - plan.moved)
    if not plan.moves:
        return Decision(reply=reply)
    return Decision((records.Redriven(tuple(plan.moves), now_us, plan.drops()),), reply)


def apply_redriven(state: State, sequence: int, record: records.Redriven) -> None:
    """Moves the messages, which are dead letters no more."""
    dead_letters.apply_moves(state, sequence, record.moves, record.at_us)
    placing.drop_heads(state, record.drops)


def _home(state: State, death: Death | None) -> Queue | None:
    """The queue that messages died in: by its id, else by its name."""
    if death is None:
        return None
    queue = state.queues.get(death.queue_id)
    if queue is not None and not queue.deleted:
        return queue
    queue_id = state.queue_ids.get(death.queue)
    return state.queues[queue_id] if queue_id is not None else None
