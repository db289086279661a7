"""Channels (C): messages are delivered under tags, settled by tag, and requeued at the end.

Invariant: an unacked position is held by one channel or one session; it leaves the unacked ones in
exactly the record that settles its tag or ends its holder (C12).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from pyroaring import BitMap64

from ackq.errors import UnknownDeliveryTagError
from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import commands, records
from ackq_broker.core.checks import check_duration, queue_named
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands import Decision, Delivery, MessageIdentity, Piece, Settlement
from ackq_broker.core.fields import Delay
from ackq_broker.core.queues import dead_letters, enqueue, redelivery
from ackq_broker.core.queues.dead_letters import RemovalPlan
from ackq_broker.core.queues.topology import forget_if_drained, requeue
from ackq_broker.core.state.channel import ChannelTags
from ackq_broker.core.state.placements import Rows
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State

_NO_CHANNEL = ChannelTags()


def deliver(state: State, command: commands.Deliver, now_us: int) -> Decision:
    """C1, C7: delivers the lowest ready positions of a queue under the channel's next tags."""
    assert command.max_messages > 0
    queue = queue_named(state, command.queue)
    queue.use()
    first_tag = state.channels.get(command.channel_id, _NO_CHANNEL).next_tag
    positions = _choose(queue, command, now_us)
    if not positions:
        return Decision(reply=Delivery(first_tag, 0, 0, ()))
    tags = np.arange(first_tag, first_tag + len(positions))
    rows = Rows(
        bitmaps.array(positions),
        tags,
        queue.delivery_counts(positions),
        np.ones(len(tags), np.bool_),
    )
    pieces = tuple(queue.pieces(rows))
    if command.identified:
        pieces = tuple(_identified(pieces, rows.positions, state.history_id, queue.queue_id))
    if command.no_ack:
        state.blocks.pin(piece.block_id for piece in pieces)
    reply = Delivery(first_tag, len(tags), queue.placements.size(positions), pieces)
    record = records.Delivered(
        command.channel_id, queue.queue_id, positions, now_us, command.no_ack
    )
    return Decision((record,), reply)


def _identified(
    pieces: Iterable[Piece], positions: Int64s, history_id: str, queue_id: int
) -> Iterator[Piece]:
    """Adds to pieces the identity of their rows, whose positions are given in order."""
    at = 0
    for piece in pieces:
        end = at + sum(run.rows for run in piece.runs)
        yield piece._replace(identity=MessageIdentity(history_id, queue_id, positions[at:end]))
        at = end


def _choose(queue: Queue, command: commands.Deliver, now_us: int) -> BitMap64:
    """The positions to deliver; at least one if any is ready, whatever its size."""
    available = queue.available(now_us)
    count = min(command.max_messages, len(available))
    if count and command.max_bytes:
        count = max(queue.placements.fit(available, count, command.max_bytes)[0], 1)
    return bitmaps.lowest(available, count)


def apply_delivered(state: State, _sequence: int, record: records.Delivered) -> None:
    """Makes ready messages unacked under tags, or removes them with `no_ack`."""
    channel = state.channels.setdefault(record.channel_id, ChannelTags())
    queue = state.queues[record.queue_id]
    queue.lease(record.positions)
    if record.no_ack:
        channel.next_tag += len(record.positions)
        state.blocks.release(queue.finish(record.positions, record.at_us))
    else:
        channel.assign_tags(record.queue_id, record.positions)


def settle(state: State, command: commands.Settle, now_us: int) -> Decision:
    """C2-C4: settles tags that are outstanding; refuses all of them if one is not."""
    check_duration("The settlement cannot have delay_ms", command.delay_ms)
    channel = state.channels.get(command.channel_id, _NO_CHANNEL)
    tags = _outstanding(channel, command)
    plan = RemovalPlan(state)
    delays: list[Delay] = []
    disposition = Disposition(command.outcome, command.reason, command.delay_ms)
    if command.outcome is not Outcome.ACCEPTED:
        for queue_id, positions in channel.positions(tags).items():
            queue = state.queues[queue_id]
            requeued = redelivery.plan_outcome(state, plan, queue, positions, disposition)
            late = redelivery.delays(queue, requeued, disposition, now_us)
            plan.requeue(queue, requeued.difference(*(delay.positions for delay in late)))
            delays += late
    for queue_id in channel.unacked:
        state.queues[queue_id].use()
    record = records.Settled(
        channel_id=command.channel_id,
        outcome=command.outcome.value,
        tags=tags,
        at_us=now_us,
        delays=tuple(delays),
        rejected_there=tuple(plan.rejected_there),
        **plan.effects(),
    )
    reply = Settlement(len(tags), plan.moved, plan.dropped)
    return Decision((*plan.declared, record), reply)


def apply_settled(state: State, sequence: int, record: records.Settled) -> None:
    """Removes, dead-letters or requeues the messages of the settled tags."""
    taken = state.channels[record.channel_id].take(record.tags)
    dead_letters.apply_removals(state, sequence, record, taken)
    for queue_id, positions in taken.items():
        if not positions:
            continue
        queue = state.queues[queue_id]
        if record.outcome == Outcome.ACCEPTED.value:
            state.blocks.release(queue.finish(positions, record.at_us))
            forget_if_drained(state, queue)
            continue
        if record.outcome == Outcome.FAILED.value:
            queue.failures.add(positions)
        redelivery.apply_requeue(state, sequence, queue, positions, record.delays)
    enqueue.drop_heads(state, record.drops)


def close_channel(state: State, command: commands.CloseChannel, now_us: int) -> Decision:
    """C12: closes a channel, which requeues its unacked messages."""
    channel = state.channels.get(command.channel_id)
    if channel is None:
        return Decision(reply=0)
    for queue_id in channel.unacked:
        state.queues[queue_id].use()
    record = records.ChannelClosed(command.channel_id, now_us)
    return Decision((record,), len(channel.outstanding()))


def apply_channel_closed(state: State, sequence: int, record: records.ChannelClosed) -> None:
    """Requeues the unacked messages of the channel."""
    end_channel(state, record.channel_id, sequence)


def end_channel(state: State, channel_id: bytes, sequence: int) -> None:
    """Ends a channel and requeues its unacked messages."""
    channel = state.channels.pop(channel_id)
    for queue_id, positions in channel.take(channel.outstanding()).items():
        requeue(state, queue_id, positions, sequence)


def _outstanding(channel: ChannelTags, command: commands.Settle) -> BitMap64:
    """The tags that a settlement names; raises UnknownDeliveryTagError."""
    tags = command.tags
    if command.up_to:
        tags = tags | channel.up_to(command.up_to) | BitMap64((command.up_to,))
    unknown = channel.unknown(tags)
    if unknown:
        raise _unknown(channel, unknown.min())
    assert tags
    return tags


def _unknown(channel: ChannelTags, tag: int) -> UnknownDeliveryTagError:
    """C2: the error for an unknown tag, in the words of AMQP, with the cause."""
    last = channel.next_tag - 1
    if not tag:
        why = "tags count from 1, and 0 stands for none"
    elif tag > last:
        why = f"the last tag that this channel gave is {last}"
    else:
        why = "it was settled before on this channel, or needed no settlement"
    return UnknownDeliveryTagError(
        f"PRECONDITION_FAILED unknown delivery tag {tag}: {why}. Settle each delivery once, on "
        "the channel that it came from; the channel is closed, and its unsettled messages are "
        "delivered again.",
        delivery_tag=tag,
        last_tag=last,
    )
