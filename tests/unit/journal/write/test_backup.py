"""O5: a backup of an open journal opens as the journal was, whatever is done to that later."""

import errno
import fcntl
import json
import os
import shutil
import stat
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from ackq.errors import ClosedError, PreconditionFailedError
from ackq_broker.journal import verify
from ackq_broker.journal.files.directory import segment_name
from ackq_broker.journal.files.disk import Disk
from tests.unit.journal.running_journal import TIMEOUT_S, HeldAt, ListingDisk, opened, segment_files


class LinklessDisk(Disk):
    """A disk without links, as between two file systems."""

    def link(self, source, target):  # noqa: ARG002 - it only fails
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(target))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "backup"


def back_up(running, target, state=b"state"):
    """Begins a backup of the present state."""
    return running.journal.back_up((state,), running.journal.sequence, target)


@pytest.mark.parametrize("disk", [Disk, LinklessDisk])
def test_a_backup_opens_as_the_journal_was(data, target, disk):
    """O5: with the state and the live blocks of its sequence, and without later ones."""
    # An unfinished backup of a killed process is replaced, and one that has its name is not.
    target.with_name("backup.new").mkdir()
    target.with_name("backup.new").joinpath(segment_name(1)).write_bytes(b"half")
    with opened(data, disk=disk(sync=False)) as running:
        running.append_blocks(1, 20)
        running.journal.free_blocks(range(1, 8))
        made = back_up(running, target, b"as of 20").result(TIMEOUT_S)
        running.append_blocks(21, 30)
        with pytest.raises(PreconditionFailedError, match="give the backup another name"):
            back_up(running, target).result(TIMEOUT_S)
        assert made.sequence == 20
        assert made.directory == target
        assert made.total_bytes == sum(path.stat().st_size for path in target.iterdir())
        assert (made.copied_bytes < made.total_bytes // 2) == (disk is Disk)
        assert stat.S_IMODE(target.stat().st_mode) == 0o700
    report = verify(target)
    assert (report.opens, report.lost_blocks, report.end.sequence) == (True, (), 20)
    with opened(target) as restored:
        assert restored.recovery.snapshot == b"as of 20"
        assert restored.records == []
        restored.check_blocks(range(8, 21))
        restored.append_blocks(21, 22)
    with opened(target) as restored:
        assert len(restored.records) == 2


def test_another_broker_makes_a_backup_in_the_directory(data, target):
    """O5: neither takes the other's unfinished backup for one that a killed process left."""
    other = os.open(target.parent, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with opened(data) as running:
        running.append_blocks(1, 2)
        with pytest.raises(PreconditionFailedError, match="a --backup-dir of its own"):
            back_up(running, target).result(TIMEOUT_S)
        os.close(other)
        assert back_up(running, target).result(TIMEOUT_S).directory == target


def test_a_backup_is_on_the_disk_before_it_has_its_name(data, tmp_path):
    """O5: its files and all names of new directories are synced, then it gets its own name."""
    target = tmp_path / "new" / "backups" / "b"

    class Disk(ListingDisk):
        def rename(self, source, name):
            if name == target:
                inside = {path.name for path in files if path.parent == source}
                said.append((names[source] == set(source.iterdir()), inside))
            super().rename(source, name)

        def sync_file(self, fd):
            files.add(Path(f"/proc/self/fd/{fd}").readlink())

        def sync_directory(self, directory):
            names[directory] = set(directory.iterdir())

    said, files, names = [], set(), {}
    with opened(data, disk=Disk()) as running:
        running.append_blocks(1, 3)
        back_up(running, target).result(TIMEOUT_S)
        ((directory, synced),) = said
        assert directory
        # The other files are links to segments that the broker has synced.
        assert segment_files(target)[-1].name in synced
        assert {tmp_path, tmp_path / "new", tmp_path / "new" / "backups"} < set(names)


def test_what_dies_afterwards_stays_in_the_backup(data, target):
    """O5: dead segments are deleted or reused, but one that a backup has is not overwritten."""
    with opened(data) as running:
        running.append_blocks(1, 40)
        back_up(running, target).result(TIMEOUT_S)
        for first in range(41, 200, 40):
            running.journal.free_blocks(range(1, first))
            running.snapshot()
            running.append_blocks(first, first + 39)
        assert segment_files(data)[0].name > segment_files(target)[-1].name
    assert verify(target).lost_blocks == ()
    with opened(target) as restored:
        restored.check_blocks(range(1, 41))


def test_a_backup_is_another_history(data, target, tmp_path):
    """O5, Q8: opened in place, moved, or copied; the journal itself keeps its history.

    So does one of an empty journal.
    """
    with opened(data) as running:
        back_up(running, tmp_path / "empty").result(TIMEOUT_S)
        running.append_blocks(1, 3)
        back_up(running, target).result(TIMEOUT_S)
        original = running.recovery.history_id
    shutil.copytree(target, tmp_path / "copied")
    shutil.copytree(target, tmp_path / "moved-from")
    (tmp_path / "moved-from").rename(tmp_path / "moved")
    for directory in (tmp_path / "empty", tmp_path / "copied", tmp_path / "moved", target):
        with opened(directory) as restored:
            found = restored.recovery
            assert (found.snapshot, found.history_cause) == (b"state", "copied")
            assert found.history_id != original
    with opened(data) as running:
        assert running.recovery.history_id == original


def test_a_backup_that_fails_leaves_nothing(data, target):
    """O5: no file stays, the journal continues, and the next backup succeeds."""

    class FullDisk(Disk):
        full = True

        def sync_file(self, fd):
            if self.full and "backup.new" in str(Path(f"/proc/self/fd/{fd}").readlink()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().sync_file(fd)

    disk = FullDisk(sync=False)
    with opened(data, disk=disk) as running:
        running.append_blocks(1, 20)
        with pytest.raises(OSError, match="No space"):
            back_up(running, target).result(TIMEOUT_S)
        assert list(target.parent.glob("backup*")) == []
        running.append_blocks(21, 22)
        running.snapshot()
        disk.full = False
        back_up(running, target).result(TIMEOUT_S)
        assert running.failures == []
    assert verify(target).opens


def test_snapshots_wait_for_a_backup(data, target):
    """O5: no segment is deleted while a backup takes its files."""
    rename = HeldAt("before_rename_backup_directory")
    with opened(data, failpoint=rename) as running:
        running.append_blocks(1, 20)
        backup = back_up(running, target)
        assert rename.reached.wait(TIMEOUT_S)
        before = segment_files(data)
        running.journal.free_blocks(range(1, 20))
        snapshot = running.journal.write_snapshot((b"later",), running.journal.sequence)
        running.append_blocks(21, 22)
        assert not snapshot.done()
        assert set(before) <= set(segment_files(data))
        rename.go_on.set()
        backup.result(TIMEOUT_S)
        snapshot.result(TIMEOUT_S)
        assert not set(before) <= set(segment_files(data))
    assert verify(target).lost_blocks == ()


def test_a_stop_ends_a_long_copy(data, target):
    """O5: a broker that is asked to stop does not copy for an hour."""
    reached: Future[None] = Future()
    held = threading.Event()

    class SlowDisk(LinklessDisk):
        def create(self, path):
            if "backup.new" in str(path) and not reached.done():
                reached.set_result(None)
                assert held.wait(TIMEOUT_S)
            return super().create(path)

    with opened(data, disk=SlowDisk(sync=False)) as running:
        running.append_blocks(1, 20)
        backup = back_up(running, target)
        reached.result(TIMEOUT_S)
        threading.Timer(0.1, held.set).start()
    with pytest.raises(ClosedError, match="before the backup was complete"):
        backup.result(TIMEOUT_S)
    assert not target.exists()


def test_the_format_of_a_backup_names_its_end(data, target):
    """Q7: a backup whose last file was cut is damaged, and has no torn tail."""
    with opened(data) as running:
        running.append_blocks(1, 20)
        back_up(running, target).result(TIMEOUT_S)
    end = json.loads((target / "FORMAT").read_text())["log_end"]
    assert end["closed"]
    last = segment_files(target)[-1]
    os.truncate(last, last.stat().st_size - 1)
    assert not verify(target).opens
