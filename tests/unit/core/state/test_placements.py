"""Placements in many pages; their rows, sizes and order: `test_model`."""

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq_broker.core.state.placements import PAGE_ROWS, Placement, Placements, Rows
from tests.unit.core.harness import block_rows


def placement(first, count, block, selected):
    rows, durable = BitMap(selected) if selected else None, block % 3 != 0
    return Placement(first, count, block, count * 10, block, block, durable, 5, rows)


def singles(count):
    """Placements of one row each, at the positions 1 to `count`."""
    placements = Placements()
    for position in range(1, count + 1):
        placements.append(placement(position, 1, position, None))
    return placements


def dumped(placements):
    """The runs and the scattered rows, as a snapshot has them."""
    runs, scattered = placements.dump()
    return bytes(runs), tuple(scattered.items)


def rows_of(positions):
    values = np.array(positions, np.int64)
    return Rows(values, values, np.ones(len(values), np.int64), np.zeros(len(values), np.bool_))


def located(placements, positions):
    """(block, row) of each position."""
    found = placements.pieces("q", rows_of(positions))
    return [(piece.block_id, row) for piece in found for row in block_rows(piece)]


def test_pages_are_packed_and_dropped():
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


def test_a_dump_is_of_its_instant():
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
