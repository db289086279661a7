"""Packed sizes: equal to the original sizes, in the fewest bytes a row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq_broker.core.state.block_sizes import pack, sizes_at

sizes = st.lists(
    st.one_of(st.integers(0, 300), st.integers(0, 1 << 17), st.integers(0, 1 << 33)), min_size=1
)


@given(sizes, st.data())
def test_sizes_come_back(values: list[int], data: st.DataObject) -> None:
    """Q3, I2: sizes of any rows, by range or by index; equal sizes give equal bytes."""
    column = pack(np.array(values))
    first = data.draw(st.integers(0, len(values) - 1))
    count = data.draw(st.integers(1, len(values) - first))
    assert sizes_at(column, (first, count)).tolist() == values[first : first + count]
    some = sorted(data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1)))
    assert sizes_at(column, np.array(some, np.uint32)).tolist() == [values[row] for row in some]
    assert pack(sizes_at(column, (0, len(values)))) == column


@pytest.mark.parametrize(("span", "width"), [(255, 1), (256, 2), (65_536, 4), (1 << 32, 8)])
def test_a_row_takes_the_bytes_that_the_differences_need(span: int, width: int) -> None:
    """I5: large messages that differ little take a byte each."""
    assert len(pack(np.array([10**6, 10**6 + span] * 500))) == 9 + 1000 * width
