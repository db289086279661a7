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


def test_what_arrives_during_a_sync_is_the_next_group(data):
    """P4: group commit: many appends share a write and a sync; groups are synced one by one."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.trace.clear()
        disk.hold()
        running.journal.append([Entry(b"first")])
        disk.wait_until_syncing()
        for record in (b"second", b"third", b"fourth"):
            running.journal.append([Entry(record)])
        assert running.journal.synced == 0
        assert running.journal.unsynced_bytes == group_bytes(b"first") - 40 + (
            group_bytes(b"second", b"third", b"fourth") - 40
        )
        disk.release()
        running.wait_synced(4)
        trace = list(disk.trace)
        reported = list(running.reported)

    assert trace == [
        ("write", group_bytes(b"first")),
        ("sync",),
        ("synced",),
        ("write", group_bytes(b"second", b"third", b"fourth")),
        ("sync",),
        ("synced",),
    ]
    assert reported == [1, 4]
    assert running.journal.unsynced_bytes == 0


def test_nothing_is_reported_before_its_sync(data):
    """I1: a sequence is reported after the sync that covers it, never before."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.hold()
        running.journal.append([Entry(b"first")])
        disk.wait_until_syncing()
        assert (running.reported, running.journal.synced, running.journal.sequence) == ([], 0, 1)
        disk.release()
        running.wait_synced(1)
        assert running.reported == [1]


def test_a_unit_is_never_split(data, monkeypatch):
    """Records appended together are in one group, however large; other groups are bounded."""
    monkeypatch.setattr(limits, "MAX_GROUP_BYTES", 1000)
    disk = HeldDisk()
    with opened(data, disk=disk, segment_bytes=1 << 20) as running:
        disk.trace.clear()
        disk.hold()
        running.journal.append([Entry(b"x")])
        disk.wait_until_syncing()
        running.journal.append([Entry(bytes(100))] * 3)
        running.journal.append([Entry(bytes(100))] * 3)
        running.journal.append([Entry(bytes(100))] * 20)
        running.journal.append([Entry(bytes(100))] * 3)
        disk.release()
        running.wait_synced(30)
        writes = [step[1] for step in disk.trace if step[0] == "write"]

    assert writes[1:] == [group_bytes(*[bytes(100)] * count) for count in (6, 20, 3)]


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
        writes = [step[1] for step in disk.trace if step[0] == "write"]

    assert writes[-1] == GROUP_HEADER_BYTES
    assert writes.count(GROUP_HEADER_BYTES) <= 2
    # And FORMAT, which has the place where the log was closed.
    assert [step[0] for step in disk.trace][-4:] == ["write", "sync", "synced", "write"]


def test_a_busy_log_has_no_empty_groups(data):
    """Under load no sync is spent on closing the log; the close at shutdown is one empty group."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.trace.clear()
        for number in range(50):
            running.append(b"record %d" % number)
        writes = [step[1] for step in disk.trace if step[0] == "write"]

    assert GROUP_HEADER_BYTES not in writes
    # Then FORMAT, which has the place where the log was closed.
    assert disk.trace[-4:-1] == [("write", GROUP_HEADER_BYTES), ("sync",), ("synced",)]


def test_close_writes_what_was_appended(data):
    """A clean shutdown loses no record, synced or not."""
    with opened(data) as running:
        for number in range(100):
            running.journal.append([Entry(b"%d" % number)])

    assert len(recovered(data).records) == 100


def test_ten_thousand_small_appends(data):
    """10,000 appends are recovered whole and in order, from few groups."""
    disk = HeldDisk()
    with opened(data, disk=disk, segment_bytes=1 << 20) as running:
        disk.hold()
        writer = threading.Thread(
            target=lambda: [running.journal.append([Entry(b"%d" % n)]) for n in range(10_000)]
        )
        writer.start()
        disk.wait_until_syncing()
        writer.join(TIMEOUT_S)
        disk.release()
        running.wait_synced(10_000)
        assert disk.trace.count(("sync",)) <= 3

    records = recovered(data, segment_bytes=1 << 20).records
    assert records == [(n + 1, b"%d" % n) for n in range(10_000)]


def test_blocks_are_readable_before_they_are_written(data):
    """A delivery can read a block before its write, and so need not wait for the disk."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.hold()
        running.journal.append([block(1)])
        disk.wait_until_syncing()
        running.journal.append([block(2)])
        early = [running.journal.read_block(number) for number in (1, 2)]
        disk.release()
        running.wait_synced(2)
        late = [running.journal.read_block(number) for number in (1, 2)]

    assert early == late == [block_bytes(1), block_bytes(2)]


def test_more_buffers_than_one_writev_takes(data):
    """A group with more large pieces than IOV_MAX is written whole."""
    piece = bytes(range(256)) * 64
    pieces = tuple(memoryview(piece) for _ in range(1500))
    with opened(data, segment_bytes=1 << 20) as running:
        running.append(Entry(b"many", 1, pieces))
    with opened(data, segment_bytes=1 << 20) as running:
        assert running.journal.read_block(1) == piece * 1500


