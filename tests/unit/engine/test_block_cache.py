"""The cache of blocks that deliveries read last."""

from contextlib import suppress

from ackq import limits
from ackq.errors import BlockNotFoundError
from ackq_broker.engine import block_cache
from ackq_broker.engine.block_cache import BlockCache


class Disk:
    """A disk with blocks of a given size; `reads` are the ids of the blocks that were read."""

    def __init__(self, size=100):
        self.size = size
        self.reads = []

    def __call__(self, block_id):
        self.reads.append(block_id)
        if block_id == 0:
            raise BlockNotFoundError("gone", block=block_id)
        return b"%d" % block_id * self.size


def test_a_block_is_read_once():
    """C8, C16: a consumer with a prefetch of one does not read a block for each of its rows.

    Messages that come one by one reach a consumer without the disk. A block that would push all
    others out is not cached, and neither is an error (I6).
    """
    disk = Disk()
    blocks = BlockCache(disk)
    assert [blocks(1), blocks(2), blocks(1)] == [b"1" * 100, b"2" * 100, b"1" * 100]
    blocks.keep_new(7, (b"ne", memoryview(b"w")))
    blocks.keep_new(8, (b"large" * limits.MIB,))
    assert (7 in blocks, blocks(7), 8 in blocks) == (True, b"new", False)
    kept = blocks._bytes
    disk.size = block_cache._MAX_BLOCK_BYTES + 1
    for block_id in (3, 3, 0):
        with suppress(BlockNotFoundError):
            blocks(block_id)
    assert (disk.reads, blocks._bytes) == ([1, 2, 3, 3, 0], kept)


def test_the_oldest_goes_first():
    """I6: the cache is bounded in bytes, and drops its oldest block first."""
    disk = Disk(limits.MIB)
    blocks = BlockCache(disk)
    most = block_cache._MAX_BYTES // limits.MIB
    for block_id in range(1, 10):
        blocks(block_id)
    blocks(1)
    for block_id in range(11, 11 + most):
        blocks(block_id % 10 + 1)
    assert blocks._bytes <= block_cache._MAX_BYTES
    disk.reads.clear()
    for block_id in range(101, 101 + most):
        blocks(block_id)
    blocks(1)
    assert disk.reads[-1] == 1
