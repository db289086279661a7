"""Frames of fetch and browse, built from pieces."""

import numpy as np
import pytest
from pyroaring import BitMap

from ackq import limits
from ackq.errors import BlockNotFoundError
from ackq.wire import columns
from ackq_broker.core.commands import MessageIdentity, Origin, Piece, Run
from ackq_broker.service.blocks.compacted import compact
from ackq_broker.service.blocks.frames import FrameBuilder
from tests.fakes.blocks import encoded, rows


class Store:
    """Blocks by id, with a list of the reads."""

    def __init__(self, *blocks):
        self.blocks = dict(enumerate(blocks, 1))
        self.reads = []

    def __call__(self, block_id):
        self.reads.append(block_id)
        if block_id not in self.blocks:
            raise BlockNotFoundError("gone", block=block_id)
        return self.blocks[block_id]


def piece(block_id, first, tag, count, *, queue="q", deliveries=1, leased=True):
    return Piece(block_id, queue, (first, count), (Run(tag, count, deliveries, leased),))


def built(store, *pieces, **options):
    """The frames of pieces."""
    return list(iter(FrameBuilder(pieces, store, **options).next_frame, None))


def runs(frame):
    header = frame.header
    queues = [header.queues[index] for index in header.queue_index]
    return list(
        zip(header.first_tag, header.rows, header.delivery_count, queues, strict=True),
    )


def identified(given, first):
    """The piece with identities: its rows are at consecutive positions of queue 7."""
    positions = np.arange(first, first + sum(run.rows for run in given.runs))
    return given._replace(identity=MessageIdentity("h", 7, positions))


def test_a_large_block_leaves_as_stored():
    """K7, L23: the bytes on disk, not even copied, also between small blocks or with ids."""
    count = limits.FRAME_TARGET_ROWS
    large = encoded(body=[b"L"] * count, message_id=["id"] * count, routing_key="q")
    store = Store(encoded(body=[b"s"]), large, encoded(body=[b"t"]))
    made = built(store, piece(1, 0, 1, 1), piece(2, 0, 2, count), piece(3, 0, 2 + count, 1))
    assert [runs(frame) for frame in made] == [
        [(tag, rows, 1, "q")] for tag, rows in ((1, 1), (2, count), (2 + count, 1))
    ]
    (with_ids,) = built(store, identified(piece(2, 0, 1, count), 1))
    wanted = columns.bits(("body", "message_id"))
    (pruned,) = built(store, piece(2, 0, 1, count), wanted=wanted)
    assert [frame.block is large for frame in (made[1], with_ids, pruned)] == [True] * 3


@pytest.mark.parametrize("compacted", [False, True])
def test_dead_letters_of_a_large_block_are_several_frames(monkeypatch, compacted):
    """S2, C13: a block is as large as a frame may be, and each row of it gets headers."""
    monkeypatch.setattr(limits, "MAX_FRAME_BYTES", 50_000)
    monkeypatch.setattr("ackq_broker.service.blocks.frames._LARGE_ROWS", 1)
    bodies = [b"%d" % number for number in range(1_000)]
    block = encoded(body=bodies, routing_key="q")
    if compacted:
        block, bodies = compact(block, BitMap(range(500, 1_000))), bodies[500:]
    first, count = 1_000 - len(bodies), len(bodies)
    numbers = np.arange(count)
    dead = Origin("work", numbers, numbers, "rejected", "no JSON", 0, "work", 1)
    frames = built(Store(block), piece(1, first, 1, count)._replace(origin=dead))
    assert len(frames) > 3
    assert all(len(frame.block) <= limits.MAX_FRAME_BYTES for frame in frames)
    made = [row for frame in frames for row in rows(frame.block)["body"]]
    assert made == bodies
    tags = [
        tag for frame in frames for first, n, *_ in runs(frame) for tag in range(first, first + n)
    ]
    assert tags == list(range(1, count + 1))
    headers = [dict(row) for frame in frames for row in rows(frame.block)["headers"]]
    assert [int(each["ackq-dead-position"]) for each in headers] == list(range(count))


