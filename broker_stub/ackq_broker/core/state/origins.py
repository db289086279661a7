"""Origins of the dead letters in a queue (C13).

Invariant: a position that was dead-lettered into the queue has its origin until it is removed. Data
that many positions share is kept once, the rest is 36 bytes for each stretch that moved together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.pieces import Listed
from ackq_broker.core.columns.step_function import Dumped, Steps
from ackq_broker.core.commands import Origin, Piece
from ackq_broker.core.state.placements import Rows
from ackq_broker.core.state.signals import Signals

# `shift` is added to a position to get the position in the queue it came from.
_VALUE: Final = np.dtype(
    [("shift", "<i8"), ("dead_lettered_us", "<i8"), ("origin", "<i8"), ("deliveries", "<i4")]
)


class DeadLetterOrigin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Origin that dead letters have in common.

    Attributes:
        queue_id: The queue they came from; `queue` is its name.
        cause: A value of `dead_letters.Cause`.
        reason: The reason of their rejection or last failure, else the cause.
        first_queue: The queue that they were dead-lettered from first.
        times: How often they were dead-lettered from `queue` for this cause.
        expired_from: The ids of the queues they expired from, with no rejection in between (C13).
        session: The session that settled them and its batch; "" and -1 for none.
        earlier: The `times` of other queues and causes, by queue id and cause.
    """

    queue_id: int
    queue: str
    cause: str
    reason: str
    first_queue: str
    times: int
    expired_from: tuple[int, ...] = ()
    session: str = ""
    batch_id: int = -1
    earlier: tuple[tuple[int, str, int], ...] = ()


class OriginGroup(NamedTuple):
    """Positions with the origin they have in common; None for positions without an origin."""

    origin: DeadLetterOrigin | None
    positions: BitMap64


