"""The order of writes, syncs and reports, and the refusals of the disk."""

import errno
import threading

import pytest

from ackq import limits
from ackq.errors import ClosedError, DiskFullError
from ackq_broker.journal import Entry
from ackq_broker.journal.files.format import GROUP_HEADER_BYTES, RECORD_HEADER_BYTES
from ackq_broker.journal.write import group_commit
from tests.eventually import eventually
from tests.unit.journal.running_journal import (
    TIMEOUT_S,
    FailingDisk,
    HeldDisk,
    block,
    block_bytes,
    opened,
    recovered,
    segment_files,
)

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
IO_ERROR = OSError(errno.EIO, "Input/output error")


def group_bytes(*records):
    return GROUP_HEADER_BYTES + sum(RECORD_HEADER_BYTES + len(record) for record in records)


def writes(disk):
    """The sizes of the writes so far."""
    return [step[1] for step in disk.trace if step[0] == "write"]


def test_what_arrives_during_a_sync_is_the_next_group(data):
    """P4, I1: many appends share a write and a sync, and are reported after it, never before."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.trace.clear()
        disk.hold(running, b"first")
        for record in (b"second", b"third", b"fourth"):
            running.journal.append([Entry(record)])
        journal = running.journal
        assert (running.reported, journal.synced, journal.sequence) == ([], 0, 4)
        assert journal.unsynced_bytes == group_bytes(b"first") - 40 + (
            group_bytes(b"second", b"third", b"fourth") - 40
        )
        disk.release()
        running.wait_synced(4)
        assert disk.trace == [
            ("write", group_bytes(b"first")),
            ("sync",),
            ("synced",),
            ("write", group_bytes(b"second", b"third", b"fourth")),
            ("sync",),
            ("synced",),
        ]
        assert running.reported == [1, 4]
        assert journal.unsynced_bytes == 0


def test_a_unit_is_never_split(data, monkeypatch):
    """Records appended together are in one group, however large; other groups are bounded."""
    monkeypatch.setattr(limits, "MAX_GROUP_BYTES", 1000)
    disk = HeldDisk()
    with opened(data, disk=disk, segment_bytes=1 << 20) as running:
        disk.hold(running, b"x")
        disk.trace.clear()
        for records in (3, 3, 20, 3):
            running.journal.append([Entry(bytes(100))] * records)
        disk.release()
        running.wait_synced(30)
        assert writes(disk) == [group_bytes(*[bytes(100)] * count) for count in (6, 20, 3)]


def test_an_idle_log_is_closed_once(data):
    """An idle log writes one empty group, which proves the last records complete.

    It does not write one after every group.
    """
    disk = HeldDisk()
    with opened(data, disk=disk, idle_close_s=0) as running:
        disk.trace.clear()
        running.append(b"first")
        closed = threading.Event()
        original = running.journal._group_commit._changed.wait

        def wait(timeout=None):
            if timeout is None:
                closed.set()
            return original(timeout)

        running.journal._group_commit._changed.wait = wait
        running.append(b"second")
        assert closed.wait(TIMEOUT_S)
        assert writes(disk).count(GROUP_HEADER_BYTES) <= 2

    # Then FORMAT, which has the place where the log was closed.
    assert disk.trace[-4:-1] == [("write", GROUP_HEADER_BYTES), ("sync",), ("synced",)]


def test_a_busy_log_has_no_empty_groups(data):
    """Under load no sync is spent on closing the log; the close at shutdown is one empty group.

    A clean shutdown loses no record, synced or not.
    """
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.trace.clear()
        for number in range(50):
            running.append(b"record %d" % number)
        assert GROUP_HEADER_BYTES not in writes(disk)
        for number in range(50):
            running.journal.append([Entry(b"%d" % number)])

    # Then FORMAT, which has the place where the log was closed.
    assert disk.trace[-4:-1] == [("write", GROUP_HEADER_BYTES), ("sync",), ("synced",)]
    assert len(recovered(data).records) == 100
    with pytest.raises(ClosedError, match="it was closed"):
        running.journal.append([Entry(b"late")])


def test_blocks_are_readable_before_they_are_written(data):
    """A delivery can read a block before its write, and so need not wait for the disk."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.hold(running, b"first")
        running.journal.append([block(2)])
        running.check_blocks([2])
        disk.release()
        running.wait_synced(2)
        running.check_blocks([2])


