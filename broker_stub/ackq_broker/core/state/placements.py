"""Placements of the messages of one queue: runs of positions, each in one block.

Positions are assigned in ascending order and never reused, so the store is an append-only log with
holes: pages of up to `PAGE_ROWS` runs, each page one numpy array. Invariant: a run is present
exactly as long as one of its positions is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.pieces import Listed, Parts
from ackq_broker.core.commands import BrowseChunk, Piece, Run
from ackq_broker.core.state.block_sizes import BlockSizes

PAGE_ROWS: Final = 1024
_FIRST_PAGE_ROWS: Final = 8
# Bounds the arrays of one step of work to 2 MiB, unless a single run is larger than that.
_PAGE_POSITIONS: Final = 1 << 18
_NO_END: Final = 1 << 62
# Pages with fewer rows are not worth packing when half of them are empty.
_PACK_ROWS: Final = 64

_ROW: Final = np.dtype(
    [
        ("first", "<i8"),
        ("count", "<i8"),
        ("live", "<i8"),
        ("bytes", "<i8"),
        ("block", "<i8"),
        ("start", "<i8"),
        ("published_us", "<i8"),
        ("sequence", "<i8"),
        ("durable", "?"),
        ("scattered", "?"),
    ]
)


_NO_CUTS: Final = np.empty(0, np.int64)


class Placement(NamedTuple):
    """A run of positions that lies in one block.

    Attributes:
        payload_bytes: Payload bytes of all its rows.
        published_us: When it became visible, by the broker's clock.
        sequence: Sequence of the record that made it visible.
        durable: Whether it survives a restart (Q7).
        start: The block's row of the first position, when the rows are consecutive.
        selected: Otherwise the block's rows, one for each position in order.
    """

    first_position: int
    rows: int
    block_id: int
    payload_bytes: int
    published_us: int
    sequence: int
    durable: bool
    start: int
    selected: BitMap | None


class Rows(NamedTuple):
    """Columns of the messages that a reader gets; a label is a fetch's tag or a browse's position.

    `cuts` are indexes at which a new piece must begin, even within a run. `rewound` has what
    `Queue.rewound` has; empty: no message was rewound.
    """

    positions: Int64s
    labels: Int64s
    delivery_counts: Int64s
    leased: NDArray[np.bool_]
    cuts: Int64s = _NO_CUTS
    rewound: Int64s = _NO_CUTS

    def marked(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yields the pieces with the batch of then, which the rows of a piece have in common."""
        at = 0
        for piece in pieces:
            yield piece._replace(rewound=int(self.rewound[at]))
            at += sum(run.rows for run in piece.runs)


class Moved(NamedTuple):
    """Runs that leave one queue for another, one row each, cut to the positions that move.

    `selected` are the block's rows of each run that has scattered ones, in order.
    """

    runs: NDArray[Any]
    selected: list[BitMap]

    @property
    def messages(self) -> int:
        """Number of messages that move."""
        return int(self.runs["count"].sum())

    @property
    def block_ids(self) -> list[int]:
        """The block of every run."""
        blocks: list[int] = self.runs["block"].tolist()
        return blocks


class _RunPage:
    """A page of consecutive runs; `used` rows, of which `present` still have a live position."""

    __slots__ = ("_rows", "_shared", "present", "used")

    def __init__(self, rows: NDArray[Any], used: int) -> None:
        self._rows = rows
        self._shared = False
        self.used = used
        self.present = used

    @property
    def rows(self) -> NDArray[Any]:
        return self._rows[: self.used]

    def column(self, name: str) -> Int64s:
        """Returns a view of a column: writing to it changes the page."""
        return self._rows[name][: self.used]

    def share(self) -> NDArray[Any]:
        """Returns the current rows for a later reader; a later change copies the page first."""
        self._shared = True
        return self.rows

    def own(self) -> None:
        """Copies the rows if they were shared; call it before changing a row."""
        if self._shared:
            self._rows = self._rows.copy()
            self._shared = False

    def append(self, row: tuple[Any, ...]) -> None:
        self._make_room(1)
        self._rows[self.used] = row
        self.used += 1
        self.present += 1

    def extend(self, rows: NDArray[Any]) -> None:
        end = self.used + len(rows)
        self._make_room(len(rows))
        self._rows[self.used : end] = rows
        self.used = end
        self.present += len(rows)

    def _make_room(self, rows: int) -> None:
        if self.used + rows > len(self._rows):
            grown = np.zeros(min(max(2 * self.used, self.used + rows), PAGE_ROWS), _ROW)
            grown[: self.used] = self.rows
            self._rows = grown

    def pack(self) -> None:
        """Frees the space of removed runs, when they are most of the page."""
        if self.used >= _PACK_ROWS and self.present * 2 < self.used:
            self._rows = self.rows[self.column("live") > 0]
            self.used = len(self._rows)


