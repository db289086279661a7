"""msgpack in pieces against one encoding."""

import msgspec
import numpy as np
import pytest

from ackq_broker.core.columns.bitmaps import canonical_hook
from ackq_broker.core.columns.pieces import Parts, pieces

ENCODER = msgspec.msgpack.Encoder(enc_hook=canonical_hook)


@pytest.mark.parametrize("length", [0, 15, 16, 255, 256, 65_535, 65_536])
def test_lengths(length):
    """I2: each length has the shortest header."""
    assert b"".join(pieces([7] * length)) == ENCODER.encode([7] * length)
    keys = dict.fromkeys(range(length), 1)
    assert b"".join(pieces(keys)) == ENCODER.encode(keys)
    data = np.arange(length, dtype=np.uint8)
    for size in (length, -1):
        parts = Parts(lambda: (data[:9], data[9:]), size)
        assert b"".join(pieces(parts)) == ENCODER.encode(data.tobytes())
        assert bytes(parts) == data.tobytes()


def test_no_piece_is_long():
    """I5: no piece of a large value is long, so that other work waits briefly for the next one."""
    column = Parts(lambda: (np.zeros(1_000_000, np.int64),))
    found = list(pieces({"column": column, "list": list(range(100_000))}))
    assert sum(map(len, found)) > 8_000_000
    assert max(map(len, found)) <= 1 << 18
