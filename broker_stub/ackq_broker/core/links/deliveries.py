"""Deliveries of a link (L5): each is stored, or matched with a known message, in one record.

Invariant: a delivery number is stored or matched once, however often it is sent; a refused frame
changes nothing.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from ackq import limits
from ackq.errors import ClosedError, InvalidArgumentError, LimitError
from ackq_broker.core import commands, records
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands import Decision, LinkAck, StoredLinked
from ackq_broker.core.fields import RoutedRows
from ackq_broker.core.links import answers, holder, permits
from ackq_broker.core.links.answers import Flags
from ackq_broker.core.links.matching import Arrivals, match
from ackq_broker.core.queues import enqueue
from ackq_broker.core.queues.bounds import BlockSize, overflowing, queue_full
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State


def store(state: State, command: commands.StoreLinked, now_us: int) -> Decision:
    """L5-L7, L9, L11: stores or matches deliveries that are not known yet; answers every row."""
    assert len(command.keys) == len(command.checks) == command.rows > 0
    link = holder.find(state, command.link, command.epoch, command.stream)
    holder.check_subscription(link, command.subscription)
    _check_numbers(link, command)
    permits.check_proof(link, command.proven, command.proven_number)
    known = min(link.next_number - command.first_number, command.rows)
    before = command.first_number + known
    runs = answers.known_runs(link, command.first_number, before - 1) if known else ()
    if known == command.rows:
        return Decision(reply=StoredLinked(runs, None))
    queue = state.queues[link.queue_id]
    columns = _columns(command, known)
    found = match(link, queue, columns)
    if command.repeats_end and found.repeats and not command.at_once:
        _check_repeats(link, now_us)
    new = found.positions == 0
    matched = found.positions[~new]
    part = _part(queue, command, np.flatnonzero(new) + known)
    if part is not None:
        _check_room(link, part.count, matched, now_us)
    positions = found.positions.copy()
    positions[new] = np.arange(int(new.sum())) + queue.next_position
    at_once = _flags(command.at_once, command.rows)[known:] | (link.ack is LinkAck.STORED)
    permitted = found.settled | bitmaps.of(positions[at_once])
    unfresh = new & (columns.redelivered | link.settles_in(now_us))
    record = records.LinkStored(
        link=link.name,
        first_number=before,
        rows=len(positions),
        lowest_unanswered=command.lowest_unanswered,
        proven=command.proven,
        at_us=now_us,
        block_id=state.next_block_id if part is not None else 0,
        parts=(part,) if part is not None else (),
        keys=command.keys[known:][new].astype("<u8").tobytes(),
        checks=command.checks[known:][new].astype("<u8").tobytes(),
        content=bitmaps.of(positions[new & columns.content]),
        matched=BitMap(np.flatnonzero(~new).tolist()),
        positions=matched.astype("<i8").tobytes(),
        permitted=permitted,
        ambiguous=found.ambiguous,
        matched_settled=len(found.settled),
        id_reused=found.id_reused,
        redelivered=bitmaps.of(positions[unfresh]),
        sizes=_size(command).column() if part is not None else b"",
    )
    numbers = np.arange(before, before + len(positions))
    said = (answers.members(positions, each) for each in (permitted, link.rejected))
    runs += answers.linked_runs(numbers, positions, ~new, *said)
    return Decision((record,), StoredLinked(runs, record.block_id or None))


def apply_stored(state: State, sequence: int, record: records.LinkStored) -> None:
    """Places new messages, binds matched entries, and permits acknowledgements."""
    link = state.links[record.link]
    queue = state.queues[link.queue_id]
    matched = np.frombuffer(record.positions, "<i8").astype(np.int64)
    # First, so that a proof forgets none of these entries.
    link.match(bitmaps.of(matched))
    link.forget(record.ambiguous)
    link.prove(record.proven, record.at_us)
    new = np.ones(record.rows, np.bool_)
    new[bitmaps.row_array(record.matched)] = False
    positions = np.empty(record.rows, np.int64)
    positions[~new] = matched
    for part in record.parts:
        assert record.block_id == state.next_block_id
        state.next_block_id += 1
        positions[new] = np.arange(part.count) + queue.next_position
        state.blocks.sizes.add(record.block_id, record.sizes)
        visible = enqueue.Visible(record.at_us, sequence, durable=True)
        enqueue.place(state, record.block_id, part, visible)
        link.store(positions[new], record.keys, record.checks, record.content)
        link.redelivered |= record.redelivered
    link.permit(record.permitted, record.at_us)
    link.deliver(record.first_number, positions, record.lowest_unanswered)
    link.counts = link.counts.plus(
        taken=record.rows,
        stored=record.rows - len(matched),
        matched_held=len(matched) - record.matched_settled,
        matched_settled=record.matched_settled,
        ambiguous=len(record.ambiguous),
        id_reused=record.id_reused,
    )
    link.forget_due(queue, record.at_us)
    if len(link.entries) > limits.MAX_LINK_ENTRIES:
        link.forget(link.spare(record.at_us))


def _check_numbers(link: Link, command: commands.StoreLinked) -> None:
    """L5: refuses a gap in the delivery numbers, and numbers that were answered."""
    first = command.first_number
    lowest = max(command.lowest_unanswered, link.lowest_unanswered)
    if not lowest <= first <= link.next_number:
        raise InvalidArgumentError(
            f"The link '{link.name}' sent deliveries from number {first} on; the next number is "
            f"{link.next_number}, and the deliveries below {lowest} were answered. Number the "
            "deliveries of a subscription from 1, in order, and send a refused frame again before "
            "the next.",
            link=link.name,
            next_number=link.next_number,
        )


def _check_repeats(link: Link, now_us: int) -> None:
    """L6: ends a subscription that has repetitions, after its first time."""
    if not link.settles_in(now_us):
        raise ClosedError(
            f"The remote broker of link '{link.name}' delivered messages again in the same "
            "subscription, as RabbitMQ does when nodes of a cluster lose each other. Consume "
            "again, and subscribe again: then they are recognised."
        )


def _check_room(link: Link, rows: int, matched: Int64s, now_us: int) -> None:
    over = len(link.entries) + rows - limits.MAX_LINK_ENTRIES
    if over > 0 and over > len(link.spare(now_us) - bitmaps.of(matched)):
        raise LimitError(
            f"The link '{link.name}' remembers {len(link.entries)} messages, and takes no more "
            f"than {limits.MAX_LINK_ENTRIES}: they are not settled yet, or the remote broker is "
            "not known to have applied their acknowledgements. Consume from the link's queue; or "
            f"remove the link with `ackq link remove {link.name} --forget`, after which messages "
            "may be stored twice.",
            link=link.name,
            limit=limits.MAX_LINK_ENTRIES,
        )


def _columns(command: commands.StoreLinked, known: int) -> Arrivals:
    return Arrivals(
        command.keys[known:],
        command.checks[known:],
        _flags(command.content, command.rows)[known:],
        _flags(command.redelivered, command.rows)[known:],
    )


def _part(
    queue: Queue, command: commands.StoreLinked, rows: NDArray[np.int64]
) -> RoutedRows | None:
    """The part with the rows to store, at their positions; None for none. Raises QueueFullError."""
    if not len(rows):
        return None
    selected = BitMap(rows.tolist())
    size = _size(command)
    if overflowing(queue, selected, size):
        more = overflowing(queue, selected, size, queue.demand().without_acks)
        if more:
            # Matched rows need no room: they must not wait for the first row without room.
            raise queue_full(queue, selected, size, more, leading=more.min())
    part = enqueue.make_parts({queue.queue_id: selected}, size)[queue.queue_id]
    return msgspec.structs.replace(part, first_position=queue.next_position)


def _size(command: commands.StoreLinked) -> BlockSize:
    return BlockSize(command.rows, command.payload_bytes, command.sizes)


def _flags(rows: BitMap, count: int) -> Flags:
    found = np.zeros(count, np.bool_)
    found[bitmaps.row_array(rows)] = True
    return found
