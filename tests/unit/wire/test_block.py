"""A decoded block is consistent with its header, whatever bytes were sent."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq.errors import MalformedBlockError, SchemaError
from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns, frame


def batch(bodies, headers=None, keys=None):
    """A small batch of messages."""
    data = {"body": pa.array(bodies, pa.binary())}
    if keys is not None:
        data["routing_key"] = pa.array(keys, pa.string())
    if headers is not None:
        data["headers"] = pa.array(headers, columns.HEADERS)
    return pa.record_batch(
        list(data.values()), schema=columns.stored_schema(columns.bits(list(data)))
    )


bodies = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=30)
maps = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3)


@given(bodies, st.data())
def test_row_bytes_add_up_on_any_slice(values, data):
    """Row sizes add up to the total size, on slices too."""
    rows = batch(values, [data.draw(maps) for _ in values])
    first = data.draw(st.integers(0, len(values) - 1))
    part = rows.slice(first, data.draw(st.integers(1, len(values) - first)))
    assert sum(block.row_bytes(part).to_pylist()) == block.payload_bytes(part)
    assert block.decode(block.encode(part), validate=True).batch.equals(part)


def test_a_lie_about_rows_is_found():
    """The header's row count is checked even without full validation."""
    header, arrow = block.split(block.encode(batch([b"a", b"b"])))
    header.rows = 3
    with pytest.raises(MalformedBlockError, match="announces 3 rows and holds 2"):
        block.decode(block.join(header, arrow))


def test_a_lie_about_rows_of_several_blocks_is_found():
    """The row counts of blocks that are read together are checked together."""
    one, other = (block.split(block.encode(batch([body]))) for body in (b"a", b"b"))
    assert block.read_all([one, other]).column("body").to_pylist() == [b"a", b"b"]
    one[0].rows = 2
    with pytest.raises(MalformedBlockError, match="announce 3 rows and hold 2"):
        block.read_all([one, other])
    with pytest.raises(MalformedBlockError, match="not valid"):
        block.read_all([one, (one[0], other[1][:-1])])


def test_a_lie_about_bytes_is_found():
    """Limits count payload bytes, so a sender must not understate them."""
    header, arrow = block.split(block.encode(batch([b"abc"])))
    header.payload_bytes = 1
    with pytest.raises(MalformedBlockError, match="announces 1 payload bytes and holds 3"):
        block.decode(block.join(header, arrow), validate=True)


@pytest.mark.parametrize("mask", [0, 1, 1 << 16, 1 << 30])
def test_columns_that_cannot_be_stored_are_refused(mask):
    """A block that announces other than stored columns is refused."""
    with pytest.raises(MalformedBlockError, match="announces columns"):
        block.decode(block.join(pb.BlockHeader(columns=mask, rows=1), b"x"))


def test_wrong_schema_is_refused():
    """A batch with other columns than announced does not decode."""
    header, arrow = block.split(block.encode(batch([b"abc"])))
    header.columns = columns.bits(["body", "routing_key", "headers"])
    with pytest.raises(MalformedBlockError):
        block.decode(block.join(header, arrow), validate=True)


def test_unknown_column_names_the_known_ones():
    """The error for an unknown column lists the known ones."""
    with pytest.raises(SchemaError, match=r"no message column 'bdy'.*body"):
        columns.bits(["bdy"])


@settings(max_examples=300)
@given(st.data())
def test_flipped_bytes_never_crash_the_reader(data):
    """Hostile offsets, lengths and metadata are refused or harmless, never a crash."""
    rows = batch([b"abc", b"", None, b"x" * 50], [[("a", "b")], [], [], [("c", "d")]], list("abcd"))
    made = bytearray(block.encode(rows))
    for _ in range(data.draw(st.integers(1, 4))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    try:
        got = block.decode(bytes(made), validate=True)
    except MalformedBlockError:
        return
    assert got.batch.num_rows == got.header.rows
    got.batch.to_pylist()


def test_offsets_may_be_followed_by_anything():
    """An offset buffer may be longer than its offsets, by any number of bytes."""
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1].slice(0, 12).to_pybytes()
    body = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(offsets + b"\xff"), pa.py_buffer(b"abc")]
    )
    odd = pa.RecordBatch.from_arrays([body], schema=columns.stored_schema(columns.bits(["body"])))
    assert block.payload_bytes(odd) == 3
    assert block.payload_bytes(odd.slice(1)) == 2


@given(st.integers(0, 400))
def test_cut_blocks_are_refused(cut):
    """A block cut anywhere does not decode."""
    made = block.encode(batch([b"abc" * 100]))
    with pytest.raises(MalformedBlockError):
        block.decode(made[: min(cut, len(made) - 1)], validate=True)


def test_frame_in_a_frame_is_a_view():
    """Decoding copies no bulk bytes: the batch is a view of the received frame."""
    data = frame.encode(b"", block.encode(batch([b"z" * 1000])))
    _, inner = frame.split(data)
    body = block.decode(inner).batch.column(0).buffers()[2]
    whole = pa.py_buffer(data)
    assert whole.address <= body.address < whole.address + whole.size
