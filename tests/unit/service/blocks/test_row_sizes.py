"""Sizes of rows: each row's own bytes, which add up to what the header announces."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ackq.wire import block, columns
from ackq_broker.service.blocks.row_sizes import row_sizes

NAMES = ("body", "routing_key", "message_id", "headers")
texts = st.none() | st.text(max_size=9)
maps = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3)
rows = st.tuples(st.none() | st.binary(max_size=40), texts, texts, maps)


def bytes_of(row: tuple[bytes | None, str | None, str | None, list[tuple[str, str]]]) -> int:
    body, *names, headers = row
    words = [*names, *(word for entry in headers for word in entry)]
    return len(body or b"") + sum(len((word or "").encode()) for word in words)


def made(values: list[tuple[object, ...]], names: tuple[str, ...]) -> pa.RecordBatch:
    schema = columns.stored_schema(columns.bits(names))
    data = dict(zip(NAMES, zip(*values, strict=True), strict=True))
    arrays = [pa.array(list(data[field.name]), field.type) for field in schema]
    return pa.record_batch(arrays, schema=schema)


@given(values=st.lists(rows, min_size=1, max_size=20), data=st.data())
def test_each_row_has_its_own_bytes(values: list[tuple[object, ...]], data: st.DataObject) -> None:
    """Q3: a row's size is its body, key, ids and headers, also for nulls and slices."""
    batch = made(values, NAMES)
    first = data.draw(st.integers(0, len(values) - 1))
    part = batch.slice(first, data.draw(st.integers(1, len(values) - first)))
    decoded = block.decode(block.encode(part), validate=True)
    expected = [bytes_of(row) for row in values[first : first + part.num_rows]]
    for found in (row_sizes(decoded), row_sizes(block.Block(decoded.header, part))):
        sizes = np.full(len(expected), expected[0]) if found is None else found
        assert sizes.tolist() == expected
        assert sizes.sum() == decoded.header.payload_bytes
        assert (found is None) == (len(set(expected)) == 1)


def test_a_constant_key_counts_in_every_row() -> None:
    """Q3: a routing key in the block's header counts in every row, as in a column."""
    batch = made([(b"a", None, None, []), (b"abc", None, None, [])], ("body",))
    decoded = block.decode(block.encode(batch, routing_key="key"))
    assert row_sizes(decoded).tolist() == [4, 6]
