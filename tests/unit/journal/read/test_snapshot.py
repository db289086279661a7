"""Snapshots: when they are valid, which files they replace; live blocks are never lost."""

import errno
import threading
from pathlib import Path

import pytest

from ackq import limits
from ackq.errors import BlockNotFoundError, DamagedError
from ackq_broker.journal import Entry, dump
from ackq_broker.journal.files.directory import segment_name, snapshot_name
from ackq_broker.journal.read.snapshot import read
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


def snapshots(directory):
    return sorted(path.name for path in directory.glob("snapshot-*"))


def test_recovery_begins_at_the_snapshot(data):
    """Q7: the state, its sequence and later records; earlier records are not read again."""
    with opened(data) as running:
        running.append(b"one", b"two")
        running.snapshot(b"after two")
        running.append(b"three")

    found = recovered(data)

    assert (found.snapshot, found.snapshot_sequence) == (b"after two", 2)
    assert found.records == [(3, b"three")]


def test_a_snapshot_of_nothing_more(data):
    """A second snapshot at the same sequence replaces the first."""
    with opened(data) as running:
        running.append(b"one")
        running.snapshot(b"first")
        running.snapshot(b"second")

    assert snapshots(data) == [snapshot_name(1)]
    assert recovered(data).snapshot == b"second"


def test_an_empty_state(data):
    """An empty state is a state, too."""
    with opened(data) as running:
        running.append(b"one")
        running.snapshot(b"")

    assert (recovered(data).snapshot, recovered(data).snapshot_sequence) == (b"", 1)


def test_a_snapshot_waits_for_the_sync(data):
    """I1: a snapshot at X gets its name only once X is synced."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        disk.hold()
        running.journal.append([Entry(b"one")])
        disk.wait_until_syncing()
        done = running.journal.write_snapshot((b"state",), 1)
        assert not done.done()
        assert snapshots(data) == []
        disk.release()
        done.result(TIMEOUT_S)
        assert snapshots(data) == [snapshot_name(1)]


def test_a_snapshot_is_of_one_instant(data):
    """A block that is freed after the request of a snapshot is live in it, even on a slow disk."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        running.append(block(1))
        disk.hold()
        running.journal.append([Entry(b"two")])
        disk.wait_until_syncing()
        done = running.journal.write_snapshot((b"state",), 2)
        running.journal.append([block(2), Entry(b"frees block 1")])
        running.journal.free_blocks([1])
        disk.release()
        done.result(TIMEOUT_S)

    table = read(data / snapshot_name(2)).table
    assert (len(table), table.find(2)) == (1, None)
    assert table.find(1) is not None


class HeldRename:
    """A failpoint that holds a snapshot before it gets its name, until `go_on` is set."""

    def __init__(self):
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, point):
        if point == "before_rename_snapshot":
            self.reached.set()
            assert self.go_on.wait(TIMEOUT_S)


def test_appends_go_on_beside_a_snapshot(data):
    """A large snapshot does not delay confirms."""
    rename = HeldRename()
    with opened(data, failpoint=rename) as running:
        running.append(b"one")
        done = running.journal.write_snapshot((b"state",), 1)
        assert rename.reached.wait(TIMEOUT_S)
        assert not running.journal.snapshot_due
        assert running.append(b"two") == 2
        rename.go_on.set()
        done.result(TIMEOUT_S)

    assert recovered(data).records == [(2, b"two")]


def test_a_second_snapshot_waits_for_the_first(data):
    """A shutdown may request a snapshot while one is written: both are made, in order."""
    rename = HeldRename()
    with opened(data, failpoint=rename) as running:
        running.append(b"one")
        first = running.journal.write_snapshot((b"first",), 1)
        assert rename.reached.wait(TIMEOUT_S)
        running.append(b"two")
        second = running.journal.write_snapshot((b"second",), 2)
        assert not second.done()
        rename.go_on.set()
        second.result(TIMEOUT_S)
        assert first.done()

    assert snapshots(data) == [snapshot_name(2)]
    assert recovered(data).snapshot == b"second"


def test_a_snapshot_that_cannot_be_written_changes_nothing(data):
    """P8: on a full disk the new snapshot fails, the old one stays, and the journal goes on."""
    disk = FailingDisk()
    with opened(data, disk=disk) as running:
        running.append(b"one")
        running.snapshot(b"first")
        running.append(b"two")
        disk.fail["sync_file"] = OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(OSError, match="No space left"):
            running.snapshot(b"second")
        disk.fail.clear()
        assert running.append(b"three") == 3
        assert (running.failures, list(data.glob("*.new"))) == ([], [])

    found = recovered(data)
    assert (found.snapshot, [sequence for sequence, _ in found.records]) == (b"first", [2, 3])


