"""Transient blocks on a disk that refuses writes, for a while or for good."""

import errno
import logging

import pytest

from ackq.errors import BlockNotFoundError
from ackq_broker.journal.write import transient
from tests.unit.journal.running_journal import FailingDisk, block_bytes, block_parts, opened

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch):
    """A disk that is tried again at once when it is full."""
    monkeypatch.setattr(transient, "_RETRY_S", 0.001)
    return FailingDisk()


def written(running):
    """Returns when every block so far was written or freed."""
    running.journal._transient._writer.submit(lambda: None).result(60)


@pytest.mark.parametrize("call", ["write", "create"])
@pytest.mark.parametrize("error", [FULL, OSError(errno.EDQUOT, "Disk quota exceeded")])
def test_a_full_disk_keeps_transient_blocks_in_memory(data, disk, caplog, call, error):
    """P14: a block without room is readable, counts as unwritten, and is written later."""
    with opened(data, disk=disk) as running:
        disk.fail[call] = error
        for number in (1, 2):
            running.journal.store_transient(number, block_parts(number))
        disk.wait_refused(3)
        running.check_blocks([1, 2])
        assert (running.journal.unsynced_bytes, running.failures) == (1200, [])
        disk.fail.clear()
        written(running)
        assert running.journal.unsynced_bytes == 0
        running.check_blocks([1, 2])
        (path,) = data.glob("transient-*")
        assert path.read_bytes() == block_bytes(1) + block_bytes(2)
    warned = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in warned] == [
        f"transient messages stay in memory until the disk has space: {error}"
    ]


def test_what_is_handled_needs_no_room(data, disk):
    """P14, Q7: freed blocks no longer count; those that wait are dropped with the process."""
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
        assert (running.journal.unsynced_bytes, running.failures) == (0, [])
        running.journal.store_transient(4, block_parts(4))
        running.check_blocks([4])
        running.journal._transient.close()
        disk.fail.clear()
    assert list(data.glob("transient-*")) == []


def test_a_disk_that_fails_ends_the_broker(data, disk):
    """P14: an error that room does not mend is raised, as for durable blocks."""
    with opened(data, disk=disk) as running:
        disk.fail["write"] = OSError(errno.EIO, "Input/output error")
        running.journal.store_transient(1, block_parts(1))
        assert str(running.wait_failed()) == "[Errno 5] Input/output error"
        disk.fail.clear()
