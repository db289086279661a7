"""Merging blocks keeps the value that each row reads."""

from datetime import UTC, datetime

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq_broker.service.blocks.merge import merge
from tests.fakes.blocks import decoded, rows


def at(us):
    return datetime.fromtimestamp(us / 1e6, UTC)


def test_equal_constants_stay_in_the_header():
    """K7: blocks that differ in nothing but their rows merge without a new column."""
    parts = [
        decoded(body=[b"a"], routing_key="q", published_at_us=7),
        decoded(body=[b"b", b"c"], routing_key="q", published_at_us=7),
    ]
    merged = merge(parts)
    header = block.decode(merged).header
    assert rows(merged) == {"body": [b"a", b"b", b"c"]}
    assert (header.routing_key, header.published_at_us, header.rows) == ("q", 7, 3)


def test_differing_constants_become_columns():
    """K7: constants that differ are written out per row."""
    parts = [
        decoded(body=[b"a", b"b"], routing_key="q", published_at_us=1_000_000),
        decoded(
            body=[b"c"],
            routing_key="r",
            published_at_us=2_000_000,
            delivery_mode=pb.DELIVERY_MODE_NON_PERSISTENT,
        ),
    ]
    merged = merge(parts)
    assert rows(merged) == {
        "body": [b"a", b"b", b"c"],
        "routing_key": ["q", "q", "r"],
        "published_at": [at(1_000_000), at(1_000_000), at(2_000_000)],
        "persistent": [True, True, False],
    }
    assert block.decode(merged).header.routing_key == ""


def test_absent_columns_read_null_and_no_headers():
    """K7: a column that one part lacks is null there; headers are an empty map, never null."""
    parts = [
        decoded(body=[b"a"], message_id=["1"], routing_key="q"),
        decoded(body=[b"b"], headers=[[("k", "v")]], routing_key="q"),
    ]
    assert rows(merge(parts)) == {
        "body": [b"a", b"b"],
        "message_id": ["1", None],
        "headers": [[], [("k", "v")]],
    }


def test_nulls_take_their_own_constant():
    """K7: a null publish time reads the constant of its own block."""
    parts = [
        decoded(body=[b"a", b"b"], published_at=[at(5), None], published_at_us=6),
        decoded(body=[b"c"], published_at_us=9),
    ]
    assert rows(merge(parts))["published_at"] == [at(5), at(6), at(9)]


def test_slices():
    """K7: parts may be slices of a batch, with strings and maps."""
    whole = decoded(
        body=[b"a", b"b", b"c"], headers=[[("x", "1")], [], [("y", "2")]], routing_key="q"
    )
    parts = [
        block.Block(whole.header, whole.batch.slice(2, 1)),
        block.Block(whole.header, whole.batch.slice(0, 2)),
    ]
    assert rows(merge(parts)) == {
        "body": [b"c", b"a", b"b"],
        "headers": [[("y", "2")], [("x", "1")], []],
    }


def test_only_visible_columns():
    """K7: columns that the reader does not ask for are left out; a block keeps at least one."""
    parts = [
        decoded(body=[b"a"], message_id=["1"], routing_key="q", published_at_us=1),
        decoded(body=[b"b"], message_id=["2"], routing_key="q", published_at_us=2),
    ]
    assert rows(merge(parts, columns.bits(("message_id",)))) == {"message_id": ["1", "2"]}
    assert rows(merge(parts, columns.bits(("routing_key",)))) == {"persistent": [True, True]}
