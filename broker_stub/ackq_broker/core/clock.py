"""The broker's time set back, after a clock that was ahead (Q8).

What was to come waits as long as it still had to, and what happened in the time that never came
happened now. Invariant: the order of instants stays, but for those that are the same afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ackq_broker.core import commands, records
from ackq_broker.core.commands import Decision
from ackq_broker.core.state.state import StagedRows, State


def set_back(_state: State, command: commands.SetClock, now_us: int) -> Decision:
    """Sets the broker's time back; does nothing when it is not ahead."""
    back_us = now_us - command.to_us
    if back_us <= 0:
        return Decision(reply=0)
    return Decision((records.ClockSet(command.to_us, back_us),), back_us)


def apply_clock_set(state: State, _sequence: int, record: records.ClockSet) -> None:
    """Moves every instant that a timer, a retention or an age is counted from."""

    def moved(instant_us: int) -> int:
        return (
            instant_us
            if instant_us <= record.at_us
            else max(record.at_us, instant_us - record.back_us)
        )

    for queue_id in tuple(state.queues):
        state.queues[queue_id].set_clock_back(record.at_us, record.back_us)
    for publisher_id in tuple(state.publishers):
        publisher = state.publishers[publisher_id]
        publisher.closed_us = moved(publisher.closed_us)
        if publisher.transaction is not None:
            publisher.transaction.blocks = _staged(publisher.transaction.blocks, moved)
    for stage_id in tuple(state.stages):
        stage = state.stages[stage_id]
        stage.touched_us = moved(stage.touched_us)
        stage.blocks = _staged(stage.blocks, moved)
    for name in tuple(state.writers):
        state.writers[name].touched_us = moved(state.writers[name].touched_us)
    for name in tuple(state.sessions):
        session = state.sessions[name]
        session.opened_us = moved(session.opened_us)
        session.holder = msgspec.structs.replace(
            session.holder, since_us=moved(session.holder.since_us)
        )
        for lease in session.leases():
            lease.leased_us, lease.accepted_us = moved(lease.leased_us), moved(lease.accepted_us)
    for name in tuple(state.links):
        link = state.links[name]
        link.set_clock_back(record.at_us, record.back_us)
        link.holder = msgspec.structs.replace(link.holder, since_us=moved(link.holder.since_us))


def _staged(blocks: list[StagedRows], moved: Callable[[int], int]) -> list[StagedRows]:
    """The rows of staged blocks with the expiries that their messages came with, moved."""
    return [
        msgspec.structs.replace(
            block,
            parts=tuple(
                msgspec.structs.replace(
                    part,
                    expiries=tuple(
                        each._replace(expires_us=moved(each.expires_us)) for each in part.expiries
                    ),
                )
                for part in block.parts
            ),
        )
        for block in blocks
    ]