class Origins:
    """Origins of a queue's dead letters, by position.

    Args:
        signals: Counts the origins of all queues.
    """

    __slots__ = ("_ids", "_live", "_next_id", "_origins", "_positions", "_signals", "_steps")

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._positions = BitMap64()
        self._steps = Steps(_VALUE)
        self._origins: dict[int, DeadLetterOrigin] = {}
        self._ids: dict[DeadLetterOrigin, int] = {}
        self._live: dict[int, int] = {}
        self._next_id = 1

    def add(
        self,
        first: int,
        sources: Int64s,
        delivery_counts: Int64s,
        origin: DeadLetterOrigin,
        dead_lettered_us: int,
    ) -> None:
        """Adds dead letters from position `first` on, whose positions were `sources` before."""
        origin_id = self._ids.get(origin)
        if origin_id is None:
            origin_id = self._ids[origin] = self._next_id
            self._origins[origin_id] = origin
            self._live[origin_id] = 0
            self._next_id += 1
            self._signals.origins += 1
        count = len(sources)
        self._live[origin_id] += count
        self._positions.add_range(first, first + count)
        shifts = sources - np.arange(first, first + count)
        changes = (np.diff(shifts, prepend=shifts[0] - 1) != 0) | (
            np.diff(delivery_counts, prepend=-1) != 0
        )
        begins = np.flatnonzero(changes)
        lengths = np.diff(begins, append=count)
        values = np.empty(len(begins), _VALUE)
        values["shift"], values["deliveries"] = shifts[begins], delivery_counts[begins]
        values["dead_lettered_us"], values["origin"] = dead_lettered_us, origin_id
        self._steps.extend(begins + first, lengths, values)

    def forget(self, positions: BitMap64) -> None:
        """Removes the origins of positions."""
        gone = self._positions & positions
        if not gone:
            return
        ids, counts = np.unique(self._at(gone)["origin"], return_counts=True)
        for origin_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
            self._live[origin_id] -= count
            if not self._live[origin_id]:
                del self._live[origin_id]
                del self._ids[self._origins.pop(origin_id)]
                self._signals.origins -= 1
        self._positions -= gone
        self._steps.remove(gone, self._positions)

    def __contains__(self, origin: DeadLetterOrigin) -> bool:
        """Whether some dead letters have this origin, so that another one costs nothing."""
        return origin in self._ids

    def positions(self) -> BitMap64:
        """Positions of the dead letters."""
        return self._positions

    def at(self, positions: BitMap64) -> Iterator[tuple[int, DeadLetterOrigin | None]]:
        """Yields the first position and the origin of each stretch of positions with equal origin.

        The origin is None for positions that are no dead letters.
        """
        values = bitmaps.array(positions)
        origin_ids = np.zeros(len(values), np.int64)
        known = self._positions & positions
        origin_ids[np.searchsorted(values, bitmaps.array(known))] = self._at(known)["origin"]
        begins = np.flatnonzero(np.diff(origin_ids, prepend=-1))
        for first, origin_id in zip(
            values[begins].tolist(), origin_ids[begins].tolist(), strict=True
        ):
            yield first, self._origins.get(origin_id)

    def tallies(self) -> Iterator[tuple[DeadLetterOrigin, int]]:
        """Yields each origin with the number of its dead letters, kept ones (K2) included.

        It may be continued after changes: origins removed meanwhile are left out.
        """
        for origin_id, live in tuple(self._live.items()):
            origin = self._origins.get(origin_id)
            if origin is not None:
                yield origin, live

    def groups(self, positions: BitMap64) -> Iterator[OriginGroup]:
        """Groups positions by their origin."""
        known = self._positions & positions
        if len(known) < len(positions):
            yield OriginGroup(None, positions - known)
        if known:
            origin_ids, values = self._at(known)["origin"], bitmaps.array(known)
            order = np.argsort(origin_ids, kind="stable")
            begins = np.flatnonzero(np.diff(origin_ids[order], prepend=0))
            for part in np.split(order, begins[1:]):
                yield OriginGroup(self._origins[int(origin_ids[part[0]])], bitmaps.of(values[part]))

    def attach(
        self, locate: Callable[[str, Rows], Iterable[Piece]], queue: str, rows: Rows
    ) -> Iterable[Piece]:
        """Adds to each piece of some rows the origin that its rows have in common."""
        if not self._positions:
            return locate(queue, rows)
        return self._attached(locate, queue, rows)

    def _attached(
        self, locate: Callable[[str, Rows], Iterable[Piece]], queue: str, rows: Rows
    ) -> Iterator[Piece]:
        values = np.zeros(len(rows.positions), _VALUE)
        known = bitmaps.array(self._positions & bitmaps.of(rows.positions))
        values[np.searchsorted(rows.positions, known)] = self._steps.at(known)
        cuts = np.flatnonzero(np.diff(values["origin"]) | np.diff(values["dead_lettered_us"])) + 1
        at = 0
        for piece in locate(queue, rows._replace(cuts=cuts)):
            end = at + sum(run.rows for run in piece.runs)
            yield piece._replace(origin=self._origin(rows.positions[at:end], values[at:end]))
            at = end

    def dump(self) -> tuple[int, Listed, BitMap64, Dumped]:
        """The next id, the origins with their ids and counts, the positions, and their steps."""
        # Ids are assigned in ascending order, so the items of the dict ascend as well.
        origins, live = self._origins.copy(), self._live.copy()
        listed = Listed(len(origins), ((i, live[i], origin) for i, origin in origins.items()))
        return self._next_id, listed, self._positions.copy(), self._steps.dump(self._positions)

    @classmethod
    def load(
        cls,
        signals: Signals,
        next_id: int,
        origin_ids: tuple[tuple[int, int, DeadLetterOrigin], ...],
        positions: BitMap64,
        keys: bytes,
        values: bytes,
    ) -> Origins:
        """Restores the origins from the output of `dump`."""
        self = cls(signals)
        signals.origins += len(origin_ids)
        self._next_id = next_id
        for origin_id, live, origin in origin_ids:
            self._origins[origin_id], self._live[origin_id] = origin, live
            self._ids[origin] = origin_id
        self._positions = positions
        self._steps = Steps.load(_VALUE, keys, values, positions)
        return self

    def _at(self, positions: BitMap64) -> NDArray[Any]:
        return self._steps.at(bitmaps.array(positions))

    def _origin(self, positions: Int64s, values: NDArray[Any]) -> Origin | None:
        origin_id, dead_lettered_us = int(values["origin"][0]), int(values["dead_lettered_us"][0])
        if not origin_id:
            return None
        origin = self._origins[origin_id]
        return Origin(
            queue=origin.queue,
            positions=positions + values["shift"],
            delivery_counts=values["deliveries"].astype(np.int64),
            cause=origin.cause,
            reason=origin.reason,
            dead_lettered_us=dead_lettered_us,
            first_queue=origin.first_queue,
            times=origin.times,
            session=origin.session,
            batch_id=origin.batch_id,
        )
