"""Stored blocks compacted to their live rows."""

import random

import numpy as np
import pytest
from pyroaring import BitMap

from ackq.errors import BlockNotFoundError, MalformedBlockError
from ackq.wire import block
from ackq_broker.core.commands import Origin, Piece, Run
from ackq_broker.service.blocks.compacted import compact, unpack
from ackq_broker.service.blocks.frames import FrameBuilder
from tests.fakes.blocks import encoded, rows

ROWS = 40


def whole():
    return encoded(
        body=[b"%d" % row for row in range(ROWS)],
        headers=[[("n", str(row))] if row % 3 else [] for row in range(ROWS)],
        message_id=[str(row) if row % 2 else None for row in range(ROWS)],
        routing_key="key",
        published_at_us=7,
        delivery_mode=2,
    )


def piece(numbers, *, origin=False):
    """A piece of the given rows, whose tags are the row numbers plus 100."""
    runs = tuple(Run(100 + number, 1, 1) for number in numbers)
    consecutive = numbers[-1] - numbers[0] + 1 == len(numbers)
    selection = (numbers[0], len(numbers)) if consecutive else np.array(numbers, np.uint32)
    dead = Origin("dead", np.array(numbers), np.ones(len(numbers)), "rejected", "", 0, "dead", 1)
    return Piece(1, "q", selection, runs, dead if origin else None)


def read(data, *pieces, settled_ok=False):
    """Tag and columns of each row that a reader gets."""
    found = []
    for frame in iter(FrameBuilder(pieces, lambda _: data, settled_ok=settled_ok).next_frame, None):
        header = frame.header
        tags = [
            first + at
            for first, count in zip(header.first_tag, header.rows, strict=True)
            for at in range(count)
        ]
        found += zip(tags, *rows(frame.block).values(), strict=True)
    return found


def test_a_row_reads_the_same_whatever_was_left_out():
    """K7, C13: rows, tags, headers and origins of the remaining rows are those of the whole block,
    also when it was compacted several times.
    """
    chance = random.Random(3)
    for _ in range(200):
        data, left = whole(), set(range(ROWS))
        for _ in range(chance.randint(1, 3)):
            left = set(chance.sample(sorted(left), chance.randint(1, len(left))))
            data = compact(data, BitMap(left))
        wanted = sorted(chance.sample(sorted(left), chance.randint(1, len(left))))
        sought = piece(wanted, origin=chance.random() < 0.3)
        assert read(data, sought) == read(whole(), sought)


def test_rows_that_went_are_left_out():
    """Q5, C11, S2: a browse or delivery begun before a compaction gets the rest, same tags.

    A fetch is refused, as when the block is deleted.
    """
    data = compact(whole(), BitMap([3, 4, 9]))
    pieces = [piece([1, 2]), piece([2, 3, 4, 5]), piece([8, 9, 20], origin=True)]

    found = read(data, *pieces, settled_ok=True)

    assert [(tag, body) for tag, body, *_ in found] == [(103, b"3"), (104, b"4"), (109, b"9")]
    assert dict(found[2][3])["ackq-dead-position"] == "9"
    assert found[:2] == read(whole(), piece([3, 4]))
    with pytest.raises(BlockNotFoundError, match="block 1"):
        read(data, piece([3, 4, 5]))


def test_what_is_left_leaves_as_stored():
    """K7, I2: a reader of all remaining rows gets the bytes that are on disk.

    An older version refuses a compacted block, instead of misreading its rows.
    """
    left = list(range(10, 20))
    data = compact(whole(), BitMap(left))
    assert data.endswith(FrameBuilder([piece(left)], lambda _: data).next_frame().block)
    with pytest.raises(MalformedBlockError):
        block.split(data)
    plain = whole()
    assert unpack(plain).data is plain