def test_small_blocks_are_merged():
    """K7, S2: equal runs become one; a queue, a delivery count or a hole in the tags begins one."""
    store = Store(*(encoded(body=[bytes([n])], routing_key="q") for n in range(5)))
    pieces = [piece(n + 1, 0, n + 10, 1) for n in range(5)]
    (frame,) = built(store, *pieces)
    assert rows(frame.block)["body"] == [bytes([n]) for n in range(5)]
    assert runs(frame) == [(10, 5, 1, "q")]
    pieces[2:] = piece(3, 0, 12, 1, deliveries=2), piece(4, 0, 14, 1), piece(5, 0, 15, 1, queue="r")
    (frame,) = built(store, *pieces)
    assert runs(frame) == [(10, 2, 1, "q"), (12, 1, 2, "q"), (14, 1, 1, "q"), (15, 1, 1, "r")]


def test_frames_are_bounded_by_rows_and_bytes():
    """I6: merging stops at the target of rows and of bytes, by the real sizes of the rows."""
    small, target = b"s", limits.FRAME_TARGET_BYTES
    for bodies, first, count, expected in (
        ([small] * 4000, 0, 4000, [12_000, 8_000]),
        ([b"x" * (target // 3)], 0, 1, [4, 1]),
        ([small] * 1000 + [b"h" * target], 1000, 1, [1] * 5),
    ):
        store = Store(*[encoded(body=bodies)] * 5)
        made = built(store, *(piece(n, first, count * n, count) for n in range(1, 6)))
        assert [sum(frame.header.rows) for frame in made] == expected


def test_columns_are_pruned():
    """Design 6, Q3: columns that the reader did not ask for are not sent, and ttl_ms never is.

    A reader of tags alone gets a block of the right number of rows.
    """
    store = Store(encoded(body=[b"a"] * 2, message_id=["1"] * 2, ttl_ms=[0, 0]))
    for wanted, expected in (
        (("message_id", "delivery_tag"), {"message_id": ["1"] * 2}),
        (("delivery_tag",), {"persistent": [True, True]}),
        (None, {"body": [b"a"] * 2, "message_id": ["1"] * 2}),
    ):
        mask = 0 if wanted is None else columns.bits(wanted)
        (frame,) = built(store, piece(1, 0, 1, 2), wanted=mask)
        assert rows(frame.block) == expected


def test_browse_marks_leases_and_skips_what_went():
    """Q5, S2: a browse marks leased rows, and leaves out settled messages; a fetch is an error."""
    store = Store(encoded(body=[b"a"]), encoded(body=[b"b"]))
    pieces = [piece(1, 0, 1, 1), piece(9, 0, 2, 1), piece(2, 0, 3, 1, leased=False)]
    (frame,) = built(store, *pieces, browse=True, settled_ok=True)
    assert rows(frame.block)["body"] == [b"a", b"b"]
    assert (list(frame.header.first_tag), list(frame.header.leased)) == ([1, 3], [1, 0])
    with pytest.raises(BlockNotFoundError):
        built(store, *pieces)


@pytest.mark.parametrize("rows_of_piece", [(0, 1), np.array([0], np.uint32)])
def test_a_row_does_not_keep_its_block(rows_of_piece):
    """I6: a frame of one row each of thousands of blocks holds the memory of these rows alone."""
    store = Store(encoded(body=[b"s", b"l" * limits.MIB]))
    builder = FrameBuilder([piece(1, 0, 1, 1)._replace(rows=rows_of_piece)], store)
    _, rows = builder._load().part
    assert rows.get_total_buffer_size() < 1000


def test_messages_without_an_id_get_one():
    """L23: a message without id gets one of history, queue id and position; an empty id is none.

    The ids stay with their rows when a redelivery leaves out settled rows of a compacted block.
    """
    store = Store(
        compact(encoded(body=[b"a", b"b", b"c", b"d"]), BitMap([1, 3])),
        encoded(body=[b"d", b"e", b"f"], message_id=["mine", None, ""]),
    )
    pieces = [identified(piece(1, 0, 1, 4), 41), identified(piece(2, 0, 5, 3), 90)]
    (frame,) = built(store, *pieces, settled_ok=True)
    ids = ["ackq:h:7:42", "ackq:h:7:44", "mine", "ackq:h:7:91", "ackq:h:7:92"]
    assert rows(frame.block) == {"body": [b"b", b"d", b"d", b"e", b"f"], "message_id": ids}
