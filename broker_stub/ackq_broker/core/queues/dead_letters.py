"""Dead letters (C13): messages that move to another queue, with their origin.

Invariant: a move is a reference in one record: the message is in exactly one queue before and
after, and its block stays where it is. A move always succeeds.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypedDict

import msgspec
import numpy as np
from pyroaring import BitMap64

from ackq_broker.core import records
from ackq_broker.core.checks import BUILT_IN_DEAD
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.fields import Drop, Move, QueuePositions, QueueProperties, RejectedThere
from ackq_broker.core.queues import enqueue, rejections
from ackq_broker.core.queues.bounds import head_drops
from ackq_broker.core.queues.topology import forget_if_drained
from ackq_broker.core.state.origins import DeadLetterOrigin
from ackq_broker.core.state.queue import Gone, Queue
from ackq_broker.core.state.state import State

# Properties that dead letters share are kept in memory: reason, batch, queues. Measured at the
# bound: 45 MiB with reasons of 60 bytes, 140 MiB with the longest.
MAX_ORIGINS: Final = 100_000
# The reason of dead letters over the bound; they have no batch either.
OTHER: Final = f"other: the broker keeps {MAX_ORIGINS} different reasons at most"


class Cause(Enum):
    """Cause of a move of messages to another queue."""

    EXPIRED = "expired"
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery_limit"
    REDRIVEN = "redriven"


# Records that remove messages.
_RemovingRecord = (
    records.Settled | records.Ticked | records.SessionAdvanced | records.SessionSettled
)


class Arrival(NamedTuple):
    """Time and sequence at which messages are appended to their new queue."""

    at_us: int
    sequence: int


class Effects(TypedDict):
    """Fields of every record that removes messages."""

    discarded: tuple[QueuePositions, ...]
    moves: tuple[Move, ...]
    drops: tuple[Drop, ...]


class RemovalPlan:
    """Plan of the messages that a record removes from queues, one queue after the other.

    Args:
        state: The state.
        session: The session that settles them, and its batch (C13); "" and -1 for none.
        batch_id: See `session`.

    Attributes:
        moves: Messages that move to another queue.
        discarded: Messages that are dropped instead.
        rejected_there: Messages that are rejected at the remote broker (L28).
        declared: Declares the built-in queue when it is needed and missing.
    """

    def __init__(self, state: State, session: str = "", batch_id: int = -1) -> None:
        self._state = state
        self._by = session, batch_id
        self.moves: list[Move] = []
        self.discarded: list[QueuePositions] = []
        self.rejected_there: list[RejectedThere] = []
        self.declared: tuple[records.QueueDeclared, ...] = ()
        self._removed: list[tuple[Queue, BitMap64]] = []
        self._requeued: list[tuple[Queue, BitMap64]] = []

    @property
    def moved(self) -> int:
        """Number of messages that become dead letters, at this broker or the remote one."""
        there = sum(len(each.positions) for each in self.rejected_there)
        return there + sum(len(move.positions) for move in self.moves)

    @property
    def dropped(self) -> int:
        """Number of messages that are dropped."""
        return sum(len(entry.positions) for entry in self.discarded)

    def dead_letter(
        self,
        queue: Queue,
        positions: BitMap64,
        cause: Cause,
        reason: str = "",
        *,
        otherwise: str = "",
    ) -> None:
        """Moves messages of a queue to its dead-letter queue, or else to the queue `otherwise`.

        Without either they are dropped. Without a `reason` the cause is the reason. A message that
        its link rejects at the remote broker goes to no local queue (L28), unless it expired.
        """
        if not positions:
            return
        self.remove(queue, positions)
        if queue.links and cause is not Cause.EXPIRED:
            there = rejections.rejectable_there(self._state, queue, positions)
            if there:
                self.rejected_there.append(RejectedThere(queue.queue_id, there, cause.value))
                positions = positions - there
                if not positions:
                    return
        target = rejections.dead_letter_queue(self._state, queue) or otherwise
        if not target:
            self.discarded.append(QueuePositions(queue.queue_id, positions))
            return
        target_id = self._target_id(target)
        if cause is Cause.EXPIRED:
            circling = _circling(queue, positions, target_id)
            if circling:
                self.discarded.append(QueuePositions(queue.queue_id, circling))
                positions = positions - circling
        if positions:
            reason = reason or cause.value
            move = Move(queue.queue_id, positions, target_id, cause.value, reason, *self._by)
            self.moves.append(self._bounded(queue, move))

    def move(self, queue: Queue, positions: BitMap64, target_id: int, cause: Cause) -> None:
        """Moves messages of a queue to another one."""
        self.remove(queue, positions)
        self.moves.append(Move(queue.queue_id, positions, target_id, cause.value))

    def remove(self, queue: Queue, positions: BitMap64) -> None:
        """Plans the removal of messages from a queue, which makes room for as many."""
        self._removed.append((queue, positions))

    def requeue(self, queue: Queue, positions: BitMap64) -> None:
        """Plans to make messages of a queue ready, before any arrive from other queues."""
        self._requeued.append((queue, positions))

    def effects(self) -> Effects:
        """The fields of the record; called after all its removals and requeues are planned."""
        return {
            "discarded": tuple(self.discarded),
            "moves": tuple(self.moves),
            "drops": self.drops(),
        }

    def drops(self) -> tuple[Drop, ...]:
        """Drops of drop-head queues for arriving messages, after all removals and requeues."""
        found = []
        for queue_id in dict.fromkeys(move.target_id for move in self.moves):
            target = self._state.queues.get(queue_id)
            if target is not None and target.properties.overflow == "drop-head":
                coming = [
                    self._state.queues[move.queue_id].placements.sizes(move.positions)
                    for move in self.moves
                    if move.target_id == queue_id
                ]
                found.append(head_drops(target, np.concatenate(coming), self._ready_of(target)))
        return tuple(drop for drop in found if drop is not None)

    def _bounded(self, queue: Queue, move: Move) -> Move:
        """C13, I6: the move, without its own reason and batch when too many are kept."""
        if self._state.signals.origins + len(self.moves) < MAX_ORIGINS:
            return move
        target = self._state.queues.get(move.target_id)
        if target is not None and _origin(None, queue, move) in target.origins:
            return move
        reason = move.cause if move.reason == move.cause else OTHER
        return msgspec.structs.replace(move, reason=reason, batch_id=-1)

    def _ready_of(self, queue: Queue) -> BitMap64:
        """The ready messages of a queue after all removals and requeues."""
        removed = (positions for source, positions in self._removed if source is queue)
        requeued = (positions for source, positions in self._requeued if source is queue)
        return queue.ready.difference(*removed).union(*requeued)

    def _target_id(self, name: str) -> int:
        """Id of the queue of this name, else of the built-in one, which is declared if missing."""
        found = target_id(self._state, name)
        if found is not None:
            return found
        queue_id = self._state.next_queue_id
        self.declared = (records.QueueDeclared(queue_id, BUILT_IN_DEAD, QueueProperties()),)
        return queue_id


def target_id(state: State, name: str) -> int | None:
    """Id of the dead-letter queue of this name, else of the built-in one; None without either."""
    return state.queue_ids.get(name, state.queue_ids.get(BUILT_IN_DEAD))


def apply_removals(
    state: State,
    sequence: int,
    record: _RemovingRecord,
    rest: dict[int, BitMap64],
) -> None:
    """Moves and drops messages that a record removes, and takes them out of `rest`, by queue id."""
    there = () if isinstance(record, records.Ticked) else record.rejected_there
    for move in record.moves:
        rest[move.queue_id] -= move.positions
    for entry in record.discarded:
        rest[entry.queue_id] -= entry.positions
    for rejected in there:
        rest[rejected.queue_id] -= rejected.positions
    apply_moves(state, sequence, record.moves, record.at_us)
    rejections.note_rejected(state, there)
    for rejected in there:
        _leave(state, state.queues[rejected.queue_id], rejected.positions, Gone.TAKEN)
    for entry in record.discarded:
        queue = state.queues[entry.queue_id]
        queue.dropped += len(entry.positions)
        reason = Gone.EXPIRED if isinstance(record, records.Ticked) else Gone.TAKEN
        _leave(state, queue, entry.positions, reason)


def apply_moves(state: State, sequence: int, moves: tuple[Move, ...], at_us: int) -> None:
    """Applies moves in order; the messages of a move are all unacked, or all waiting."""
    for move in moves:
        source, target = state.queues[move.queue_id], state.queues[move.target_id]
        held = move.positions.issubset(source.unacked)
        if move.cause == Cause.REDRIVEN.value:
            _put(state, source, target, move.positions, Arrival(at_us, sequence))
        else:
            _dead_letter(state, source, target, move, Arrival(at_us, sequence), held=held)
        reason = Gone.EXPIRED if move.cause == Cause.EXPIRED.value else Gone.TAKEN
        _leave(state, source, move.positions, reason)


def _leave(state: State, queue: Queue, positions: BitMap64, reason: Gone) -> None:
    held = positions.issubset(queue.unacked)
    state.blocks.release(queue.discard(positions) if held else queue.drop(positions, reason))
    if queue.kept:
        queue.rejected |= queue.kept & positions
    forget_if_drained(state, queue)


def _put(state: State, source: Queue, target: Queue, positions: BitMap64, arrival: Arrival) -> None:
    """Appends messages to their new queue; transient ones stay transient (P12)."""
    first = target.next_position
    moved = source.placements.moves(positions)
    enqueue.put(state, target, moved, arrival.at_us, arrival.sequence)
    transient = source.transient_rows & positions
    if transient:
        ranks = np.searchsorted(bitmaps.array(positions), bitmaps.array(transient))
        target.transient_rows |= bitmaps.of(ranks.astype(np.int64) + first)


def _dead_letter(
    state: State, source: Queue, target: Queue, move: Move, arrival: Arrival, *, held: bool
) -> None:
    """Appends messages as `_put` does, and notes and counts their origin."""
    first = target.next_position
    _put(state, source, target, move.positions, arrival)
    values = bitmaps.array(move.positions)
    counts = source.deliveries.at(move.positions) + held
    origins = tuple(source.origins.at(move.positions))
    begins = np.searchsorted(values, [position for position, _ in origins]).tolist()
    for (_, before), begin, end in zip(origins, begins, [*begins[1:], len(values)], strict=True):
        origin = _origin(before, source, move)
        part = slice(begin, end)
        target.origins.add(first + begin, values[part], counts[part], origin, arrival.at_us)
    source.dead_lettered += len(values)
    state.signals.dead_letters[source.name, move.cause] += len(values)
    source.dead_letters[move.cause] = source.dead_letters.get(move.cause, 0) + len(values)


def _circling(queue: Queue, positions: BitMap64, target_id: int) -> BitMap64:
    """C13: messages that would expire into a queue they expired from, with no rejection between."""
    found = BitMap64()
    for origin, group in queue.origins.groups(positions):
        before = origin.expired_from if origin is not None else ()
        if target_id in (*before, queue.queue_id):
            found |= group
    return found


def _origin(before: DeadLetterOrigin | None, queue: Queue, move: Move) -> DeadLetterOrigin:
    """The origin of dead letters; a rejection, or the delivery limit, ends a cycle of expiries."""
    expired_from: tuple[int, ...] = ()
    if move.cause == Cause.EXPIRED.value:
        expired_from = (*(before.expired_from if before is not None else ()), queue.queue_id)
    deaths = _deaths(before)
    times = deaths.pop((queue.queue_id, move.cause), 0) + 1
    return DeadLetterOrigin(
        queue_id=queue.queue_id,
        queue=queue.name,
        cause=move.cause,
        reason=move.reason,
        first_queue=before.first_queue if before is not None else queue.name,
        times=times,
        expired_from=expired_from,
        session=move.session,
        batch_id=move.batch_id,
        earlier=tuple((*key, count) for key, count in deaths.items()),
    )


def _deaths(before: DeadLetterOrigin | None) -> dict[tuple[int, str], int]:
    """C13: number of times that dead letters died so far, by queue id and cause."""
    if before is None:
        return {}
    earlier = {(queue_id, cause): times for queue_id, cause, times in before.earlier}
    return earlier | {(before.queue_id, before.cause): before.times}
