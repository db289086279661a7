"""Publishing in confirm mode (P): a row goes to every queue that it is routed to, or to none.

Invariant: every number gets exactly one answer (P3), and an accepted number is placed once, however
often it is sent (P10).
"""

from __future__ import annotations

import msgspec
import numpy as np
from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq_broker.core import commands, fields, records
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Decision, Nack
from ackq_broker.core.publishing import publishers
from ackq_broker.core.queues import enqueue
from ackq_broker.core.queues.bounds import BlockSize, bounded, overflowing, queue_full
from ackq_broker.core.queues.routing import Routed, route, router_of
from ackq_broker.core.queues.topology import exchange_not_found
from ackq_broker.core.state.state import Publisher, State


def publish(state: State, command: commands.Publish, now_us: int) -> Decision:
    """P3-P8, P10: routes the rows not seen before, and answers every number."""
    assert len(command.numbers) == command.rows > 0
    publisher = publishers.find(state, command.publisher_id)
    if command.numbers.min() < command.lowest_unanswered:
        raise InvalidArgumentError(
            f"The publish number {command.numbers.min()} is below {command.lowest_unanswered}, "
            "the lowest number that this frame reports as unanswered. Count publishes from 1 and "
            "never use a number again.",
            number=command.numbers.min(),
        )
    known = passed_over = _known(publisher, command.numbers)
    wanted = bitmaps.row_range(0, command.rows - 1)
    if command.in_progress:
        known, passed_over = known - command.in_progress, known | command.in_progress
    if passed_over:
        wanted -= _rows_of(command.numbers, passed_over)
    if not wanted:
        return Decision(reply=commands.Published(known, BitMap64()))
    router = router_of(state, command.exchange)
    if router is None:
        # A nack, not a failure of the call: the numbers placed before still get their confirm.
        nack = Nack(command.numbers - passed_over, exchange_not_found(command.exchange))
        return Decision(reply=commands.Published(known, BitMap64(), (nack,)))

    routed = route(state, router, command.routes, wanted)
    size = BlockSize(command.rows, command.payload_bytes, command.sizes)
    refused, nacks = _refuse(state, command.numbers, routed, size)
    assert sum(map(len, routed.rows.values())) + len(routed.unroutable | refused) >= len(wanted)
    placed = wanted - routed.unroutable - refused
    unroutable = bitmaps.numbers_of(command.numbers, routed.unroutable)
    accepted = bitmaps.numbers_of(command.numbers, placed)
    confirmed = known | accepted | unroutable
    answered = len(confirmed) + sum(len(nack.numbers) for nack in nacks)
    assert answered == command.rows - len(command.in_progress)
    returned = unroutable if command.mandatory else BitMap64()

    # Only an answer that depends on the topology alone may leave before the journal syncs (P5).
    early = None if known or nacks else state.topology_sequence
    if not placed:
        return Decision(reply=commands.Published(confirmed, returned, nacks), after=early)
    own = command.transient or BitMap()
    transient = placed & (routed.transient | own) if command.persistent else placed
    durable = command.persistent and bool(placed & routed.durable - own)
    waits = len(transient) < len(placed)
    kept = routed.rows
    if refused:
        kept = {queue_id: rows - refused for queue_id, rows in kept.items()}
    parts = _placed(state, enqueue.make_parts(kept, size, command.expiries, command.transient))
    sizes = size.column()
    transient_numbers = bitmaps.numbers_of(command.numbers, transient)
    record = records.Published(
        publisher_id=command.publisher_id,
        accepted=accepted - transient_numbers,
        transient=transient_numbers,
        lowest_unanswered=command.lowest_unanswered,
        block_id=state.next_block_id,
        durable=durable,
        at_us=now_us,
        parts=parts,
        drops=enqueue.drops(state, ((part, sizes) for part in parts)),
        sizes=sizes,
    )
    sooner = (transient_numbers, state.topology_sequence) if waits and transient else None
    reply = commands.Published(confirmed, returned, nacks, state.next_block_id, durable, sooner)
    return Decision((record,), reply, None if waits else early)


def publish_together(state: State, command: commands.PublishTogether, now_us: int) -> Decision:
    """P4, P10: places a row of each publisher, or decides nothing if not all are alike."""
    rows = len(command.numbers)
    router = router_of(state, command.exchange)
    named = zip(command.publisher_ids, command.numbers, command.lowest_unanswered, strict=True)
    if router is None or not all(_is_new(state, *each) for each in named):
        return Decision(reply=False)
    every = bitmaps.row_range(0, rows - 1)
    routed = route(state, router, command.routes, every)
    size = BlockSize(rows, command.payload_bytes, command.sizes)
    full = any(overflowing(state.queues[queue_id], every, size) for queue_id in routed.rows)
    if full or routed.refused or not routed.rows or routed.transient:
        return Decision(reply=False)
    parts, sizes = _placed(state, enqueue.make_parts(routed.rows, size)), size.column()
    record = records.PublishedTogether(
        publisher_ids=command.publisher_ids,
        numbers=command.numbers,
        lowest_unanswered=command.lowest_unanswered,
        block_id=state.next_block_id,
        at_us=now_us,
        parts=parts,
        drops=enqueue.drops(state, ((part, sizes) for part in parts)),
        sizes=sizes,
    )
    return Decision((record,), reply=True)


