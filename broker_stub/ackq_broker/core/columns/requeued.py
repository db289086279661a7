"""Journal sequence at which each ready message was last requeued (K5).

Messages requeued after an AvailableNow bound are excluded from its run.

Invariant: for every ready position that was ever requeued, the latest row that covers it has the
sequence of the record that last requeued it. Rows of positions that are no longer ready change no
answer, and are swept when there are many, so that taking a message costs nothing in this column.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.pieces import Parts

_ROW: Final = np.dtype([("sequence", "<i8"), ("first", "<i8"), ("count", "<i8")])
_SWEEP_ROWS: Final = 1024
# Sweeping is per position: the number of positions that one new row may cause to be swept.
_POSITIONS_PER_ROW: Final = 64
_HEAD: Final = np.dtype([("swept_rows", "<i8"), ("swept_positions", "<i8")])


class Requeued:
    """Runs of positions with the sequence that requeued them, in order of sequence."""

    __slots__ = ("_rows", "_swept_positions", "_swept_rows", "_used")

    def __init__(self) -> None:
        self._rows: NDArray[Any] = np.zeros(0, _ROW)
        self._used = 0
        self._swept_rows = 0
        self._swept_positions = 0

    def add(self, sequence: int, positions: BitMap64, ready: BitMap64) -> None:
        """Adds requeued positions; `ready` are the positions that are ready now."""
        if not positions:
            return
        firsts, counts = bitmaps.runs(positions)
        self._append(sequence, firsts, counts)
        slack = max(_SWEEP_ROWS, self._swept_positions // _POSITIONS_PER_ROW)
        if self._used - self._swept_rows > slack:
            self._sweep(ready)

    def after(self, sequence: int) -> BitMap64:
        """Positions requeued after a sequence; some may no longer be ready."""
        rows = self._rows[: self._used]
        rows = rows[np.searchsorted(rows["sequence"], sequence, "right") :]
        return bitmaps.of_runs(rows["first"], rows["count"])

    def dump(self) -> Parts:
        """All rows, stale ones included: a restart must not change when they are swept.

        Rows are written once, after the existing ones, so that later changes do not affect the
        dump.
        """
        head = np.array([(self._swept_rows, self._swept_positions)], _HEAD)
        arrays = (head, self._rows[: self._used])
        return Parts(lambda: arrays, sum(array.nbytes for array in arrays))

    @classmethod
    def load(cls, dumped: bytes) -> Requeued:
        """Restores the rows from the output of `dump`; empty bytes give an empty object."""
        self = cls()
        if dumped:
            head = np.frombuffer(dumped, _HEAD, 1)[0]
            self._swept_rows, self._swept_positions = head.item()
            self._rows = np.frombuffer(dumped, _ROW, offset=_HEAD.itemsize).copy()
            self._used = len(self._rows)
        return self

    def _append(self, sequence: int, firsts: Int64s, counts: Int64s) -> None:
        used = self._used + len(firsts)
        if used > len(self._rows):
            grown = np.zeros(max(8, 2 * used), _ROW)
            grown[: self._used] = self._rows[: self._used]
            self._rows = grown
        more = self._rows[self._used : used]
        more["sequence"], more["first"], more["count"] = sequence, firsts, counts
        self._used = used

    def _sweep(self, ready: BitMap64) -> None:
        """Keeps the latest sequence of each position that is ready."""
        rows = self._rows[: self._used]
        positions = bitmaps.expanded(rows["first"], rows["count"])
        sequences = np.repeat(rows["sequence"], rows["count"])
        order = np.argsort(positions, kind="stable")
        positions, sequences = positions[order], sequences[order]
        latest = np.append(np.diff(positions) != 0, True)
        positions, sequences = positions[latest], sequences[latest]
        held = bitmaps.array(bitmaps.between(ready, int(positions[0]), int(positions[-1])))
        kept = np.isin(positions, held, assume_unique=True)
        self._put(positions[kept], sequences[kept])

    def _put(self, positions: Int64s, sequences: Int64s) -> None:
        order = np.argsort(sequences, kind="stable")
        positions, sequences = positions[order], sequences[order]
        begins = np.flatnonzero(
            (np.diff(positions, prepend=-1) != 1) | (np.diff(sequences, prepend=-1) != 0)
        )
        self._rows = np.zeros(len(begins), _ROW)
        self._rows["sequence"], self._rows["first"] = sequences[begins], positions[begins]
        self._rows["count"] = np.diff(begins, append=len(positions))
        self._used = self._swept_rows = len(begins)
        self._swept_positions = len(positions)
