"""Transient blocks on a disk that refuses writes, for a while or for good."""

import errno
import logging

import pytest

from ackq.errors import BlockNotFoundError
from ackq_broker.journal.write import transient
from tests.unit.journal.running_journal import (
    FailingDisk,
    block_bytes,
    block_parts,
    opened,
)

FULL = OSError(errno.ENOSPC, "No space left on device")


class CountingDisk(FailingDisk):
    """A disk that counts its refused writes."""

    def __init__(self):
        super().__init__()
        self.refused = 0

    def write(self, fd, buffers, offset):
        self.refused += "write" in self.fail
        super().write(fd, buffers, offset)


@pytest.fixture
def disk(monkeypatch):
    """A disk that is tried again at once when it is full."""
    monkeypatch.setattr(transient, "_RETRY_S", 0.001)
    return CountingDisk()


def written(running):
    """Returns when every block so far was written or freed."""
    running.journal._transient._writer.submit(lambda: None).result(60)


def test_a_full_disk_keeps_transient_blocks_in_memory(data, disk, caplog):
    """P14: a block without room is readable, counts as unwritten, and is written later."""
    with opened(data, disk=disk) as running:
        disk.fail["write"] = FULL
        for number in (1, 2):
            running.journal.store_transient(number, block_parts(number))
        while disk.refused < 3:
            assert running.journal.read_block(1) == block_bytes(1)
        assert running.journal.unsynced_bytes == 1200
        assert running.failures == []
        disk.fail.clear()
        written(running)
        assert running.journal.unsynced_bytes == 0
        assert [running.journal.read_block(n) for n in (1, 2)] == [block_bytes(1), block_bytes(2)]
        (path,) = data.glob("transient-*")
        assert path.read_bytes() == block_bytes(1) + block_bytes(2)
    warned = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in warned] == [
        f"transient messages stay in memory until the disk has space: {FULL}"
    ]


def test_what_is_handled_needs_no_room(data, disk):
    """P14: freed blocks no longer count, whatever blocks wait before them."""
    with opened(data, disk=disk) as running:
        disk.fail["write"] = FULL
        for number in (1, 2, 3):
            running.journal.store_transient(number, block_parts(number))
        running.journal.free_blocks([2, 3])
        assert running.journal.unsynced_bytes == 600
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(3)
        running.journal.free_blocks([1])
        written(running)
        assert running.journal.unsynced_bytes == 0
        assert running.failures == []
        disk.fail.clear()


def test_a_journal_on_a_full_disk_can_be_closed(data, disk):
    """P14, Q7: blocks that wait for room are dropped with the process."""
    with opened(data, disk=disk) as running:
        disk.fail["write"] = FULL
        running.journal.store_transient(1, block_parts(1))
        while not disk.refused:
            assert running.journal.read_block(1) == block_bytes(1)
        running.journal._transient.close()
        disk.fail.clear()
    assert list(data.glob("transient-*")) == []


def test_a_file_that_cannot_be_made(data, disk, monkeypatch):
    """P14: a new file needs room, too, and waits for it."""
    monkeypatch.setattr(transient, "_FILE_BYTES", 600)
    made, full = disk.create, [True]

    def create(path):
        if "transient" in path.name and full[0]:
            disk.refused += 1
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return made(path)

    monkeypatch.setattr(disk, "create", create)
    with opened(data, disk=disk) as running:
        running.journal.store_transient(1, block_parts(1))
        while disk.refused < 2:
            assert running.journal.read_block(1) == block_bytes(1)
        full[0] = False
        written(running)
        assert running.journal.unsynced_bytes == 0
        assert running.journal.read_block(1) == block_bytes(1)


def test_a_disk_that_fails_ends_the_broker(data, disk):
    """P14: an error that room does not mend is raised, as for durable blocks."""
    with opened(data, disk=disk) as running:
        disk.fail["write"] = OSError(errno.EIO, "Input/output error")
        running.journal.store_transient(1, block_parts(1))
        assert str(running.wait_failed()) == "[Errno 5] Input/output error"
        disk.fail.clear()
