"""Origin keys of positions: appended in the order of positions, looked up in batches.

A row is a position, its key (two uint64) and its check (uint64), in chunks that are never written
to again. Each chunk is also sorted by the first half of the key, so that the keys of a block are
found by one binary search per chunk. Chunks of similar length are merged, up to a bound: a million
rows have some dozen. Removed rows leave their chunk when half of all rows are removed. Chunks are
an index: results and dumps depend on the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.pieces import Parts

Uint64s = NDArray[np.uint64]

# Sorting this many rows takes 20 ms.
_MOST_ROWS: Final = 1 << 18
# Fewer removed rows are not worth packing.
_PACK_ROWS: Final = 4_096


class _Chunk(NamedTuple):
    """Rows ascending by position; `firsts` are the first key halves, sorted; `order` their rows."""

    positions: Int64s
    keys: Uint64s
    checks: Uint64s
    firsts: Uint64s
    order: Int64s


class DumpedKeys(NamedTuple):
    """The keys and checks of all positions, ascending, as bytes in parts."""

    keys: Parts
    checks: Parts


class OriginKeys:
    """Origin keys of `positions`; `keyless` positions have a key of zeros, which is never found."""

    __slots__ = ("_chunks", "_gone", "keyless", "positions")

    def __init__(self) -> None:
        self.positions = BitMap64()
        self.keyless = BitMap64()
        self._chunks: list[_Chunk] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, positions: Int64s, keys: Uint64s, checks: Uint64s) -> None:
        """Adds rows: ascending positions, above all earlier ones; keys of the shape (rows, 2)."""
        assert len(positions)
        assert not self._chunks or positions[0] > self._chunks[-1].positions[-1]
        self.positions |= bitmaps.of(positions)
        keyless = positions[~keys.any(axis=1)]
        if len(keyless):
            self.keyless |= bitmaps.of(keyless)
        self._chunks.append(_chunk(positions, keys, checks))
        while len(self._chunks) > 1:
            before, last = self._chunks[-2:]
            rows = len(before.positions) + len(last.positions)
            if len(before.positions) >= 2 * len(last.positions) or rows > _MOST_ROWS:
                break
            self._chunks[-2:] = self._merged((before, last))

    def remove(self, positions: BitMap64) -> None:
        """Removes positions."""
        self._gone += self.positions.intersection_cardinality(positions)
        self.positions -= positions
        self.keyless -= positions
        if self._gone > len(self.positions) + _PACK_ROWS:
            chunks, self._chunks, self._gone = self._chunks, [], 0
            group: list[_Chunk] = []
            for chunk in chunks:
                if sum(len(each.positions) for each in (*group, chunk)) > 2 * _MOST_ROWS:
                    self._chunks += self._merged(group)
                    group = []
                group.append(chunk)
            self._chunks += self._merged(group)

    def find(self, firsts: Uint64s) -> Int64s:
        """The positions, ascending, whose key has one of these first halves, sorted and unique."""
        found = []
        for chunk in self._chunks:
            if not len(chunk.firsts):
                continue
            begins = np.searchsorted(chunk.firsts, firsts)
            hits = np.flatnonzero(chunk.firsts.take(begins, mode="clip") == firsts)
            if len(hits):
                begins = begins[hits]
                counts = np.searchsorted(chunk.firsts, firsts[hits], "right") - begins
                found.append(chunk.positions[chunk.order[bitmaps.expanded(begins, counts)]])
        if not found:
            return np.empty(0, np.int64)
        return bitmaps.array(bitmaps.of(np.concatenate(found)) & self.positions)

    def at(self, positions: Int64s) -> tuple[Uint64s, Uint64s]:
        """The keys and checks of present positions, which ascend."""
        keys = np.empty((len(positions), 2), np.uint64)
        checks = np.empty(len(positions), np.uint64)
        firsts = np.array([chunk.positions[0] for chunk in self._chunks], np.int64)
        edges = np.append(np.searchsorted(positions, firsts), len(positions)).tolist()
        for chunk, begin, end in zip(self._chunks, edges[:-1], edges[1:], strict=True):
            if begin < end:
                rows = np.searchsorted(chunk.positions, positions[begin:end])
                keys[begin:end], checks[begin:end] = chunk.keys[rows], chunk.checks[rows]
        return keys, checks

    def dump(self) -> DumpedKeys:
        """The keys and checks as they are now; later changes do not affect them."""
        chunks, held = tuple(self._chunks), self.positions.copy()
        return DumpedKeys(
            Parts(lambda: _held(chunks, held, "keys"), 16 * len(held)),
            Parts(lambda: _held(chunks, held, "checks"), 8 * len(held)),
        )

    @classmethod
    def load(cls, positions: BitMap64, keys: bytes, checks: bytes) -> OriginKeys:
        """Restores the keys from `positions` and the output of `dump`."""
        self = cls()
        values = bitmaps.array(positions)
        halves = np.frombuffer(keys, "<u8").reshape(-1, 2).astype(np.uint64)
        column = np.frombuffer(checks, "<u8").astype(np.uint64)
        for begin in range(0, len(values), _MOST_ROWS):
            part = slice(begin, begin + _MOST_ROWS)
            self.append(values[part], halves[part], column[part])
        return self

    def _merged(self, chunks: Sequence[_Chunk]) -> list[_Chunk]:
        """Merges the remaining rows of consecutive chunks into one chunk, or none."""
        columns, rows = [], 0
        for chunk in chunks:
            kept = _rows(chunk, self.positions)
            gone = len(chunk.positions) - len(kept)
            order, firsts = chunk.order, chunk.firsts
            if gone:
                self._gone = max(self._gone - gone, 0)
                numbers = np.full(len(chunk.positions), -1, np.int64)
                numbers[kept] = np.arange(len(kept))
                order = numbers[order]
                order, firsts = order[order >= 0], firsts[order >= 0]
            columns.append((*(column[kept] for column in chunk[:3]), firsts, order + rows))
            rows += len(kept)
        if not rows:
            return []
        positions, keys, checks, firsts, order = map(np.concatenate, zip(*columns, strict=True))
        # Each part is sorted already: a stable sort merges them.
        merged = np.argsort(firsts, kind="stable")
        return [_Chunk(positions, keys, checks, firsts[merged], order[merged])]


def _chunk(positions: Int64s, keys: Uint64s, checks: Uint64s) -> _Chunk:
    with_key = np.flatnonzero(keys.any(axis=1))
    order = with_key[np.argsort(keys[with_key, 0], kind="stable")]
    return _Chunk(positions, keys, checks, keys[order, 0], order)


def _rows(chunk: _Chunk, held: BitMap64) -> Int64s:
    """Row indexes of a chunk whose positions are held."""
    first, last = int(chunk.positions[0]), int(chunk.positions[-1])
    left = bitmaps.array(bitmaps.between(held, first, last))
    rows: Int64s = np.searchsorted(chunk.positions, left)
    return rows


def _held(chunks: Sequence[_Chunk], held: BitMap64, column: str) -> Iterator[NDArray[Any]]:
    """Yields a column of the rows whose positions are held, chunk by chunk."""
    for chunk in chunks:
        yield getattr(chunk, column)[_rows(chunk, held)]