def test_more_buffers_than_one_writev_takes(data):
    """A group with more large pieces than IOV_MAX is written whole."""
    piece = bytes(range(256)) * 64
    pieces = tuple(memoryview(piece) for _ in range(1500))
    with opened(data, segment_bytes=1 << 20) as running:
        running.append(Entry(b"many", 1, pieces))
    with opened(data, segment_bytes=1 << 20) as running:
        assert running.journal.read_block(1) == piece * 1500


@pytest.mark.parametrize("size", [3000, 9000], ids=["a new segment", "a group larger than one"])
def test_a_full_disk_is_waited_for(data, monkeypatch, size, caplog):
    """P8, P14: a group waits for room and is then reported, while reads continue.

    It does not keep a broker from its end: what waited then was not answered, and is not written.
    """
    monkeypatch.setattr(group_commit, "_RETRY_S", 0.001)
    full = FailingDisk()
    with opened(data, disk=full) as running:
        running.append(block(1, 3000))
        full.fail["allocate"] = NO_SPACE
        running.journal.append([block(2, size)])
        full.wait_refused(3)
        assert (running.reported, running.failures) == ([1], [])
        assert running.journal.read_block(2) == block_bytes(2, size)
        assert running.journal.unsynced_bytes > size
        full.fail.clear()
        running.wait_synced(2)
        assert running.failures == []
        assert [record.getMessage() for record in caplog.records] == [
            f"the journal waits for room on the disk: {NO_SPACE}",
            "the journal has room on the disk again",
        ]
        files = segment_files(data)
        full.fail["allocate"] = NO_SPACE
        running.journal.append([block(3, 9000)])
        full.wait_refused()
        running.journal.stop_waiting()
        assert running.wait_failed().errno == errno.ENOSPC

    found = recovered(data)
    assert ([sequence for sequence, _ in found.records], found.cut_bytes) == ([1, 2], 0)
    assert segment_files(data) == files


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["write", "sync_data", "sync_file", "rename", "sync_directory"])
def test_no_other_call_is_tried_again(data, call, error):
    """P8: after any of them fails the disk's content is unknown until the next start.

    Nothing is reported from then on, and the next start cuts what was written in part.
    """
    disk = FailingDisk()
    failure = OSError(error, "the disk says no")
    with opened(data, disk=disk) as running:
        running.append(block(1, 3000))
        disk.fail[call] = failure
        size = 300 if call == "write" else 3000  # which needs a new segment
        running.journal.append([block(2, size), Entry(b"of the same unit")])
        assert running.wait_failed() is failure
        disk.fail.clear()
        with pytest.raises(ClosedError, match="the disk says no"):
            running.journal.append([Entry(b"late")])
        assert (running.reported, running.journal.synced) == ([1], 1)

    assert running.failures == [failure]
    found = recovered(data)
    assert len(found.records) == (3 if call == "sync_data" else 1)
    assert (found.cut_bytes > 0) == (call == "write")


class RenamingDisk(FailingDisk):
    """A disk that is full once a file has its name."""

    def rename(self, source, target):
        super().rename(source, target)
        self.fail["sync_directory"] = NO_SPACE


@pytest.mark.parametrize(
    ("kind", "fail"), [(FailingDisk, {"allocate": NO_SPACE}), (RenamingDisk, {})]
)
def test_a_full_disk_at_open(data, kind, fail):
    """O4: opening needs room for a segment; the error says so, and no record is lost."""
    with opened(data) as running:
        running.append(b"one")
    disk = kind()
    disk.fail |= fail

    with pytest.raises(DiskFullError, match=f"the disk of {data} has no room"):
        recovered(data, disk=disk)

    assert not list(data.glob("*.new"))
    assert recovered(data).records == [(1, b"one")]


def test_a_failing_callback_ends_the_journal(data):
    """An exception in `on_synced` is not swallowed, as answers would wait for ever."""
    broken = RuntimeError("broken")
    with opened(data) as running:

        def fail(_sequence):
            raise broken

        running.journal._group_commit._on_synced = fail
        running.journal.append([Entry(b"one")])
        assert running.wait_failed() is broken


@pytest.fixture
def quick(monkeypatch):
    """Makes every sync a quick one, and one of them enough."""
    monkeypatch.setattr(group_commit, "_QUICK_S", 1e9)
    monkeypatch.setattr(group_commit, "_QUICK_SYNCS", 1)


def idle(running):
    """Returns the group commit once its thread waits."""
    commit = running.journal._group_commit
    eventually("an idle thread", lambda: commit._idle, every_s=0.001)
    return commit