def test_a_failed_sync_answers_nobody(data):
    """P8: after a failed sync no sequence is reported, not even if a later sync succeeds."""
    disk = FailingDisk()
    with opened(data, disk=disk) as running:
        running.append(b"good")
        disk.fail["sync_data"] = IO_ERROR
        running.journal.append([Entry(b"lost")])
        assert running.wait_failed() is IO_ERROR
        disk.fail.clear()
        with pytest.raises(ClosedError, match="Input/output error"):
            running.journal.append([Entry(b"late")])
        assert (running.reported, running.journal.synced) == ([1], 1)

    assert running.failures == [IO_ERROR]


def test_a_full_disk_in_the_middle_of_a_group(data):
    """A half-written group is not trusted: it is not reported, and the next open cuts it."""
    disk = FailingDisk()
    with opened(data, disk=disk) as running:
        running.append(b"good")
        disk.fail["write"] = NO_SPACE
        running.journal.append([Entry(b"one of two"), Entry(b"two of two")])
        assert running.wait_failed() is NO_SPACE
        assert running.reported == [1]

    found = recovered(data)
    assert found.records == [(1, b"good")]
    assert found.cut_bytes > 0


class FullDisk(FailingDisk):
    """A disk that is full while `fail` has `allocate`, and counts the refused calls."""

    def __init__(self):
        super().__init__()
        self.refused = threading.Semaphore(0)

    def allocate(self, fd, size):
        if "allocate" in self.fail:
            self.refused.release()
        super().allocate(fd, size)

    def wait_refused(self):
        assert self.refused.acquire(timeout=TIMEOUT_S)


@pytest.fixture
def full(monkeypatch):
    """A disk that the journal tries again at once when it is full."""
    monkeypatch.setattr(group_commit, "_RETRY_S", 0.001)
    return FullDisk()


@pytest.mark.parametrize("size", [3000, 9000], ids=["a new segment", "a group larger than one"])
def test_a_full_disk_is_waited_for(data, full, size, caplog):
    """P8, P14: a group waits for room and is then reported, while reads continue."""
    with opened(data, disk=full) as running:
        running.append(block(1, 3000))
        full.fail["allocate"] = NO_SPACE
        running.journal.append([block(2, size)])
        for _ in range(3):
            full.wait_refused()
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
    assert [sequence for sequence, _ in recovered(data).records] == [1, 2]


def test_a_full_disk_does_not_keep_a_broker_from_its_end(data, full):
    """P8: a record that waited for room was not answered, and its group is not written at all."""
    with opened(data, disk=full) as running:
        running.append(block(1, 3000))
        full.fail["allocate"] = NO_SPACE
        running.journal.append([block(2, 3000)])
        full.wait_refused()
        running.journal.stop_waiting()
        assert running.wait_failed().errno == errno.ENOSPC

    found = recovered(data)
    assert ([sequence for sequence, _ in found.records], found.cut_bytes) == ([1], 0)
    assert len(segment_files(data)) == 1


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["write", "sync_data", "sync_file", "rename", "sync_directory"])
def test_no_other_call_is_tried_again(data, call, error):
    """P8: after any of them fails the disk's content is unknown until the next start."""
    disk = FailingDisk()
    failure = OSError(error, "the disk says no")
    with opened(data, disk=disk) as running:
        running.append(block(1, 3000))
        disk.fail[call] = failure
        running.journal.append([block(2, 3000)])
        assert running.wait_failed() is failure
        disk.fail.clear()
        assert (running.reported, running.journal.synced) == ([1], 1)

    assert recovered(data).records[0] == (1, b"record of block 1")


def test_a_full_disk_at_open(data):
    """Opening needs room for a segment; the error says so, and no record is lost."""
    with opened(data) as running:
        running.append(b"one")
    disk = FailingDisk()
    disk.fail["allocate"] = NO_SPACE

    with pytest.raises(DiskFullError, match=f"the disk of {data} has no room"):
        recovered(data, disk=disk)

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
        disk.hold()
        running.journal.append([Entry(b"second")])
        disk.wait_until_syncing()
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
    assert recovered(data).records[0] == (1, b"good")


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


def test_nothing_can_be_appended_after_close(data):
    """An append to a closed journal is refused."""
    with opened(data) as running:
        pass
    with pytest.raises(ClosedError, match="it was closed"):
        running.journal.append([Entry(b"late")])


def test_free_disk(data):
    """P14: the free bytes are those of the data directory's disk."""
    disk = HeldDisk()
    disk.free_bytes = lambda directory: 1000 if directory == data else 0
    with opened(data, disk=disk) as running:
        assert running.journal.disk_free_bytes() == 1000