def test_a_snapshot_whose_name_is_in_doubt_ends_the_process(data):
    """A failed directory sync leaves the valid snapshot unknown: nothing is deleted or answered."""
    disk = FailingDisk()
    with opened(data, disk=disk) as running:
        running.append_blocks(1, 9)
        running.journal.free_blocks(range(1, 10))
        before = segment_files(data)
        disk.fail["sync_directory"] = OSError(errno.EIO, "Input/output error")
        with pytest.raises(OSError, match="Input/output"):
            running.snapshot()
        assert [str(error) for error in running.failures] == ["[Errno 5] Input/output error"]
        assert segment_files(data) == before
        disk.fail.clear()


def test_a_snapshot_that_nobody_waits_for_any_more(data):
    """I1, Q7: its caller cannot cancel it: it is valid, or its doubtful name ends the process."""
    rename = HeldRename()
    disk = FailingDisk()
    with opened(data, disk=disk, failpoint=rename) as running:
        running.append(b"one")
        done = running.journal.write_snapshot((b"state",), 1)
        assert rename.reached.wait(TIMEOUT_S)
        assert not done.cancel()
        disk.fail["sync_directory"] = OSError(errno.EIO, "the directory")
        rename.go_on.set()
        assert running.wait_failed().errno == errno.EIO
        disk.fail.clear()


def test_a_damaged_snapshot_is_refused(data):
    """A snapshot is covered by checksums in every byte."""
    with opened(data) as running:
        running.append(block(1))
        running.snapshot()
    path = data / snapshot_name(1)
    content = path.read_bytes()

    for offset in range(len(content)):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << offset % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedError, match="damaged"):
            read(path)
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedError, match="instead of"):
        recovered(data)


def test_dead_segments_go(data):
    """A segment is deleted when a snapshot covers its records and it has no live block."""
    with opened(data) as running:
        running.append_blocks(1, 19)
        first, *_, last = segment_files(data)
        running.append(b"all but the last are dead")
        running.journal.free_blocks(range(1, 19))
        running.snapshot()
        assert segment_files(data) == [last]
        assert not first.exists()
        with pytest.raises(BlockNotFoundError, match="block 1 was freed"):
            running.journal.read_block(1)
        assert running.journal.read_block(19) == block_bytes(19)

    with opened(data) as running:
        assert running.records == []
        assert running.journal.read_block(19) == block_bytes(19)


def test_an_old_lease_keeps_its_segment(data):
    """S7: a block leased for ever stays readable through snapshots, deletions and restarts."""
    with opened(data) as running:
        running.append_blocks(1, 5)
        kept = segment_files(data)[0]
        for number in range(6, 60):
            running.append(block(number))
            running.journal.free_blocks([number])
        for _ in range(3):
            running.snapshot()
        assert segment_files(data)[0] == kept
        assert len(segment_files(data)) <= 3
        found = [running.journal.read_block(number) for number in range(1, 6)]

    with opened(data) as running:
        again = [running.journal.read_block(number) for number in range(1, 6)]

    assert found == again == [block_bytes(number) for number in range(1, 6)]


def compacted(directory):
    """A journal whose old segments keep one live block in five, and those blocks."""
    live = list(range(3, 60, 5))
    with opened(directory) as running:
        running.append_blocks(1, 60)
        running.append(b"most are dead")
        running.journal.free_blocks(set(range(1, 61)) - set(live))
        before = segment_files(directory)
        running.snapshot()
        running.snapshot()
        after = segment_files(directory)
        running.append(b"after")
    return live, before, after


def test_compaction_frees_mostly_dead_segments(data):
    """Compaction copies live blocks of mostly dead segments; the next snapshot deletes these."""
    live, before, after = compacted(data)

    assert len(before) > 10
    assert len(after) <= 4
    with opened(data) as running:
        assert [running.journal.read_block(n) for n in live] == [block_bytes(n) for n in live]


def test_relocations_take_no_sequence(data):
    """Relocations are the journal's own records, and take no sequence of the core."""
    compacted(data)

    found = recovered(data)

    assert any("relocation" in line for line in dump(data))
    assert (found.snapshot_sequence, found.records) == (61, [(62, b"after")])


def test_a_restart_between_copy_and_snapshot(data):
    """Before the next snapshot both copies exist; recovery reads from the new one."""
    with opened(data) as running:
        running.append_blocks(1, 11)
        running.journal.free_blocks(set(range(1, 12)) - {3})
        running.snapshot()
    assert any("relocation" in line for line in dump(data))

    with opened(data) as running:
        old = segment_files(data)[0]
        running.snapshot()
        assert not old.exists()
        assert running.journal.read_block(3) == block_bytes(3)


