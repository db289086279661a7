"""Cleanup at start (Q7) and by retention (P10, K2, K3, S9)."""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core import commands, history, records
from ackq_broker.core.commands import Decision
from ackq_broker.core.consuming import channels
from ackq_broker.core.links import holder as link_holder
from ackq_broker.core.publishing import publishers, writer_batches, writers
from ackq_broker.core.queues import retention as queue_retention
from ackq_broker.core.queues.topology import detach_queue, drop_exchange, forget_if_drained
from ackq_broker.core.sessions import advance, retention
from ackq_broker.core.sessions.holder import FORGOTTEN
from ackq_broker.core.state.queue import Gone, Queue
from ackq_broker.core.state.signals import Totals
from ackq_broker.core.state.state import State

_SECOND_US: Final = 1_000_000


def start(state: State, command: commands.Start, now_us: int) -> Decision:
    """Q7: decides the first command of a process: drops transient and lost messages."""
    lost_blocks = command.lost_blocks & state.blocks.live()
    vanished, lost = 0, []
    for queue in state.queues.values():
        missing = _lost(queue, lost_blocks)
        vanished += len(_transient(queue) - queue.kept - missing)
        if missing:
            lost.append((queue.name, len(missing)))
    stages = len(_torn(state, lost_blocks))
    record = records.Started(command.history_id, now_us, command.cause, lost_blocks)
    return Decision((record,), commands.Started(vanished, tuple(sorted(lost)), stages))


def apply_started(state: State, sequence: int, record: records.Started) -> None:
    """Drops messages, non-durable topology, uploads, streams and channels lost in a restart."""
    known = state.histories
    history.begin(state, record.history_id, record.cause, record.at_us)
    state.signals.started_us = record.at_us
    state.signals.departed = Totals()
    state.signals.dead_letters.clear()
    for channel_id in sorted(state.channels):
        channels.end_channel(state, channel_id, sequence)
    vanished: dict[int, BitMap64] = {}
    unsettled: dict[int, BitMap64] = {}
    for queue in tuple(state.queues.values()):
        queue.count_anew()
        lost = _lost(queue, record.lost_blocks)
        queue.dropped += len(lost)
        if lost:
            unsettled[queue.queue_id] = lost
        positions = _transient(queue) | lost
        if record.lost_blocks:
            positions |= queue.placements.of_blocks(record.lost_blocks) & queue.kept
        vanished[queue.queue_id] = positions
        state.blocks.release(queue.vanish(positions))
        if not queue.properties.durable:
            detach_queue(state, queue)
        forget_if_drained(state, queue)
    state.signals.before = state.signals.departed.copy()
    for queue in state.queues.values():
        state.signals.before.update(queue.totals())
    _make_holes(state, vanished)
    began = state.histories != known
    link_holder.end_subscriptions(state, unsettled, record.at_us, new_history=began)
    for name in [e.name for e in state.exchanges.values() if not e.durable]:
        drop_exchange(state, name)
    for publisher in state.publishers.values():
        publisher.transient.clear()
        publishers.end_stream(state, publisher, record.at_us)
    unsealed = {stage.stage_id for stage in state.stages.values() if not stage.sealed}
    unsealed |= _torn(state, record.lost_blocks)
    writer_batches.drop_stages(state, tuple(sorted(unsealed)))
    state.topology_sequence = sequence


def housekeep(state: State, command: commands.Housekeep, now_us: int) -> Decision:
    """P10, K2, K3, S9: drops objects past their retention, and writers that are done.

    An unproven session that holds a lease stays: under Trigger.Once a checkpoint may name it and
    return next week.
    """
    publishers = tuple(
        sorted(
            publisher.publisher_id
            for publisher in state.publishers.values()
            if publisher.closed_us
            and now_us - publisher.closed_us > limits.PUBLISHER_RETENTION_S * _SECOND_US
        )
    )
    stages = writers.abandoned_stages(state, now_us)
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
    lapsed = retention.lapsed(state, now_us)
    done = writers.done(state, now_us)
    queues = queue_retention.lapsed(state, now_us)
    if not (publishers or stages or unproven or lapsed or done or queues):
        return Decision()
    kept = tuple(lapsed), done, tuple(lapsed.values()), queues
    return Decision((records.Expired(publishers, stages, unproven, now_us, *kept),))


def apply_expired(state: State, sequence: int, record: records.Expired) -> None:
    """Removes the objects that are past their retention."""
    for publisher_id in record.publishers:
        publishers.forget(state, publisher_id)
    writer_batches.drop_stages(state, record.stages)
    for name, leases in zip_longest(record.replays, record.leases):
        session = state.sessions[name]
        retention.release(state, session, len(session.kept) if leases is None else leases)
    for queue_id, until_us in record.retained:
        queue = state.queues[queue_id]
        ended = queue.retained.end(until_us, record.at_us)
        state.blocks.release(queue.release_kept(ended))
    for name in record.sessions:
        advance.end(state, state.sessions[name], sequence, FORGOTTEN, record.at_us)
    for name in record.writers:
        del state.writers[name]


def _transient(queue: Queue) -> BitMap64:
    """The messages of a queue that a restart drops (Q7)."""
    present = queue.present | queue.kept
    if not queue.properties.durable:
        return present
    return present & (queue.placements.transient() | queue.transient_rows)


def _lost(queue: Queue, blocks: BitMap64) -> BitMap64:
    """The messages of a queue in these blocks, except those only kept for a replay."""
    if not blocks:
        return BitMap64()
    return queue.placements.of_blocks(blocks) & queue.present


def _torn(state: State, blocks: BitMap64) -> set[bytes]:
    """The sealed stages with rows in these blocks: without them a batch is incomplete (K3)."""
    return {
        stage.stage_id
        for stage in state.stages.values()
        if stage.sealed and any(block.block_id in blocks for block in stage.blocks)
    }


def _make_holes(state: State, vanished: dict[int, BitMap64]) -> None:
    """S5: makes the tags of vanished messages holes."""
    for session in state.sessions.values():
        for lease in (*filter(None, (session.lease,)), *session.kept):
            for segment in lease.segments:
                if vanished.get(segment.queue_id):
                    lease.add_holes(segment.tags(vanished[segment.queue_id]), Gone.VANISHED)
