"""Frames of fetch and browse, built from pieces."""

import numpy as np
import pytest
from pyroaring import BitMap

from ackq import limits
from ackq.errors import BlockNotFoundError
from ackq.wire import columns
from ackq_broker.core.commands import MessageIdentity, Piece, Run
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


def frames(builder):
    return list(iter(builder.next_frame, None))


def runs(frame):
    header = frame.header
    return list(
        zip(
            header.first_tag,
            header.rows,
            header.delivery_count,
            [header.queues[index] for index in header.queue_index],
            strict=True,
        )
    )


def large(letter, count=limits.FRAME_TARGET_ROWS):
    return encoded(body=[letter] * count, routing_key="q", published_at_us=1)


def test_whole_large_block_leaves_as_stored():
    """K7: a block that is read whole leaves as the bytes on disk, not even copied."""
    store = Store(large(b"a"))
    (frame,) = frames(FrameBuilder([piece(1, 0, 1, limits.FRAME_TARGET_ROWS)], store))
    assert frame.block is store.blocks[1]
    assert runs(frame) == [(1, limits.FRAME_TARGET_ROWS, 1, "q")]


def test_small_blocks_are_merged_and_their_runs_joined():
    """K7: small pieces share a frame, and consecutive equal runs become one."""
    store = Store(*(encoded(body=[bytes([n])], routing_key="q") for n in range(5)))
    (frame,) = frames(FrameBuilder([piece(n + 1, 0, n + 10, 1) for n in range(5)], store))
    assert rows(frame.block)["body"] == [bytes([n]) for n in range(5)]
    assert runs(frame) == [(10, 5, 1, "q")]


def test_runs_stay_apart_where_they_differ():
    """S2: another queue, another delivery count or a hole between the tags begins a new run."""
    store = Store(encoded(body=[b"a"]), encoded(body=[b"b"]), encoded(body=[b"c"]))
    pieces = [piece(1, 0, 1, 1), piece(2, 0, 2, 1, deliveries=2), piece(3, 0, 4, 1, queue="r")]
    (frame,) = frames(FrameBuilder(pieces, store))
    assert runs(frame) == [(1, 1, 1, "q"), (2, 1, 2, "q"), (4, 1, 1, "r")]


def test_a_large_block_does_not_join_small_ones():
    """K7: a large block between small ones still leaves as stored."""
    count = limits.FRAME_TARGET_ROWS
    store = Store(encoded(body=[b"s"]), large(b"L"), encoded(body=[b"t"]))
    made = frames(
        FrameBuilder([piece(1, 0, 1, 1), piece(2, 0, 2, count), piece(3, 0, 2 + count, 1)], store)
    )
    assert [len(rows(frame.block)["body"]) for frame in made] == [1, count, 1]
    assert made[1].block is store.blocks[2]


def test_frames_are_bounded_by_rows_and_bytes():
    """I6: merging blocks into a frame stops at the target of rows and of bytes."""
    few = Store(*(encoded(body=[b"x"] * 4000) for _ in range(5)))
    made = frames(FrameBuilder([piece(n, 0, 4000 * n, 4000) for n in range(1, 6)], few))
    assert [sum(frame.header.rows) for frame in made] == [12_000, 8_000]
    size = limits.FRAME_TARGET_BYTES // 3
    fat = Store(*(encoded(body=[b"x" * size]) for _ in range(5)))
    made = frames(FrameBuilder([piece(n, 0, n, 1) for n in range(1, 6)], fat))
    assert [sum(frame.header.rows) for frame in made] == [4, 1]


def test_parts_of_a_block():
    """S2: consecutive and scattered rows are cut out of a block, which is read once."""
    store = Store(encoded(body=[b"a", b"b", b"c", b"d", b"e"]))
    scattered = Piece(1, "q", np.array([0, 4], np.uint32), (Run(7, 2, 3),))
    (frame,) = frames(FrameBuilder([piece(1, 1, 2, 2), scattered], store))
    assert rows(frame.block)["body"] == [b"b", b"c", b"a", b"e"]
    assert runs(frame) == [(2, 2, 1, "q"), (7, 2, 3, "q")]
    assert store.reads == [1]


