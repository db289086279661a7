"""What ends unasked: transient messages at a restart (Q7), what outlived its retention (P10)."""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core import commands, consuming, publishers, records, sessions, staging
from ackq_broker.core.commands import Decision
from ackq_broker.core.queues import Queue
from ackq_broker.core.state import State
from ackq_broker.core.topology import detach_queue, drop_exchange, forget_if_drained

_SECOND_US: Final = 1_000_000


def start(state: State, command: commands.Start, now_us: int) -> Decision:
    """Q7: the first command of a process: what was transient is gone."""
    vanished = sum(len(_gone(queue) - queue.kept) for queue in state.queues.values())
    return Decision((records.Started(command.history_id, now_us),), commands.Started(vanished))


def apply_started(state: State, sequence: int, record: records.Started) -> None:
    """Drops transient messages, non-durable topology, unfinished uploads, streams and channels."""
    state.history_id = record.history_id
    state.signals.started_us = record.at_us
    for channel_id in sorted(state.channels):
        consuming.end_channel(state, channel_id, sequence)
    vanished = {queue.queue_id: _gone(queue) for queue in state.queues.values()}
    for queue_id, positions in vanished.items():
        queue = state.queues[queue_id]
        state.blocks.release(queue.vanish(positions))
        if not queue.properties.durable:
            detach_queue(state, queue)
        forget_if_drained(state, queue)
    _make_holes(state, vanished)
    for name in [e.name for e in state.exchanges.values() if not e.durable]:
        drop_exchange(state, name)
    for publisher in state.publishers.values():
        publisher.transient.clear()
        publishers.end_stream(state, publisher, record.at_us)
    unsealed = (stage.stage_id for stage in state.stages.values() if not stage.sealed)
    staging.drop_stages(state, tuple(sorted(unsealed)))
    state.topology_sequence = sequence


def housekeep(state: State, command: commands.Housekeep, now_us: int) -> Decision:
    """P10, K2, K3, S9: drops what is past its retention.

    An unproven session that holds a lease stays: under Trigger.Once a checkpoint may name it and
    come back next week.
    """
    publishers = tuple(
        sorted(
            publisher.publisher_id
            for publisher in state.publishers.values()
            if publisher.closed_us
            and now_us - publisher.closed_us > limits.PUBLISHER_RETENTION_S * _SECOND_US
        )
    )
    stages = tuple(
        sorted(
            stage.stage_id
            for stage in state.stages.values()
            if now_us - stage.touched_us > limits.STAGE_RETENTION_S * _SECOND_US
        )
    )
    unproven = tuple(
        sorted(
            session.name
            for session in state.sessions.values()
            if not session.proven
            and session.lease is None
            and session.name not in command.live_sessions
            and now_us - session.opened_us > limits.UNPROVEN_RETENTION_S * _SECOND_US
        )
    )
    replays = tuple(
        sorted(
            session.name
            for session in state.sessions.values()
            if session.kept is not None
            and now_us - session.kept.accepted_us > limits.REPLAY_RETENTION_S * _SECOND_US
        )
    )
    if not (publishers or stages or unproven or replays):
        return Decision()
    return Decision((records.Expired(publishers, stages, unproven, now_us, replays),))


def apply_expired(state: State, sequence: int, record: records.Expired) -> None:
    """Takes all of it away."""
    for publisher_id in record.publishers:
        del state.publishers[publisher_id]
    staging.drop_stages(state, record.stages)
    for name in record.replays:
        sessions.let_go(state, state.sessions[name])
    for name in record.sessions:
        how = "forgotten, because no checkpoint came back with it in time,"
        sessions.end(state, state.sessions[name], sequence, how, record.at_us)


def _gone(queue: Queue) -> BitMap64:
    """The messages of a queue that a restart takes."""
    present = queue.present | queue.kept
    if not queue.properties.durable:
        return present
    return present & (queue.placements.transient() | queue.passing)


def _make_holes(state: State, vanished: dict[int, BitMap64]) -> None:
    """S5: the tags of messages that are gone become holes for ever."""
    for session in state.sessions.values():
        for lease in filter(None, (session.lease, session.kept)):
            for segment in lease.segments:
                if vanished.get(segment.queue_id):
                    lease.holes |= segment.tags(vanished[segment.queue_id])