def _is_new(state: State, publisher_id: bytes, number: int, lowest_unanswered: int) -> bool:
    """Whether a number is the publisher's to use, and was not accepted or answered before."""
    publisher = state.publishers.get(publisher_id)
    return (
        publisher is not None
        and not publisher.transactional
        and number >= max(lowest_unanswered, publisher.lowest_unanswered)
        and number not in publisher.accepted
        and number not in publisher.transient
    )


def _placed(state: State, parts: dict[int, fields.RoutedRows]) -> tuple[fields.RoutedRows, ...]:
    """The parts with the positions that their rows get."""
    return tuple(
        msgspec.structs.replace(part, first_position=state.queues[queue_id].next_position)
        for queue_id, part in parts.items()
    )


def apply_published(state: State, sequence: int, record: records.Published) -> None:
    """Remembers the numbers of a publish and places its rows."""
    publisher = state.publishers[record.publisher_id]
    assert publisher.accepted.isdisjoint(record.accepted)
    assert publisher.transient.isdisjoint(record.transient)
    publisher.accepted |= record.accepted
    publisher.transient |= record.transient
    _forget_answered(publisher, record.lowest_unanswered)
    _place(state, record, enqueue.Visible(record.at_us, sequence, record.durable))


def apply_published_together(
    state: State, sequence: int, record: records.PublishedTogether
) -> None:
    """Remembers the number of each row for its publisher, and places the rows."""
    named = zip(record.publisher_ids, record.numbers, record.lowest_unanswered, strict=True)
    for publisher_id, number, lowest_unanswered in named:
        publisher = state.publishers[publisher_id]
        assert number not in publisher.accepted
        publisher.accepted.add(number)
        _forget_answered(publisher, lowest_unanswered)
    _place(state, record, enqueue.Visible(record.at_us, sequence, durable=True))


def _forget_answered(publisher: Publisher, lowest_unanswered: int) -> None:
    """Forgets the accepted numbers that the client reports as answered (P10)."""
    if lowest_unanswered > publisher.lowest_unanswered:
        publisher.lowest_unanswered = lowest_unanswered
        publisher.accepted.remove_range(0, lowest_unanswered)
        publisher.transient.remove_range(0, lowest_unanswered)


def _place(
    state: State, record: records.Published | records.PublishedTogether, visible: enqueue.Visible
) -> None:
    """Places the rows of a record's block in their queues."""
    assert record.block_id == state.next_block_id
    state.next_block_id += 1
    state.blocks.sizes.add(record.block_id, record.sizes)
    for part in record.parts:
        enqueue.place(state, record.block_id, part, visible)
    enqueue.drop_heads(state, record.drops)


def missing(state: State, publisher_id: bytes, first: int, last: int) -> list[tuple[int, int]]:
    """P10: the ranges of first..last, both included, that were never accepted.

    Numbers below the client's lowest unanswered number were answered and are not missing.
    """
    publisher = publishers.find(state, publisher_id)
    first = max(first, publisher.lowest_unanswered)
    last = min(last, limits.LARGEST_NUMBER)
    seen = bitmaps.array(bitmaps.between(publisher.accepted | publisher.transient, first, last))
    edges = np.concatenate(([first - 1], seen, [last + 1]))
    gaps = np.flatnonzero(np.diff(edges) > 1)
    return list(zip((edges[gaps] + 1).tolist(), (edges[gaps + 1] - 1).tolist(), strict=True))


def _known(publisher: Publisher, numbers: BitMap64) -> BitMap64:
    """The numbers that were accepted or answered before, and only need their confirm."""
    known = BitMap64()
    lowest = numbers.min()
    for seen in (publisher.accepted, publisher.transient):
        if seen and seen.max() >= lowest:
            known |= numbers & seen
    if lowest < publisher.lowest_unanswered:
        known |= bitmaps.between(numbers, 0, publisher.lowest_unanswered - 1)
    return known


def _refuse(
    state: State, numbers: BitMap64, routed: Routed, size: BlockSize
) -> tuple[BitMap, tuple[Nack, ...]]:
    """P8: the rows that a bound or a full queue refuses; each is nacked once, by the first."""
    refused = BitMap().union(*(rows for rows, _ in routed.refused))
    nacks = [Nack(bitmaps.numbers_of(numbers, rows), why) for rows, why in routed.refused]
    for queue_id, selected in routed.rows.items():
        queue = state.queues[queue_id]
        if not bounded(queue):
            continue
        wanted = selected - refused
        more = overflowing(queue, wanted, size)
        if more:
            more = overflowing(queue, wanted, size, queue.demand().without_acks)
        if more:
            reason = queue_full(queue, wanted, size, more)
            nacks.append(Nack(bitmaps.numbers_of(numbers, more), reason))
            refused |= more
    return refused, tuple(nacks)


def _rows_of(numbers: BitMap64, some: BitMap64) -> BitMap:
    """The rows of some of the numbers."""
    return BitMap(np.searchsorted(bitmaps.array(numbers), bitmaps.array(some)).tolist())