def append_lone(running, record, *, here):
    """Appends a lone record while the thread waits; checks whether it is synced by the caller."""
    idle(running)
    reports = len(running.reported)
    entry = record if isinstance(record, Entry) else Entry(record)
    last = running.journal.append([entry], lone=True)
    if here:
        assert running.journal.synced == last
    else:
        running.wait_synced(last)
    assert len(running.reported) == reports + (not here)


@pytest.mark.usefixtures("quick")
def test_a_lone_unit_is_synced_by_its_caller(data):
    """P4, I1: its bytes follow those of the thread, and count when the sync has returned."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        append_lone(running, b"first", here=False)
        disk.trace.clear()
        append_lone(running, block(1), here=True)
        append_lone(running, b"third", here=True)
        assert [step[0] for step in disk.trace] == ["write", "sync", "synced"] * 2
        assert running.journal.read_block(1) == block_bytes(1)
        assert (running.journal.unsynced_bytes, running.append(b"fourth")) == (0, 4)

    found = [record for _, record in recovered(data).records]
    assert found == [b"first", b"record of block 1", b"third", b"fourth"]


def test_a_slow_sync_sends_lone_units_to_the_thread(data, monkeypatch):
    """I6: others wait for one slow sync at most, until as many in the thread were quick."""
    with opened(data, segment_bytes=1 << 20) as running:
        for slow_s in (1e9, 0):
            monkeypatch.setattr(group_commit, "_QUICK_S", 1e9)
            for _ in range(group_commit._QUICK_SYNCS):
                append_lone(running, b"quick", here=False)
            append_lone(running, b"quick", here=True)
            monkeypatch.setattr(group_commit, "_QUICK_S", slow_s)
            append_lone(running, b"slow", here=True)
            if slow_s:
                monkeypatch.setattr(group_commit, "_QUICK_S", 0)
                append_lone(running, b"slow", here=True)


@pytest.mark.usefixtures("quick")
def test_what_does_not_fit_goes_to_the_thread(data):
    """I6: a large unit, or one that needs a new segment, would keep the caller waiting."""
    with opened(data, segment_bytes=1 << 18) as running:
        append_lone(running, b"first", here=False)
        append_lone(running, block(1, group_commit._HERE_BYTES), here=False)
        for number in (2, 3, 4, 5):
            append_lone(running, block(number, 60_000), here=number != 5)


@pytest.mark.usefixtures("quick")
def test_an_item_in_the_queue_is_not_overtaken(data):
    """I2: a lone unit after another, or while the thread writes, is a unit of its queue."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        append_lone(running, b"first", here=False)
        disk.hold(running, b"second")
        running.journal.append([Entry(b"third")], lone=True)
        assert running.journal.synced == 1
        disk.release()
        running.wait_synced(3)
        with idle(running)._changed:  # so that the thread cannot take it yet
            running.journal.append([Entry(b"fourth")])
            running.journal.append([Entry(b"fifth")], lone=True)
            assert running.journal.synced == 3
        running.wait_synced(5)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("call", ["write", "sync_data"])
def test_a_lone_unit_that_fails_ends_the_journal(data, call):
    """P8: as in the thread: it is not reported, and nothing is written from then on."""
    disk = FailingDisk()
    with opened(data, disk=disk) as running:
        append_lone(running, b"good", here=False)
        idle(running)
        disk.fail[call] = IO_ERROR
        with pytest.raises(OSError, match="Input/output error"):
            running.journal.append([Entry(b"lost")], lone=True)
        disk.fail.clear()
        with pytest.raises(ClosedError, match="Input/output error"):
            running.journal.append([Entry(b"late")])
        assert (running.reported, running.journal.synced) == ([1], 1)

    assert running.failures == [IO_ERROR]


@pytest.mark.usefixtures("quick")
def test_a_log_of_lone_units_is_closed_when_idle(data):
    """Q7: the thread closes it once no unit came, and writes the first unit after that."""
    with opened(data, idle_close_s=0.2) as running:
        append_lone(running, b"first", here=False)
        append_lone(running, b"second", here=True)
        log = running.journal._group_commit._log
        assert not log.closed
        eventually("a closed log", lambda: log.closed)
        append_lone(running, b"third", here=False)


def test_free_disk(data):
    """P14: the free bytes are those of the data directory's disk."""
    disk = HeldDisk()
    disk.free_bytes = lambda directory: 1000 if directory == data else 0
    with opened(data, disk=disk) as running:
        assert running.journal.disk_free_bytes() == 1000
