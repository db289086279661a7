"""P8, I6: hostile Arrow batches, each refused with a typed error and without memory.

Arrow's own validation accepts several of these, such as bytes behind a batch.
"""

import tracemalloc

import pyarrow as pa
import pytest

from ackq import limits
from ackq.errors import MalformedBlockError
from ackq.wire import block, columns, record_batch
from tests.fakes import arrow_messages as arrow
from tests.fakes.arrow_messages import Message
from tests.fakes.blocks import batch

ROWS = batch(
    body=[b"abc", None, b"defgh"],
    message_id=["a", "b", "c"],
    headers=[[("k", "v")], [], [("l", None)]],
    published_at=[1, None, 3],
)
SOUND = Message.of(ROWS)
# Indices of the parts of ROWS' columns among its nodes and buffers.
BODY, BODY_OFFSETS, BODY_BYTES, ID_OFFSETS, ID_BYTES = 0, 1, 2, 4, 5
OTHER_KINDS = (0, arrow.SCHEMA, arrow.DICTIONARY_BATCH, arrow.TENSOR, arrow.SPARSE_TENSOR)
MAP, ENTRIES, KEYS, MAP_OFFSETS, KEY_VALIDITY = 2, 3, 4, 7, 9


def read(message, rows=3, schema=ROWS.schema):
    return record_batch.read(memoryview(message.encode()), schema, rows)


def with_node(index, length, nulls):
    nodes = list(SOUND.nodes)
    nodes[index] = (length, nulls)
    return SOUND.but(nodes=nodes)


def with_buffer(index, offset=None, length=None):
    buffers = list(SOUND.buffers)
    before = buffers[index]
    buffers[index] = (
        before[0] if offset is None else offset,
        before[1] if length is None else length,
    )
    return SOUND.but(buffers=buffers)


def with_offsets(index, *offsets):
    """The sound message with other offsets in one offset buffer."""
    at = SOUND.buffers[index][0]
    held = pa.array(offsets, pa.int32()).buffers()[1].to_pybytes()[: 4 * len(offsets)]
    return SOUND.but(body=SOUND.body[:at] + held + SOUND.body[at + len(held) :])


def with_bytes(index, held):
    at = SOUND.buffers[index][0]
    return SOUND.but(body=SOUND.body[:at] + held + SOUND.body[at + len(held) :])


def test_a_sound_message_is_read():
    """The built message equals Arrow's, so each lie below is its only difference."""
    assert read(SOUND).equals(ROWS)
    assert record_batch.read(memoryview(ROWS.serialize()), ROWS.schema, 3).equals(ROWS)
    padded = ROWS.serialize(memory_pool=None)
    assert block.decode(block.join(block.header_of(ROWS), padded), validate=True).batch.equals(ROWS)