class _Hit(NamedTuple):
    """Runs of a page: run i has the sought `positions` from begins[i] to before ends[i].

    `rows` is a view: writing to it changes the page. `base` is the number of sought positions on
    earlier pages.
    """

    page: _RunPage
    rows: NDArray[Any]
    positions: Int64s
    base: int
    begins: Int64s
    ends: Int64s

    @property
    def counts(self) -> Int64s:
        return self.ends - self.begins

    def sizes(self) -> Int64s:
        """Payload bytes of the positions in each run, when all its messages have the same size."""
        share: Int64s = self.rows["bytes"] * self.counts // np.maximum(self.rows["live"], 1)
        return share


class Placements:
    """The runs of one queue: `live` positions are left, with `payload_bytes` in total.

    Args:
        block_sizes: Message sizes of the blocks in which they differ.
    """

    __slots__ = ("_block_sizes", "_firsts", "_pages", "_scattered", "live", "payload_bytes")

    def __init__(self, block_sizes: BlockSizes | None = None) -> None:
        self._block_sizes = BlockSizes() if block_sizes is None else block_sizes
        self._pages: list[_RunPage] = []
        self._firsts: list[int] = []
        self._scattered: dict[int, BitMap] = {}
        self.live = 0
        self.payload_bytes = 0

    def append(self, placement: Placement) -> None:
        """Appends a run after all others."""
        first = placement.first_position
        page = self._page_for(first)
        if placement.selected is not None:
            self._scattered[first] = placement.selected
        page.append(
            (
                first,
                placement.rows,
                placement.rows,
                placement.payload_bytes,
                placement.block_id,
                placement.start,
                placement.published_us,
                placement.sequence,
                placement.durable,
                placement.selected is not None,
            )
        )
        self.live += placement.rows
        self.payload_bytes += placement.payload_bytes

    def extend(self, moved: Moved, first: int, published_us: int, sequence: int) -> None:
        """Appends the runs of another queue, which get the positions from `first` on."""
        runs, counts = moved.runs.copy(), moved.runs["count"]
        firsts = runs["first"] = first + np.cumsum(counts) - counts
        runs["published_us"], runs["sequence"] = published_us, sequence
        self._scattered.update(zip(firsts[runs["scattered"]].tolist(), moved.selected, strict=True))
        at = 0
        while at < len(runs):
            page = self._page_for(int(firsts[at]))
            near = int(np.searchsorted(firsts, self._firsts[-1] + _PAGE_POSITIONS))
            end = min(at + PAGE_ROWS - page.used, near)
            page.extend(runs[at:end])
            at = end
        self.live += moved.messages
        self.payload_bytes += int(runs["bytes"].sum())

    def moves(self, positions: BitMap64) -> Moved:
        """Returns the runs of present positions as copies for another queue; changes nothing."""
        parts = [np.empty(0, _ROW)]
        selected: list[BitMap] = []
        for hit in self._hits(positions):
            chosen = hit.counts > 0
            runs, begins, ends = hit.rows[chosen], hit.begins[chosen], hit.ends[chosen]
            heads, tails = hit.positions[begins], hit.positions[ends - 1]
            scattered = runs["scattered"] | (tails - heads + 1 > ends - begins)
            starts = runs["start"] + heads - runs["first"]
            for index in np.flatnonzero(scattered).tolist():
                inside = hit.positions[begins[index] : ends[index]]
                rows = self._select(runs[index], inside)
                assert not isinstance(rows, tuple)
                selected.append(BitMap(rows.tolist()))
                starts[index] = rows[0]
            runs["start"], runs["scattered"] = starts, scattered
            runs["count"] = runs["live"] = ends - begins
            runs["bytes"] = self._sizes(hit)[chosen]
            parts.append(runs)
        return Moved(np.concatenate(parts), selected)

    def remove(self, positions: BitMap64) -> list[int]:
        """Removes present positions; returns the block of each run that has none left."""
        finished_blocks: list[int] = []
        for hit in self._hits(positions, change=True):
            rows, counts, sizes = hit.rows, hit.counts, self._sizes(hit)
            rows["live"] -= counts
            rows["bytes"] -= sizes
            finished = rows[(counts > 0) & (rows["live"] == 0)]
            finished_blocks += finished["block"].tolist()
            for first in finished["first"][finished["scattered"]].tolist():
                del self._scattered[first]
            hit.page.present -= len(finished)
            self.live -= int(counts.sum())
            self.payload_bytes -= int(sizes.sum())
        if positions:
            self._tidy(positions.min(), positions.max())
        return finished_blocks

    def fit(self, positions: BitMap64, messages: int, payload_bytes: int) -> tuple[int, int]:
        """Number of lowest positions that fit both bounds, and their bytes."""
        taken = used = 0
        for hit in self._hits(bitmaps.lowest(positions, messages)):
            counts = hit.counts
            totals = np.cumsum(self._sizes(hit))
            whole = int(np.searchsorted(totals, payload_bytes - used, side="right"))
            taken += int(counts[:whole].sum())
            used += int(totals[whole - 1]) if whole else 0
            if whole < len(counts):
                part = np.cumsum(self._each(hit, whole))
                more = int(np.searchsorted(part, payload_bytes - used, side="right"))
                return taken + more, used + (int(part[more - 1]) if more else 0)
        return taken, used

    def cuts(self, positions: BitMap64) -> tuple[Int64s, Int64s]:
        """For each run with some of `positions`: how many lie before its end, and its bytes."""
        ranks, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for hit in self._hits(positions):
            counts = hit.counts
            present = counts > 0
            ranks.append((hit.base + hit.ends)[present])
            sizes.append(self._sizes(hit)[present])
        return np.concatenate(ranks), np.concatenate(sizes)

    def size(self, positions: BitMap64) -> int:
        """Payload bytes of these positions together."""
        return sum(int(self._sizes(hit).sum()) for hit in self._hits(positions))

    def blocks_of(self, positions: BitMap64) -> Int64s:
        """The blocks in which these positions lie, ascending, each once."""
        found = [np.empty(0, np.int64)]
        found += [hit.rows["block"][hit.counts > 0] for hit in self._hits(positions)]
        return np.unique(np.concatenate(found))

    def sizes(self, positions: BitMap64) -> Int64s:
        """Payload bytes of each of these positions."""
        found = [np.empty(0, np.int64)]
        for hit in self._hits(positions):
            found += [self._each(hit, index) for index in np.flatnonzero(hit.counts).tolist()]
        return np.concatenate(found)

    def browse_chunks(
        self, positions: BitMap64, target_bytes: int, most: int
    ) -> tuple[BrowseChunk, ...]:
        """Cuts these positions along runs into at most `most` pieces of about `target_bytes`."""
        if not positions:
            return ()
        runs = []
        for hit in self._hits(positions):
            firsts, counts = hit.rows["first"], hit.counts
            lasts = firsts + hit.rows["count"] - 1
            columns = np.stack((firsts, lasts, counts, self._sizes(hit)))
            runs.append(columns[:, counts > 0])
        first, last, rows, sizes = np.concatenate(runs, axis=1)
        ends = merge(np.cumsum(sizes), target_bytes, most)
        begins = np.concatenate(([0], ends[:-1] + 1))
        chunks = (
            first[begins],
            last[ends],
            np.add.reduceat(rows, begins),
            np.add.reduceat(sizes, begins),
        )
        return tuple(BrowseChunk(*row) for row in zip(*(c.tolist() for c in chunks), strict=True))

    def published_us(self, position: int) -> int:
        """Publish time of a present position."""
        page = self._pages[self._page_index(position)]
        index = int(np.searchsorted(page.column("first"), position, side="right")) - 1
        return int(page.column("published_us")[index])

    def visible_by(self, sequence: int) -> int:
        """The last position that a record up to `sequence` made visible; 0 when none is left."""
        index = bisect_right(self._pages, sequence, key=lambda p: int(p.column("sequence")[0])) - 1
        if index < 0:
            return 0
        page = self._pages[index]
        row = int(np.searchsorted(page.column("sequence"), sequence, side="right")) - 1
        return int(page.column("first")[row] + page.column("count")[row]) - 1

    def transient(self) -> BitMap64:
        """The positions of runs that do not survive a restart, removed ones included."""
        return self._whole(lambda rows: ~rows["durable"])

    def of_blocks(self, block_ids: BitMap64) -> BitMap64:
        """The positions of runs in these blocks, removed ones included."""
        sought = bitmaps.array(block_ids)
        return self._whole(lambda rows: np.isin(rows["block"], sought))

    def block_ids(self) -> list[int]:
        """The block of every run."""
        return [
            block
            for page in self._pages
            for block in page.column("block")[page.column("live") > 0].tolist()
        ]

    def durable_blocks(self) -> BitMap64:
        """The blocks of the runs that survive a restart."""
        found = BitMap64()
        for page in self._pages:
            rows = page.rows
            found |= bitmaps.of(rows["block"][(rows["live"] > 0) & rows["durable"]])
        return found

    def loads(self) -> Iterator[Int64s]:
        """Block, rows, live rows and their payload of every run: four columns, page by page."""
        for page in tuple(self._pages):
            rows = page.rows[page.column("live") > 0]
            yield np.stack([rows[name] for name in ("block", "count", "live", "bytes")])

    def runs_in(self, block_ids: Int64s) -> NDArray[Any]:
        """The runs in the given blocks, ascending, one row each."""
        found = [np.empty(0, _ROW)]
        for page in self._pages:
            blocks = page.column("block")
            begin, end = np.searchsorted(block_ids, (blocks.min(), blocks.max() + 1)).tolist()
            if begin < end:
                at = np.searchsorted(block_ids[begin : end - 1], blocks)
                chosen = (block_ids[begin + at] == blocks) & (page.column("live") > 0)
                found.append(page.rows[chosen])
        return np.concatenate(found)

    def rows_of(self, run: Any, present: BitMap64) -> BitMap:
        """The rows of a run in its block whose positions are present."""
        first = int(run["first"])
        inside = bitmaps.between(present, first, first + int(run["count"]) - 1)
        rows = self._select(run, bitmaps.array(inside))
        if isinstance(rows, tuple):
            return bitmaps.row_range(rows[0], rows[0] + rows[1] - 1)
        return BitMap(rows.tolist())

    def pieces(self, queue: str, rows: Rows) -> Iterator[Piece]:
        """The block rows of positions that are all present, one piece for each run."""
        broken = (
            (np.diff(rows.labels) != 1)
            | (np.diff(rows.delivery_counts) != 0)
            | (np.diff(rows.leased) != 0)
        )
        breaks = np.flatnonzero(broken) + 1
        cuts = rows.cuts
        if len(rows.rewound):
            cuts = np.union1d(cuts, np.flatnonzero(np.diff(rows.rewound)) + 1)
        at = 0
        while at < len(rows.positions):
            page_index = self._page_index(int(rows.positions[at]))
            page = self._pages[page_index]
            end = len(rows.positions)
            if page_index + 1 < len(self._firsts):
                end = int(np.searchsorted(rows.positions, self._firsts[page_index + 1]))
            indices = np.searchsorted(page.column("first"), rows.positions[at:end], "right") - 1
            changes = np.flatnonzero(np.diff(indices)) + 1
            if len(cuts):
                changes = np.union1d(changes, cuts[(cuts > at) & (cuts < end)] - at)
            edges = np.array((at, *(at + changes).tolist(), end))
            found = page.rows[indices[edges[:-1] - at]]
            selected = self._select_each(found, rows.positions, edges)
            runs = _runs(rows, breaks, edges)
            yield from map(Piece, found["block"].tolist(), repeat(queue), selected, runs)
            at = end

    def dump(self) -> tuple[Parts, Listed]:
        """The runs and the scattered rows as of now, independent of the paging.

        A page that changes later is copied first.
        """
        pages = [page.share() for page in self._pages]
        size = sum(page.present for page in self._pages) * _ROW.itemsize
        # Positions are assigned in ascending order, so the items of the dict ascend as well.
        scattered = self._scattered.copy()
        return (
            Parts(lambda: (rows[rows["live"] > 0] for rows in pages), size),
            Listed(len(scattered), scattered.items()),
        )

    @classmethod
    def load(
        cls,
        rows: bytes,
        scattered: tuple[tuple[int, BitMap], ...],
        block_sizes: BlockSizes | None = None,
    ) -> Placements:
        """Restores the placements from the output of `dump`."""
        self = cls(block_sizes)
        everything = np.frombuffer(rows, _ROW)
        page_of = np.arange(len(everything)) // PAGE_ROWS
        for index in range(int(page_of[-1]) + 1 if len(everything) else 0):
            page = everything[page_of == index].copy()
            self._pages.append(_RunPage(page, len(page)))
            self._firsts.append(int(page["first"][0]))
        self._scattered = dict(scattered)
        self.live = int(everything["live"].sum())
        self.payload_bytes = int(everything["bytes"].sum())
        return self

    def _whole(self, chosen: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> BitMap64:
        """Every position of the chosen runs, page by page."""
        found = BitMap64()
        for page in self._pages:
            rows = page.rows[chosen(page.rows)]
            for first, count in zip(rows["first"].tolist(), rows["count"].tolist(), strict=True):
                found.add_range(first, first + count)
        return found

    def _page_for(self, first: int) -> _RunPage:
        """The last page, or a new one for a run that begins at this position."""
        if (
            not self._pages
            or self._pages[-1].used == PAGE_ROWS
            or first - self._firsts[-1] >= _PAGE_POSITIONS
        ):
            self._pages.append(_RunPage(np.zeros(_FIRST_PAGE_ROWS, _ROW), 0))
            self._firsts.append(first)
        return self._pages[-1]

    def _page_index(self, position: int) -> int:
        return max(bisect_right(self._firsts, position) - 1, 0)

    def _hits(self, positions: BitMap64, *, change: bool = False) -> Iterator[_Hit]:
        """Yields the pages with some of `positions` in order, cut to the runs between them.

        Their rows may be written to only with `change`.
        """
        following = positions.min() if positions and self._pages else None
        while following is not None:
            index = self._page_index(following)
            page = self._pages[index]
            if change:
                page.own()
            end = self._firsts[index + 1] if index + 1 < len(self._firsts) else _NO_END
            inside = bitmaps.array(bitmaps.between(positions, following, end - 1))
            firsts = page.column("first")
            begin, last = np.searchsorted(firsts, inside[[0, -1]], "right").tolist()
            rows = page.rows[max(begin - 1, 0) : last]
            yield _Hit(
                page,
                rows,
                inside,
                positions.rank(following - 1),
                np.searchsorted(inside, rows["first"]),
                np.searchsorted(inside, rows["first"] + rows["count"]),
            )
            following = bitmaps.lowest_from(positions, end)

    def _sizes(self, hit: _Hit) -> Int64s:
        """Payload bytes of the sought positions in each run."""
        sizes, counts = hit.sizes(), hit.counts
        if len(self._block_sizes):
            # A run that is sought as a whole has all of its bytes, whatever its messages' sizes.
            cut = np.flatnonzero((counts > 0) & (counts < hit.rows["live"]))
            for index, block_id in zip(cut.tolist(), hit.rows["block"][cut].tolist(), strict=True):
                if self._block_sizes.column(block_id):
                    sizes[index] = self._each(hit, index).sum()
        return sizes

    def _each(self, hit: _Hit, index: int) -> Int64s:
        """Payload bytes of each sought position in a run that has at least one."""
        run, inside = hit.rows[index], hit.positions[hit.begins[index] : hit.ends[index]]
        block_id = int(run["block"])
        if self._block_sizes.column(block_id):
            return self._block_sizes.at(block_id, self._select(run, inside))
        # Rounded so that uneven shares add up to the run's total.
        totals = int(run["bytes"]) * np.arange(len(inside) + 1) // int(run["live"])
        each: Int64s = np.diff(totals)
        return each

    def _tidy(self, first: int, last: int) -> None:
        """Packs the pages from position `first` to `last`, and drops the empty ones."""
        begin, end = self._page_index(first), self._page_index(last) + 1
        kept = []
        for index in range(begin, end):
            page = self._pages[index]
            if page.present:
                page.pack()
                kept.append((page, self._firsts[index]))
        self._pages[begin:end] = [page for page, _ in kept]
        self._firsts[begin:end] = [first for _, first in kept]

    def _select_each(self, found: NDArray[Any], positions: Int64s, edges: Int64s) -> list[Any]:
        """As `_select`, for the positions between each two edges, which one of the rows has."""
        begins, ends = edges[:-1], edges[1:]
        heads, counts = positions[begins], ends - begins
        starts = heads - found["first"] + found["start"]
        selected: list[Any] = list(zip(starts.tolist(), counts.tolist(), strict=True))
        scattered = found["scattered"] | (positions[ends - 1] - heads >= counts)
        for index in np.flatnonzero(scattered).tolist():
            selected[index] = self._select(found[index], positions[begins[index] : ends[index]])
        return selected

    def _select(self, row: Any, positions: Int64s) -> tuple[int, int] | NDArray[np.uint32]:
        """The rows of the run's block at these positions."""
        indices: Int64s = positions - row["first"]
        if row["scattered"]:
            return bitmaps.row_array(self._scattered[int(row["first"])])[indices]
        indices += row["start"]
        if indices[-1] - indices[0] + 1 == len(indices):
            return int(indices[0]), len(indices)
        return indices.astype(np.uint32)


def merge(totals: Int64s, target_bytes: int, most: int) -> Int64s:
    """Cuts a list of sizes, given its running totals: returns the last index of each group.

    The list has at least one size; there are at most `most` groups of about the target each.
    """
    # Two groups fewer, for the rounding and for a leading group of empty messages.
    target = max(target_bytes, -(-int(totals[-1]) // (most - 2)))
    groups = (totals - 1) // target
    return np.append(np.flatnonzero(np.diff(groups)), len(totals) - 1)


def _runs(rows: Rows, breaks: Int64s, edges: Int64s) -> Iterator[tuple[Run, ...]]:
    """Yields the rows between each two edges as runs, which are cut at `breaks`, too."""
    inner = breaks[(breaks > edges[0]) & (breaks < edges[-1])]
    cuts = np.union1d(edges, inner) if len(inner) else edges
    begins = cuts[:-1]
    labels, deliveries, leased = (
        column[begins].tolist() for column in (rows.labels, rows.delivery_counts, rows.leased)
    )
    runs = map(Run, labels, (cuts[1:] - begins).tolist(), deliveries, leased)
    if not len(inner):
        return zip(runs, strict=True)  # one run each
    return (tuple(islice(runs, count)) for count in np.diff(np.searchsorted(cuts, edges)).tolist())
