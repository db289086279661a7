"""The journal's checksum is zlib's, whichever library computes it."""

import sys
import zlib
from importlib import reload

import pytest

from ackq_broker.journal.files import checksum


@pytest.fixture
def without_isal(monkeypatch):
    """The checksum module on a machine without `isal`."""
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    yield reload(checksum)
    monkeypatch.undo()
    reload(checksum)


@pytest.mark.parametrize("data", [b"", b"a", bytes(range(256)) * 100, memoryview(b"abc")[1:]])
@pytest.mark.parametrize("seed", [0, 1, 0xFFFFFFFF])
def test_it_is_the_crc_32_of_zlib(data, seed):
    """I2: checksums of an older version match, whole or in parts."""
    assert checksum.crc32(data, seed) == zlib.crc32(data, seed)
    half = len(data) // 2
    assert checksum.crc32(data[half:], checksum.crc32(data[:half])) == zlib.crc32(data)


def test_zlib_computes_it_where_isal_has_no_build(without_isal):
    """I2: a journal opens on any machine."""
    assert without_isal.crc32 is zlib.crc32
