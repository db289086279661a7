"""A decoded block is consistent with its header, whatever bytes were sent."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.errors import MalformedBlockError
from ackq.wire import block, columns
from tests.fakes.blocks import batch

bodies = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=30)
maps = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3)


@given(bodies, st.data())
def test_row_bytes_add_up_on_any_slice(values, data):
    """Row sizes add up to the total size, on slices too."""
    rows = batch(body=values, headers=[data.draw(maps) for _ in values])
    first = data.draw(st.integers(0, len(values) - 1))
    part = rows.slice(first, data.draw(st.integers(1, len(values) - first)))
    assert sum(block.row_bytes(part).to_pylist()) == block.payload_bytes(part)
    assert block.decode(block.encode(part), validate=True).batch.equals(part)


def test_a_lie_about_rows_of_several_blocks_is_found():
    """The row counts of blocks that are read together are checked together."""
    one, other = (block.split(block.encode(batch(body=[body]))) for body in (b"a", b"b"))
    assert block.read_all([one, other]).column("body").to_pylist() == [b"a", b"b"]
    one[0].rows = 2
    with pytest.raises(MalformedBlockError, match="announce 3 rows and hold 2"):
        block.read_all([one, other])
    with pytest.raises(MalformedBlockError, match="not valid"):
        block.read_all([one, (one[0], other[1][:-1])])


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"rows": 3}, "announces 3 rows and holds 1"),
        ({"payload_bytes": 1}, "announces 1 payload bytes and holds 3"),
        ({"columns": columns.bits(["body", "routing_key", "headers"])}, "not valid"),
        *(({"columns": mask}, "announces columns") for mask in (0, 1, 1 << 16, 1 << 30)),
    ],
)
def test_a_lie_is_found(lie, said):
    """I6: a header that understates its block is refused; the rows are counted in each case."""
    header, arrow = block.split(block.encode(batch(body=[b"abc"])))
    for name, value in lie.items():
        setattr(header, name, value)
    with pytest.raises(MalformedBlockError, match=said):
        block.decode(block.join(header, arrow), validate="rows" not in lie)


def test_offsets_may_be_followed_by_anything():
    """An offset buffer may be longer than its offsets, by any number of bytes."""
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1].slice(0, 12).to_pybytes()
    body = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(offsets + b"\xff"), pa.py_buffer(b"abc")]
    )
    odd = pa.RecordBatch.from_arrays([body], schema=columns.stored_schema(columns.bits(["body"])))
    assert block.payload_bytes(odd) == 3
    assert block.payload_bytes(odd.slice(1)) == 2