def test_columns_are_pruned():
    """Design 6, Q3: columns that the reader did not ask for are not sent, and ttl_ms never is.

    A reader of tags alone gets a block of the right number of rows.
    """
    store = Store(encoded(body=[b"a"] * 6000, message_id=["1"] * 6000, routing_key="q"))
    whole = [piece(1, 0, 1, 6000)]
    (frame,) = frames(FrameBuilder(whole, store, columns.bits(("message_id", "delivery_tag"))))
    assert list(rows(frame.block)) == ["message_id"]
    (frame,) = frames(FrameBuilder(whole, store, columns.bits(("body", "message_id"))))
    assert frame.block is store.blocks[1]
    two = [piece(1, 0, 1, 2)]
    wanted = columns.bits(("delivery_tag",))
    (frame,) = frames(FrameBuilder(two, Store(encoded(body=[b"a", b"b"])), wanted))
    assert rows(frame.block) == {"persistent": [True, True]}
    (frame,) = frames(FrameBuilder(two, Store(encoded(body=[b"a", b"b"], ttl_ms=[0, 0]))))
    assert list(rows(frame.block)) == ["body"]


def test_browse_marks_leases_and_skips_what_went():
    """Q5, S2: a browse marks leased rows, and leaves out settled messages; a fetch is an error."""
    store = Store(encoded(body=[b"a"]), encoded(body=[b"b"]))
    pieces = [piece(1, 0, 1, 1), piece(9, 0, 2, 1), piece(2, 0, 3, 1, leased=False)]
    (frame,) = frames(FrameBuilder(pieces, store, browse=True, settled_ok=True))
    assert rows(frame.block)["body"] == [b"a", b"b"]
    assert list(frame.header.first_tag) == [1, 3]
    assert list(frame.header.leased) == [1, 0]
    with pytest.raises(BlockNotFoundError):
        frames(FrameBuilder(pieces, store))


def test_frames_are_cut_by_real_sizes():
    """I6: large rows of blocks with a small mean size do not end up in one huge frame."""
    huge = b"h" * limits.FRAME_TARGET_BYTES
    store = Store(*[encoded(body=[b"s"] * 1000 + [huge]) for _ in range(3)])
    pieces = [piece(block_id, 1000, block_id, 1) for block_id in (1, 2, 3)]
    sizes = [len(frame.block) for frame in frames(FrameBuilder(pieces, store))]
    assert len(sizes) == 3
    assert max(sizes) < 2 * limits.FRAME_TARGET_BYTES


@pytest.mark.parametrize("rows_of_piece", [(0, 1), np.array([0], np.uint32)])
def test_a_row_does_not_keep_its_block(rows_of_piece):
    """I6: a frame of one row each of thousands of blocks holds the memory of these rows alone."""
    store = Store(encoded(body=[b"s", b"l" * limits.MIB]))
    builder = FrameBuilder([piece(1, 0, 1, 1)._replace(rows=rows_of_piece)], store)
    _, rows = builder._load().part
    assert rows.get_total_buffer_size() < 1000


def identified(given, first):
    """The piece with identities: its rows are at consecutive positions of queue 7."""
    positions = np.arange(first, first + sum(run.rows for run in given.runs))
    return given._replace(identity=MessageIdentity("h", 7, positions))


def test_messages_without_an_id_get_one():
    """L23: a message without id gets one of history, queue id and position; an empty id is none."""
    store = Store(
        encoded(body=[b"a", b"b", b"c"], routing_key="q"),
        encoded(body=[b"d", b"e", b"f"], message_id=["mine", None, ""], routing_key="q"),
    )
    pieces = [identified(piece(1, 1, 1, 2), 41), identified(piece(2, 0, 3, 3), 90)]
    (frame,) = frames(FrameBuilder(pieces, store))
    ids = ["ackq:h:7:41", "ackq:h:7:42", "mine", "ackq:h:7:91", "ackq:h:7:92"]
    assert rows(frame.block)["message_id"] == ids
    assert rows(frame.block)["body"] == [b"b", b"c", b"d", b"e", b"f"]
    assert runs(frame) == [(1, 5, 1, "q")]


def test_a_block_whose_messages_have_ids_leaves_as_stored():
    """L23, K7: a block whose messages all have ids is sent as stored, without being re-encoded."""
    count = limits.FRAME_TARGET_ROWS
    store = Store(encoded(body=[b"a"] * count, message_id=["id"] * count))
    (frame,) = frames(FrameBuilder([identified(piece(1, 0, 1, count), 1)], store))
    assert frame.block is store.blocks[1]


def test_ids_stay_with_their_rows_in_a_compacted_block():
    """L23: generated ids stay with their rows when a redelivery leaves out settled rows."""
    store = Store(compact(encoded(body=[b"a", b"b", b"c", b"d"]), BitMap([1, 3])))
    (frame,) = frames(FrameBuilder([identified(piece(1, 0, 1, 4), 10)], store, settled_ok=True))
    assert rows(frame.block)["message_id"] == ["ackq:h:7:11", "ackq:h:7:13"]
    assert rows(frame.block)["body"] == [b"b", b"d"]
