"""Where the dead letters of a queue came from (C13).

Invariant: a position that was dead-lettered into the queue has its origin until it is gone. What
many have in common is kept once, the rest is 36 bytes for each stretch that moved together.
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
from ackq_broker.core.columns.step_function import Dumped, Steps
from ackq_broker.core.commands import Origin, Piece
from ackq_broker.core.state.placements import Rows

# `shift` is what is added to a position to get that in the queue it came from.
_VALUE: Final = np.dtype(
    [("shift", "<i8"), ("dead_us", "<i8"), ("death", "<i8"), ("deliveries", "<i4")]
)


class DeadLetterOrigin(msgspec.Struct, frozen=True, array_like=True):
    """What dead letters have in common.

    Attributes:
        queue_id: The queue they came from; `queue` is its name.
        cause: A value of `dead_letters.Cause`.
        reason: What whoever settled them said, else the cause.
        first_queue: The queue of their first death; `deaths` counts them.
        expired_from: The ids of the queues they expired from, with no rejection between (C13).
        session: The session that settled them and its batch, when they came from one.
    """

    queue_id: int
    queue: str
    cause: str
    reason: str
    first_queue: str
    deaths: int
    expired_from: tuple[int, ...] = ()
    session: str = ""
    batch_id: int = -1


class Group(NamedTuple):
    """Positions with the death they have in common; None for those that never died."""

    death: DeadLetterOrigin | None
    positions: BitMap64


class Origins:
    """Origins by position of the queue they are in."""

    __slots__ = ("_deaths", "_ids", "_live", "_next_id", "_positions", "_steps")

    def __init__(self) -> None:
        self._positions = BitMap64()
        self._steps = Steps(_VALUE)
        self._deaths: dict[int, DeadLetterOrigin] = {}
        self._ids: dict[DeadLetterOrigin, int] = {}
        self._live: dict[int, int] = {}
        self._next_id = 1

    def add(
        self,
        first: int,
        sources: Int64s,
        delivery_counts: Int64s,
        death: DeadLetterOrigin,
        dead_us: int,
    ) -> None:
        """The positions from `first` on came from these positions, after so many deliveries."""
        death_id = self._ids.get(death)
        if death_id is None:
            death_id = self._ids[death] = self._next_id
            self._deaths[death_id] = death
            self._live[death_id] = 0
            self._next_id += 1
        count = len(sources)
        self._live[death_id] += count
        self._positions.add_range(first, first + count)
        shifts = sources - np.arange(first, first + count)
        changes = (np.diff(shifts, prepend=shifts[0] - 1) != 0) | (
            np.diff(delivery_counts, prepend=-1) != 0
        )
        begins = np.flatnonzero(changes)
        lengths = np.diff(begins, append=count)
        values = np.empty(len(begins), _VALUE)
        values["shift"], values["deliveries"] = shifts[begins], delivery_counts[begins]
        values["dead_us"], values["death"] = dead_us, death_id
        self._steps.extend(begins + first, lengths, values)

    def forget(self, positions: BitMap64) -> None:
        """These positions are gone."""
        gone = self._positions & positions
        if not gone:
            return
        ids, counts = np.unique(self._at(gone)["death"], return_counts=True)
        for death_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
            self._live[death_id] -= count
            if not self._live[death_id]:
                del self._live[death_id]
                del self._ids[self._deaths.pop(death_id)]
        self._positions -= gone
        self._steps.remove(gone, self._positions)

    def positions(self) -> BitMap64:
        """The positions of dead letters."""
        return self._positions

    def at(self, positions: BitMap64) -> Iterator[tuple[int, DeadLetterOrigin | None]]:
        """The death of each stretch of positions that have one in common, by its first position.

        None is for those that never died.
        """
        values = bitmaps.array(positions)
        deaths = np.zeros(len(values), np.int64)
        known = self._positions & positions
        deaths[np.searchsorted(values, bitmaps.array(known))] = self._at(known)["death"]
        begins = np.flatnonzero(np.diff(deaths, prepend=-1))
        for first, death_id in zip(values[begins].tolist(), deaths[begins].tolist(), strict=True):
            yield first, self._deaths.get(death_id)

    def groups(self, positions: BitMap64) -> Iterator[Group]:
        """Some positions by their death."""
        known = self._positions & positions
        if len(known) < len(positions):
            yield Group(None, positions - known)
        if known:
            deaths, values = self._at(known)["death"], bitmaps.array(known)
            order = np.argsort(deaths, kind="stable")
            begins = np.flatnonzero(np.diff(deaths[order], prepend=0))
            for part in np.split(order, begins[1:]):
                yield Group(self._deaths[int(deaths[part[0]])], bitmaps.of(values[part]))

    def attach(
        self, locate: Callable[[str, Rows], Iterable[Piece]], queue: str, rows: Rows
    ) -> Iterable[Piece]:
        """The pieces of some rows, each with the origin that its rows have in common."""
        if not self._positions:
            return locate(queue, rows)
        return self._attached(locate, queue, rows)

    def _attached(
        self, locate: Callable[[str, Rows], Iterable[Piece]], queue: str, rows: Rows
    ) -> Iterator[Piece]:
        values = np.zeros(len(rows.positions), _VALUE)
        known = bitmaps.array(self._positions & bitmaps.of(rows.positions))
        values[np.searchsorted(rows.positions, known)] = self._steps.at(known)
        cuts = np.flatnonzero(np.diff(values["death"]) | np.diff(values["dead_us"])) + 1
        at = 0
        for piece in locate(queue, rows._replace(cuts=cuts)):
            end = at + sum(run.rows for run in piece.runs)
            yield piece._replace(origin=self._origin(rows.positions[at:end], values[at:end]))
            at = end

    def dump(self) -> tuple[int, tuple[tuple[int, int, DeadLetterOrigin], ...], BitMap64, Dumped]:
        """The next id, the deaths with their ids and counts, the positions, and their steps."""
        deaths = tuple((i, self._live[i], death) for i, death in sorted(self._deaths.items()))
        return self._next_id, deaths, self._positions, self._steps.dump(self._positions)

    @classmethod
    def load(
        cls,
        next_id: int,
        deaths: tuple[tuple[int, int, DeadLetterOrigin], ...],
        positions: BitMap64,
        steps: Dumped,
    ) -> Origins:
        """The opposite of `dump`."""
        self = cls()
        self._next_id = next_id
        for death_id, live, death in deaths:
            self._deaths[death_id], self._live[death_id] = death, live
            self._ids[death] = death_id
        self._positions = positions
        self._steps = Steps.load(_VALUE, steps, positions)
        return self

    def _at(self, positions: BitMap64) -> NDArray[Any]:
        return self._steps.at(bitmaps.array(positions))

    def _origin(self, positions: Int64s, values: NDArray[Any]) -> Origin | None:
        death_id, dead_us = int(values["death"][0]), int(values["dead_us"][0])
        if not death_id:
            return None
        death = self._deaths[death_id]
        return Origin(
            queue=death.queue,
            positions=positions + values["shift"],
            delivery_counts=values["deliveries"].astype(np.int64),
            cause=death.cause,
            reason=death.reason,
            dead_us=dead_us,
            first_queue=death.first_queue,
            deaths=death.deaths,
            session=death.session,
            batch_id=death.batch_id,
        )