@pytest.mark.parametrize("rows", [1, 7, 8, 64, 1000])
@pytest.mark.parametrize("name", list(columns.STORED))
def test_every_column_of_arrows_own_writer_is_read(name, rows):
    """K7: columns with nulls, without nulls, all null, and sliced."""
    values = {
        "headers": [("k", "v"), ("l", None)],
        "persistent": True,
        "body": b"abc",
        "ttl_ms": 5,
        "published_at": 5,
        "expires_at": 5,
    }
    value = values.get(name, "text")
    for column in ([value] * rows, [value, None] * rows, [None] * rows):
        made = batch(**{name: column})
        for part in (made, made.slice(len(column) // 2)):
            found = record_batch.read(memoryview(part.serialize()), part.schema, part.num_rows)
            assert found.equals(part)


LIES = {
    "compressed": SOUND.but(codec=arrow.ZSTD),
    "compressed, an unknown codec": SOUND.but(codec=77),
    "compressed by a custom key": SOUND.but(
        version=arrow.VERSION_4, custom=[("ARROW:experimental_compression", "zstd")]
    ),
    **{f"metadata version code {n}": SOUND.but(version=n) for n in (arrow.VERSION_4, 77)},
    **{f"a header of kind {each}": SOUND.but(kind=each) for each in OTHER_KINDS},
    "views": SOUND.but(views=[1]),
    "no continuation": SOUND.but(prefix=b""),
    "custom metadata": SOUND.but(custom=[("k", "v")]),
    "custom metadata of 1 MB": SOUND.but(custom=[("k", "v" * 1_000_000)]),
    "100,000 custom keys": SOUND.but(custom=[("", "")] * 100_000),
    "an end of stream behind it": SOUND.but(after=b"\xff\xff\xff\xff\0\0\0\0"),
    "bytes behind it": SOUND.but(after=b"x"),
    "another batch behind it": SOUND.but(after=SOUND.encode()),
    "a body that is cut": SOUND.but(body=SOUND.body[:-8]),
    "no body": SOUND.but(body=b""),
    **{f"a body of {n} bytes": SOUND.but(body_length=n) for n in (1 << 62, -1, 0)},
    "dead bytes in the body": SOUND.but(body=SOUND.body + bytes(1024)),
    **{f"{n} rows": SOUND.but(rows=n) for n in (1 << 40, -1, 0)},
    "a column too few": SOUND.but(nodes=SOUND.nodes[:-1]),
    "a column too many": SOUND.but(nodes=[*SOUND.nodes, (3, 0)]),
    "no columns": SOUND.but(nodes=[]),
    "100,000 columns": SOUND.but(nodes=[(3, 0)] * 100_000),
    "a buffer too few": SOUND.but(buffers=SOUND.buffers[:-1]),
    "a buffer too many": SOUND.but(buffers=[*SOUND.buffers, (0, 0)]),
    "no buffers": SOUND.but(buffers=[]),
    "100,000 buffers": SOUND.but(buffers=[(0, 0)] * 100_000),
    **{f"a column of {n} values": with_node(BODY, n, 0) for n in (1 << 62, -1, 2)},
    **{f"a column with {n} nulls": with_node(BODY, 3, n) for n in (1 << 62, -1, 2)},
    "2^62 entries": with_node(ENTRIES, 1 << 62, 0),
    "2^62 keys": with_node(KEYS, 1 << 62, 0),
    "a key too few": with_node(KEYS, 1, 0),
    **{f"entries with {n} nulls": with_node(ENTRIES, 2, n) for n in (-1, 1)},
    **{f"keys with {n} nulls": with_node(KEYS, 2, n) for n in (-1, 1)},
    **{f"a buffer at {n}": with_buffer(BODY_OFFSETS, offset=n) for n in (-8, 1 << 40)},
    **{f"offsets of {n} bytes": with_buffer(BODY_OFFSETS, length=n) for n in (-1, 8, 1 << 62)},
    "a buffer that runs past the body": with_buffer(-1, length=len(SOUND.body)),
    "a buffer that is not aligned": with_buffer(BODY_BYTES, offset=SOUND.buffers[2][0] + 1),
    "a buffer that two columns share": with_buffer(ID_BYTES, *SOUND.buffers[BODY_BYTES]),
    "overlapping buffers": with_buffer(ID_OFFSETS, offset=SOUND.buffers[ID_OFFSETS][0] - 8),
    "buffers in another order": SOUND.but(buffers=SOUND.buffers[::-1]),
    "an offset behind the bytes": with_offsets(BODY_OFFSETS, 0, 3, 3, 1 << 30),
    "offsets that go back": with_offsets(BODY_OFFSETS, 0, 5, 3, 8),
    "an offset below 0": with_offsets(BODY_OFFSETS, -1, 3, 3, 8),
    "all offsets below 0": with_offsets(BODY_OFFSETS, -8, -8, -8, -8),
    "an offset of a map behind its entries": with_offsets(MAP_OFFSETS, 0, 1, 1, 1 << 30),
    "offsets of a map that go back": with_offsets(MAP_OFFSETS, 0, 2, 1, 2),
    "an offset of a map below 0": with_offsets(MAP_OFFSETS, -1, 1, 1, 2),
    **{f"text of {each!r}": with_bytes(ID_BYTES, each) for each in (b"\xff", b"\xed\xa0\x80")},
}


@pytest.mark.parametrize("message", LIES.values(), ids=LIES.keys())
def test_a_lie_is_refused(message):
    """P8, I6: refused with a typed error, without allocating more than the input."""
    data = memoryview(message.encode())
    before = pa.total_allocated_bytes()
    pa.default_memory_pool().release_unused()
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBlockError, match="Arrow batch is not valid"):
            record_batch.read(data, ROWS.schema, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) + 100_000
    assert pa.total_allocated_bytes() - before <= len(data)


OTHER_TYPES = {
    "views": pa.array(["a", "b" * 20, "c"], pa.string_view()),
    "a dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "large texts": pa.array(["a", "b", "c"], pa.large_string()),
    "a list": pa.array([["a"], [], ["b"]]),
    "a struct": pa.array([{"a": 1}, {"a": 2}, None]),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 3], ["a", "b"]),
    "a union": pa.UnionArray.from_dense(
        pa.array([0, 0, 0], pa.int8()), pa.array([0, 1, 2], pa.int32()), [pa.array([1, 2, 3])]
    ),
    "an extension": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"x" * 16] * 3, pa.binary(16))
    ),
    "nothing": pa.nulls(3),
}


@pytest.mark.parametrize("column", OTHER_TYPES.values(), ids=OTHER_TYPES.keys())
@pytest.mark.parametrize("name", ["body", "headers", "published_at", "persistent"])
def test_a_batch_of_another_type_is_refused(column, name):
    """P8: the schema is the protocol's, and a client cannot name another type."""
    data = memoryview(pa.record_batch([column], names=["x"]).serialize())
    schema = columns.stored_schema(columns.bits([name]))
    try:
        found = record_batch.read(data, schema, 3)
    except MalformedBlockError:
        return
    # Its bytes fit our column too: the children of a union pass as numbers.
    found.validate(full=True)
    assert found.schema == schema
    assert found.nbytes <= len(data)


@pytest.mark.parametrize("key", ["zstd", "lz4_frame", "lz4"])
def test_a_custom_key_does_not_decompress(key):
    """I6: metadata version 4 has a codec in a custom key: 1 KB of zstd held a body of 1 MiB."""
    held = pa.compress(bytes(limits.MIB), codec="zstd", asbytes=True)
    message = Message.of(batch(body=[b""]))
    body = bytes(16) + (limits.MIB).to_bytes(8, "little") + held
    message = message.but(
        version=arrow.VERSION_4,
        custom=[("ARROW:experimental_compression", key)],
        buffers=[(0, 0), (0, 8), (16, 8 + len(held))],
        body=body + bytes(-len(body) % 8),
    )
    before = pa.total_allocated_bytes()
    with pytest.raises(MalformedBlockError, match="metadata version is not 5"):
        read(message, 1, columns.stored_schema(columns.bits(["body"])))
    assert pa.total_allocated_bytes() == before