def test_a_block_freed_during_its_copy_stays_free(data):
    """The relocation of a block that was freed does not bring it back, nor does a restart."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        running.append_blocks(1, 11)
        running.journal.free_blocks(set(range(1, 12)) - {3})
        put = running.journal._group_commit.put

        def free_first(item, **how):
            if getattr(item, "done", None) is not None:
                running.journal.append([Entry(b"frees 3")])
                running.journal.free_blocks([3])
            put(item, **how)

        running.journal._group_commit.put = free_first
        running.snapshot()
        assert any("relocation" in line for line in dump(data))
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(3)

    with opened(data, start=False) as running:
        for _, record in running.recovery.records:
            assert record == b"frees 3"
            running.journal.free_blocks([3])
        running.journal.start()
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(3)
        running.snapshot()
        assert len(segment_files(data)) == 1


def test_a_damaged_block_stops_no_compaction(data, caplog):
    """Compaction leaves an unreadable block in place, and logs that."""
    with opened(data) as running:
        running.append_blocks(1, 11)
        path = segment_files(data)[0]
        place = path.read_bytes().index(block_bytes(3))
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"?")
        running.journal.free_blocks(set(range(1, 12)) - {3})
        running.snapshot()
        assert path.exists()
        assert f"compaction skips segment 1: block 3 is damaged on the disk: {path}" in caplog.text
        with pytest.raises(DamagedError, match=f"{path} byte {place}"):
            running.journal.read_block(3)


def test_readers_outlive_their_segment(data):
    """A read that found its segment succeeds, even when the segment is deleted meanwhile."""
    with opened(data) as running:
        running.append_blocks(1, 19)
        running.journal.read_block(1)
        files = running.journal._blocks._files
        handle = files._handle(1)
        running.journal.free_blocks(range(1, 20))
        running.snapshot()
        assert not (data / segment_name(1)).exists()
        assert handle not in files._open.values()
        assert block_bytes(1) in Path(f"/proc/self/fd/{handle.fd}").read_bytes()


def test_snapshots_are_due_by_bytes_written(data, monkeypatch):
    """Snapshots bound recovery: they are due by the bytes to read again, also after a start."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_BYTES", 5000)
    with opened(data) as running:
        assert not running.journal.snapshot_due
        running.append_blocks(1, 8)
        assert running.journal.snapshot_due
    with opened(data) as running:
        assert running.journal.snapshot_due
        running.snapshot()
        assert not running.journal.snapshot_due
    with opened(data) as running:
        assert not running.journal.snapshot_due


def test_snapshots_are_due_by_records(data, monkeypatch):
    """Small records cost a start by their number: snapshots are due by it, also after a start."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_RECORDS", 5)
    with opened(data) as running:
        running.append(*[b"record"] * 4)
        assert not running.journal.snapshot_due
        running.append(b"record")
        assert running.journal.snapshot_due
    with opened(data) as running:
        assert running.journal.snapshot_due
        running.snapshot()
        assert not running.journal.snapshot_due
        running.append(*[b"record"] * 4)
    with opened(data) as running:
        assert not running.journal.snapshot_due
        running.append(b"record")
        assert running.journal.snapshot_due


def test_large_snapshots_are_due_by_more_records(data, monkeypatch):
    """The bytes written for snapshots are bounded per record, also after a start."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_RECORDS", 5)
    monkeypatch.setattr(limits, "SNAPSHOT_RECORD_BYTES", 10)
    with opened(data) as running:
        running.append(b"record")
        running.snapshot(b"s" * 80)
        running.append(*[b"record"] * 7)
        assert not running.journal.snapshot_due
    with opened(data) as running:
        assert not running.journal.snapshot_due
        running.append(b"record")
        assert running.journal.snapshot_due


def test_snapshots_are_due_by_bytes_freed(data, monkeypatch):
    """A consumer that drains a backlog writes little, but its disk space must be freed, too."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_BYTES", 5000)
    with opened(data) as running:
        running.append_blocks(1, 19)
        running.snapshot()
        running.journal.free_blocks(range(1, 20))
        running.append(b"accepted")
        assert running.journal.snapshot_due


def test_what_a_dead_process_did_not_delete_goes_at_open(data):
    """Files that a crash after a snapshot's rename left are deleted at the next open."""
    calls = []

    class StopError(Exception):
        pass

    def failpoint(point):
        calls.append(point)
        if point == "before_rename_spare":
            raise StopError

    with opened(data, failpoint=failpoint) as running:
        running.append_blocks(1, 19)
        running.journal.free_blocks(range(1, 20))
        with pytest.raises(StopError):
            running.snapshot()
        assert calls[-2:] == ["after_sync_directory_data", "before_rename_spare"]
    assert len(segment_files(data)) > 3

    recovered(data)

    assert len(segment_files(data)) == 1


def test_garbage_is_what_came_after_the_snapshot(data):
    """P8: at the reserve a snapshot is worth its room when anything was written or freed since."""
    with opened(data) as running:
        running.append(block(1))
        assert running.journal.has_garbage
        running.journal.write_snapshot((b"state",), 1).result()
        assert not running.journal.has_garbage
        running.journal.free_blocks([1])
        running.append(b"freed it")
        assert running.journal.has_garbage
