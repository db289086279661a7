"""Sizes of rows: each row's own bytes, which add up to what the header announces."""

from ackq.wire import block
from ackq_broker.service.blocks.row_sizes import row_sizes
from tests.fakes.blocks import decoded

ROWS = {
    "body": [b"abc", None, b"", b"x"],
    "routing_key": ["k", None, "é", "kk"],
    "message_id": [None, "id", "", "1"],
    "headers": [[("a", "b")], [], [("é", "")], [("k", "v"), ("k", "")]],
}
SIZES = [6, 2, 4, 7]


def test_each_row_has_its_own_bytes():
    """Q3: a row's size is its body, key, ids and headers, also for nulls and slices.

    A routing key in the block's header counts in every row; equal sizes have no column.
    """
    whole = decoded(**ROWS)
    assert row_sizes(whole).tolist() == SIZES
    assert whole.header.payload_bytes == sum(SIZES)
    for first, count in ((1, 2), (2, 2), (0, 3)):
        part = whole.batch.slice(first, count)
        header, _ = block.decode(block.encode(part))
        assert row_sizes(block.Block(header, part)).tolist() == SIZES[first : first + count]
    assert row_sizes(decoded(body=[b"a", b"abc"], routing_key="key")).tolist() == [4, 6]
    assert row_sizes(decoded(body=[b"ab", b"cd"], message_id=["1", "2"])) is None
