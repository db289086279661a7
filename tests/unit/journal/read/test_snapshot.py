"""Snapshots: when they are valid, which files they replace; live blocks are never lost."""

import errno
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
    HeldAt,
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
    """Q7: the newest state, also an empty one, its sequence and the records after it."""
    with opened(data) as running:
        running.append(b"one", b"two")
        for state in (b"first", b"second"):
            running.snapshot(state)
        running.append(b"three")

    assert snapshots(data) == [snapshot_name(2)]
    found = recovered(data)
    assert (found.snapshot, found.snapshot_sequence) == (b"second", 2)
    assert found.records == [(3, b"three")]
    with opened(data) as running:
        running.snapshot(b"")
    assert recovered(data).snapshot == b""


def test_a_snapshot_is_of_one_instant(data):
    """I1: it gets its name only once its sequence is synced; what is freed later is live in it."""
    disk = HeldDisk()
    with opened(data, disk=disk) as running:
        running.append(block(1))
        disk.hold(running, b"two")
        done = running.journal.write_snapshot((b"state",), 2)
        running.journal.append([block(2), Entry(b"frees block 1")])
        running.journal.free_blocks([1])
        assert (done.done(), snapshots(data)) == (False, [])
        disk.release()
        done.result(TIMEOUT_S)

    assert read(data / snapshot_name(2)).table.ids().tolist() == [1]


def test_appends_go_on_beside_a_snapshot(data):
    """A large snapshot does not delay confirms; the next one, as of a shutdown, comes after it."""
    rename = HeldAt("before_rename_snapshot")
    with opened(data, failpoint=rename) as running:
        running.append(b"one")
        first = running.journal.write_snapshot((b"first",), 1)
        assert rename.reached.wait(TIMEOUT_S)
        assert not running.journal.snapshot_due
        assert running.append(b"two") == 2
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
    """I1, Q7: the valid snapshot is unknown: nothing is deleted, also if its caller left."""
    rename, disk = HeldAt("before_rename_snapshot"), FailingDisk()
    with opened(data, disk=disk, failpoint=rename) as running:
        running.append_blocks(1, 9)
        running.journal.free_blocks(range(1, 10))
        before = segment_files(data)
        done = running.journal.write_snapshot((b"state",), 9)
        assert rename.reached.wait(TIMEOUT_S)
        assert not done.cancel()
        disk.fail["sync_directory"] = error = OSError(errno.EIO, "Input/output error")
        rename.go_on.set()
        with pytest.raises(OSError, match="Input/output"):
            done.result(TIMEOUT_S)
        assert running.wait_failed() is error
        assert segment_files(data) == before
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
    """S7: a block leased for ever stays readable through deletions, snapshots and restarts."""
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
        running.check_blocks(range(1, 6))
        with pytest.raises(BlockNotFoundError, match="block 6 was freed"):
            running.journal.read_block(6)

    with opened(data) as running:
        assert running.records == []
        running.check_blocks(range(1, 6))


def test_compaction_frees_mostly_dead_segments(data):
    """Live blocks are copied, without a sequence of the core; the next snapshot deletes the old."""
    live = list(range(3, 60, 5))
    with opened(data) as running:
        running.append_blocks(1, 60)
        running.append(b"most are dead")
        running.journal.free_blocks(set(range(1, 61)) - set(live))
        assert len(segment_files(data)) > 10
        running.snapshot()
        running.snapshot()
        assert len(segment_files(data)) <= 4
        running.append(b"after")

    assert any("relocation" in line for line in dump(data))
    with opened(data) as running:
        found = running.recovery.snapshot_sequence, running.records
        assert found == (61, [(62, b"after")])
        running.check_blocks(live)


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


def test_snapshots_are_due_by_bytes(data, monkeypatch):
    """Snapshots bound what a start reads and what dead blocks take, also after a start."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_BYTES", 5000)
    with opened(data) as running:
        assert not running.journal.snapshot_due
        running.append_blocks(1, 9)
        assert running.journal.snapshot_due
    with opened(data) as running:
        assert running.journal.snapshot_due
        running.snapshot()
        assert not running.journal.snapshot_due
    with opened(data) as running:
        assert not running.journal.snapshot_due
        running.journal.free_blocks(range(1, 10))
        running.append(b"accepted")
        assert running.journal.snapshot_due


def test_snapshots_are_due_by_records(data, monkeypatch):
    """Small records cost a start by their number, and a snapshot its bytes: after large ones later.

    Both are bounded, also after a start.
    """
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_RECORDS", 5)
    monkeypatch.setattr(limits, "SNAPSHOT_RECORD_BYTES", 10)

    def due_after(running, records):
        running.append(*[b"record"] * (records - 1))
        assert not running.journal.snapshot_due
        running.append(b"record")
        assert running.journal.snapshot_due

    with opened(data) as running:
        due_after(running, 5)
    with opened(data) as running:
        assert running.journal.snapshot_due
        running.snapshot(b"s" * 80)
        running.append(*[b"record"] * 2)
    with opened(data) as running:
        due_after(running, 6)


def test_what_a_dead_process_did_not_delete_goes_at_open(data):
    """Files that a crash after a snapshot's rename left are deleted at the next open."""

    class StopError(Exception):
        pass

    def failpoint(point):
        if point == "before_rename_spare":
            raise StopError

    with opened(data, failpoint=failpoint) as running:
        running.append_blocks(1, 19)
        running.journal.free_blocks(range(1, 20))
        with pytest.raises(StopError):
            running.snapshot()
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


def test_a_snapshot_without_memory_ends_the_process(data):
    """I2: no later snapshot could begin, and the log would grow until a restart."""

    def state():
        yield b"half"
        raise MemoryError

    with opened(data) as running:
        running.append_blocks(1, 2)
        written = running.journal.write_snapshot(state(), running.journal.sequence)
        with pytest.raises(MemoryError):
            written.result(TIMEOUT_S)
        assert isinstance(running.wait_failed(), MemoryError)
