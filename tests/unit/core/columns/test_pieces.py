"""msgpack in pieces against one encoding."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.columns.bitmaps import canonical_hook
from ackq_broker.core.columns.pieces import Encoded, Listed, Parts, encoded, pieces

ENCODER = msgspec.msgpack.Encoder(enc_hook=canonical_hook)


class Item(msgspec.Struct):
    """An item with named fields, like those of the state."""

    first: int
    other: tuple[object, ...] = msgspec.field(name="renamed", default=())


class Row(msgspec.Struct, array_like=True):
    """An item without field names, like the parts of records."""

    number: int


@dataclass
class Plain:
    """An item that is encoded as one piece."""

    text: str = "plain"


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(1 << 63), 1 << 62), st.text(), st.binary()),
    lambda values: st.one_of(
        st.lists(values, max_size=20),
        st.dictionaries(st.one_of(st.text(), st.binary()), values, max_size=20),
        st.builds(Item, st.integers(0, 9), st.tuples(values, values)),
    ),
)


@given(plain)
def test_pieces_are_one_encoding(value: object) -> None:
    """I2: pieces join to the bytes of one encoding, so a snapshot does not show how it was made."""
    assert b"".join(pieces(value)) == ENCODER.encode(value)


@pytest.mark.parametrize("length", [0, 15, 16, 255, 256, 65_535, 65_536])
def test_lengths(length: int) -> None:
    """I2: each length has the shortest header."""
    assert b"".join(pieces([7] * length)) == ENCODER.encode([7] * length)
    keys = dict.fromkeys(range(length), 1)
    assert b"".join(pieces(keys)) == ENCODER.encode(keys)
    data = np.arange(length, dtype=np.uint8)
    for size in (length, -1):
        parts = Parts(lambda: (data[:9], data[9:]), size)
        assert b"".join(pieces(parts)) == ENCODER.encode(data.tobytes())
        assert bytes(parts) == data.tobytes()


def test_leaves() -> None:
    """I2: bitmaps, rows and encoded values are one piece each."""
    values = [BitMap64((1, 5)), Row(3), Plain()]
    for value in values:
        assert list(pieces(value)) == [ENCODER.encode(value)]
    assert encoded(values[0]) == Encoded(ENCODER.encode(values[0]))
    assert list(pieces(encoded(values[0]))) == [ENCODER.encode(values[0])]
    assert b"".join(pieces(Listed(3, iter(values)))) == ENCODER.encode(values)


def test_no_piece_is_long() -> None:
    """I5: no piece of a large value is long, so that other work waits briefly for the next one."""
    column = Parts(lambda: (np.zeros(1_000_000, np.int64),))
    found = list(pieces({"column": column, "list": list(range(100_000))}))
    assert sum(map(len, found)) > 8_000_000
    assert max(map(len, found)) <= 1 << 18


def test_a_length_without_a_header() -> None:
    """I6: msgpack has no header for a length of four gigabytes or more."""
    with pytest.raises(OverflowError, match="no header for a length of 4294967296"):
        next(pieces(Listed(1 << 32, ())))
