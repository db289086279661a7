"""Merging blocks keeps the value that each row reads."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq_broker.service.blocks.merge import merge
from tests.fakes.blocks import decoded

TIMES = st.sampled_from((1_000_000, 2_000_000))
CONSTANTS = {
    "routing_key": st.sampled_from(("q", "r")),
    "published_at_us": TIMES,
    "delivery_mode": st.sampled_from((1, pb.DELIVERY_MODE_NON_PERSISTENT)),
}
VALUES = {
    "body": st.binary(max_size=3),
    "message_id": st.none() | st.text(max_size=2),
    "headers": st.lists(st.tuples(st.text(max_size=2), st.text(max_size=2)), max_size=2),
    "routing_key": st.sampled_from(("", "q", "s")),
    "published_at": st.none() | TIMES,
    "persistent": st.none() | st.booleans(),
}
ALL = tuple(VALUES)


@st.composite
def parts(draw):
    """A slice of a block with some columns, and with constants for all rows."""
    count = draw(st.integers(1, 4))
    names = draw(st.sets(st.sampled_from(ALL), min_size=1))
    values = {name: draw(each) for name, each in CONSTANTS.items()}
    for name in names:
        values[name] = draw(st.lists(VALUES[name], min_size=count, max_size=count))
    header, batch = decoded(**values)
    first = draw(st.integers(0, count - 1))
    return block.Block(header, batch.slice(first, draw(st.integers(1, count - first))))


def undecoded(part):
    """The part as a block of its own, as it is read from the disk."""
    header, batch = part
    names = ("routing_key", "published_at_us", "delivery_mode")
    constants = {name: getattr(header, name) for name in names}
    return block.split(block.encode(batch, **constants))


def read(part, names=ALL):
    """What each row of a block reads: the value of its column, or else of the block's header."""
    persistent = part.header.delivery_mode != pb.DELIVERY_MODE_NON_PERSISTENT
    constants = {
        "headers": [],
        "routing_key": part.header.routing_key,
        "published_at": datetime.fromtimestamp(part.header.published_at_us / 1e6, UTC),
        "persistent": persistent,
    }
    return [
        {name: constants.get(name) if row.get(name) is None else row[name] for name in names}
        for row in part.batch.to_pylist()
    ]


@given(
    st.lists(parts(), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.just(set(ALL)) | st.sets(st.sampled_from(ALL), min_size=1),
)
def test_each_row_reads_what_it_read_before(found, whole, visible):
    """K7: constants that differ become columns, and nulls take the constant of their own block.

    A column that a part lacks is null there; headers are an empty map, never null. Columns that
    the reader does not ask for are left out; a block keeps at least one.
    """
    sent = [undecoded(part) if each else part for part, each in zip(found, whole, strict=False)]
    merged = block.decode(merge(sent, columns.bits(tuple(visible))), validate=True)
    names = set(merged.batch.schema.names)
    assert names <= visible | {"persistent"}
    assert read(merged, visible) == [row for part in found for row in read(part, visible)]
    if "headers" in names:
        assert merged.batch.column("headers").null_count == 0
    for name, constant in (("routing_key", "routing_key"), ("published_at", "published_at_us")):
        given_in_a_column = any(name in part.batch.schema.names for part in found)
        differ = len({getattr(part.header, constant) for part in found}) > 1
        assert (name in names) == (name in visible and (given_in_a_column or differ))
