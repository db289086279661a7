"""Placements against a plain dict of positions."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from ackq_broker.core.state.block_sizes import BlockSizes, pack
from ackq_broker.core.state.placements import PAGE_ROWS, Placement, Placements, Rows, merge


def placement(first: int, count: int, block: int, selected: list[int] | None) -> Placement:
    rows, durable = BitMap(selected) if selected else None, block % 3 != 0
    return Placement(first, count, block, count * 10, block, block, durable, 5, rows)


def filled(runs: list[tuple[int, bool]]) -> tuple[Placements, dict[int, tuple[int, int]]]:
    """Runs of (rows, scattered), one of each block; and the block and row of each position."""
    placements, expected, first = Placements(), {}, 1
    for block, (count, scattered) in enumerate(runs, 1):
        selected = [2 * i for i in range(count)] if scattered and count > 1 else None
        placements.append(placement(first, count, block, selected))
        for index in range(count):
            expected[first + index] = (block, selected[index] if selected else 5 + index)
        first += count
    return placements, expected


def singles(count: int) -> Placements:
    """Placements of one row each, at the positions 1 to `count`."""
    return filled([(1, False)] * count)[0]


def wide(count: int) -> Placements:
    """Four placements of `count` rows each."""
    placements = Placements()
    for block in range(4):
        placements.append(placement(1 + block * count, count, block + 1, None))
    return placements


def dumped(placements: Placements) -> tuple[bytes, tuple[object, ...]]:
    """The runs and the scattered rows, as a snapshot has them."""
    runs, scattered = placements.dump()
    return bytes(runs), tuple(scattered.items)


def rows_of(positions: list[int]) -> Rows:
    values = np.array(positions, np.int64)
    return Rows(values, values, np.ones(len(values), np.int64), np.zeros(len(values), np.bool_))


def located(placements: Placements, positions: list[int]) -> list[tuple[int, int]]:
    """(block, row) of each position."""
    found = []
    for piece in placements.pieces("q", rows_of(positions)):
        rows = piece.rows
        if isinstance(rows, tuple):
            rows = np.arange(rows[0], rows[0] + rows[1])
        found += [(piece.block_id, int(row)) for row in rows]
    return found


@settings(max_examples=60)
@given(
    runs=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=40),
    data=st.data(),
)
def test_sizes_are_those_of_each_position(runs: list[list[int]], data: st.DataObject) -> None:
    """Q3, I5: by columns, the sizes are those by position; also when moved or removed."""
    block_sizes = BlockSizes(
        (block, pack(np.array([0] * 5 + sizes)))
        for block, sizes in enumerate(runs, 1)
        if len(set(sizes)) > 1
    )
    source, target = Placements(block_sizes), Placements(block_sizes)
    expected: dict[int, int] = {}
    for block, sizes in enumerate(runs, 1):
        first, size = len(expected) + 1, sum(sizes)
        source.append(placement(first, len(sizes), block, None)._replace(payload_bytes=size))
        expected.update(enumerate(sizes, first))
    moving = data.draw(st.sets(st.sampled_from(sorted(expected)), min_size=1))
    target.extend(source.moves(BitMap64(moving)), 1, 5, 5)
    moved = [expected.pop(position) for position in sorted(moving)]
    source.remove(BitMap64(moving))
    for placements, sizes in ((source, expected), (target, dict(enumerate(moved, 1)))):
        some = sorted(data.draw(st.sets(st.sampled_from(sorted(sizes))))) if sizes else []
        some_sizes = [sizes[position] for position in some]
        assert placements.payload_bytes == sum(sizes.values())
        assert placements.sizes(BitMap64(some)).tolist() == some_sizes
        assert placements.size(BitMap64(some)) == sum(some_sizes)
        bound = data.draw(st.integers(0, 300))
        totals = [total for total in np.cumsum(some_sizes).tolist() if total <= bound]
        fitting = len(totals), int(totals[-1]) if totals else 0
        assert placements.fit(BitMap64(some), len(some), bound) == fitting


counts = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=80)


@settings(max_examples=60)
@given(runs=counts, data=st.data())
def test_placements_find_what_a_dict_finds(runs, data) -> None:
    """I5: by runs and pages, the rows, sizes and blocks are those by position."""
    placements, expected = filled(runs)
    for _ in range(3):
        positions = sorted(expected)
        gone = data.draw(st.sets(st.sampled_from(positions))) if positions else set()
        blocks = {expected[position][0] for position in gone}
        expected = {p: place for p, place in expected.items() if p not in gone}
        blocks -= {block for block, _ in expected.values()}
        assert set(placements.remove(BitMap64(gone))) == blocks
        assert placements.live == len(expected)
        assert placements.payload_bytes == 10 * len(expected)
        assert located(placements, sorted(expected)) == [expected[p] for p in sorted(expected)]
        again = Placements.load(*dumped(placements))
        assert dumped(again) == dumped(placements)
        placements = again
    alive = {block for block, _ in expected.values()}
    assert set(placements.block_ids()) == alive
    transient = placements.transient() & BitMap64(expected)
    some = BitMap64(p for p in expected if p % 3)
    assert placements.size(some) == 10 * len(some)
    assert list(transient) == [p for p in sorted(expected) if expected[p][0] % 3 == 0]
    for position in expected:
        assert placements.published_us(position) == expected[position][0]
    ranks, sizes = placements.cuts(BitMap64(expected))
    assert sizes.sum() == 10 * len(expected)
    assert len(ranks) == len(alive)
    for bound in range(0, 10 * len(expected), 35):
        fitting = bound // 10, bound // 10 * 10
        assert placements.fit(BitMap64(expected), len(expected), bound) == fitting


@settings(max_examples=60)
@given(runs=counts, data=st.data())
def test_moved_runs_are_where_they_were(runs: list[tuple[int, bool]], data: st.DataObject) -> None:
    """C13, I5: the same rows in the same order at the tail of another queue, and in its dump."""
    (source, expected), target = filled(runs), Placements()
    target.append(placement(1, 7, 99, None))
    dump, left, following = dumped(source), set(expected), 8
    for at_us in (100, 200):
        if not left:
            break
        moving = data.draw(st.sets(st.sampled_from(sorted(left)), min_size=1))
        left -= moving
        moved = source.moves(BitMap64(moving))
        target.extend(moved, following, at_us, 10 * at_us)
        new = list(range(following, following + len(moving)))
        following += len(moving)
        assert moved.messages == len(moving)
        assert moved.block_ids == sorted({block for block, _ in located(source, sorted(moving))})
        assert located(target, new) == located(source, sorted(moving))
        assert {target.published_us(position) for position in new} == {at_us}
        assert target.visible_by(10 * at_us) == new[-1]
        assert target.size(BitMap64(new)) == 10 * len(new)
        assert len(target.transient() & BitMap64(new)) == len(source.transient() & BitMap64(moving))
    assert dumped(source) == dump
    assert (target.live, target.payload_bytes) == (following - 1, 10 * (following - 1))
    assert dumped(Placements.load(*dumped(target))) == dumped(target)


def test_moved_runs_fill_pages_as_others_do() -> None:
    """I5: a page is bounded in runs and in positions, however many runs move together."""
    target, ends = Placements(), Placements()
    target.append(placement(1, 10, 1, None))
    target.extend(singles(3 * PAGE_ROWS).moves(BitMap64(range(1, 3 * PAGE_ROWS + 1))), 11, 5, 5)
    assert [page.used for page in target._pages] == [PAGE_ROWS] * 3 + [1]
    assert located(target, [11 + 2 * PAGE_ROWS]) == [(2 * PAGE_ROWS + 1, 5)]
    ends.extend(wide(200_000).moves(BitMap64(range(1, 800_001))), 1, 5, 5)
    assert [page.used for page in ends._pages] == [2, 2]
    assert located(ends, [200_000, 400_001]) == [(1, 200_004), (3, 5)]


def test_pages_are_packed_and_dropped() -> None:
    """I5: the rest of a large queue does not keep the pages of removed messages."""
    placements = singles(4 * PAGE_ROWS)
    survivors = BitMap64(range(7, 4 * PAGE_ROWS, 100))
    gone = BitMap64(range(1, 4 * PAGE_ROWS + 1)) - survivors
    assert len(placements.remove(gone)) == len(gone)
    assert located(placements, list(survivors)) == [(p, 5) for p in survivors]
    assert dumped(Placements.load(*dumped(placements))) == dumped(placements)
    assert placements.visible_by(PAGE_ROWS) == 1007
    assert placements.visible_by(6) == 0
    assert placements.remove(survivors) == list(survivors)
    placements.append(placement(5 * PAGE_ROWS, 2, 1, None))
    assert located(placements, [5 * PAGE_ROWS + 1]) == [(1, 6)]


def test_long_runs_end_a_page() -> None:
    """I5: the positions of a page are bounded, and so is one step of work."""
    placements = wide(300_000)
    part = BitMap64(range(299_000, 301_001))
    assert placements.fit(part, 10_000, 10**9) == (2001, 20_010)
    assert located(placements, [300_000, 300_001]) == [(1, 300_004), (2, 5)]


@settings(max_examples=200)
@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    target=st.integers(1, 100),
    most=st.integers(3, 10),
)
def test_merged_groups_cover_and_are_bounded(sizes: list[int], target: int, most: int) -> None:
    """S1: the last group ends at the last row, and the number of groups is bounded."""
    ends = merge(np.cumsum(sizes), target, most)
    assert ends[-1] == len(sizes) - 1
    assert (np.diff(ends) > 0).all()
    assert len(ends) <= most


def test_a_dump_is_of_its_instant() -> None:
    """I2, I5: runs appended, cut or removed before their pages are read do not change a dump."""
    placements = Placements()
    for first in range(1, 3 * PAGE_ROWS, 2):
        placements.append(placement(first, 2, first, [1, 5] if first % 3 else None))
    expected, late = dumped(placements), placements.dump()
    # Parts of runs in the first page, and most of the second; then one more run at the end.
    placements.remove(BitMap64(range(2, 200, 4)))
    placements.remove(BitMap64(range(2 * PAGE_ROWS + 1, 3 * PAGE_ROWS - 30)))
    placements.append(placement(first + 2, 9, first + 2, None))
    runs, scattered = late
    assert (bytes(runs), tuple(scattered.items)) == expected
    assert runs.size == len(expected[0])
    assert dumped(placements) != expected
