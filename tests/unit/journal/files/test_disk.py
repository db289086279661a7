"""The real disk: short writes, and new files in a process without free descriptors."""

import ctypes
import errno
import os
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

from ackq import limits
from ackq_broker.journal.files import disk as disks
from ackq_broker.journal.files import writeback
from ackq_broker.journal.files.block_table import Location
from ackq_broker.journal.files.directory import numbers
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.read import blocks
from ackq_broker.journal.read.blocks import Blocks
from tests.libraries import replace


class Folder(type(Path())):
    """A folder, listed by a method that a test can replace."""


@pytest.fixture
def exhausted(monkeypatch):
    """Makes the next opens fail; returns the errors to raise in turn, and the waits in between."""
    errors, waits = [], []

    def refusing(call):
        def run(*arguments, **options):
            if errors:
                raise OSError(errors.pop(0), "no descriptor")
            return call(*arguments, **options)

        return run

    for module in disks, blocks:
        replace(monkeypatch, module, os, open=refusing(os.open))
    monkeypatch.setattr(Folder, "iterdir", refusing(Path.iterdir))
    replace(monkeypatch, disks, time, sleep=waits.append)
    return errors, waits


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_new_file_waits_for_a_descriptor(tmp_path, exhausted, error, caplog):
    """I6, P8: without a free descriptor the journal waits: no file was changed, so it goes on.

    Syncing a directory, listing it, and reading a segment wait, too.
    """
    errors, waits = exhausted
    errors += [error] * 3
    os.close(Disk().create(tmp_path / "file"))
    assert ((tmp_path / "file").exists(), len(waits)) == (True, 3)
    assert [record.message for record in caplog.records] == [
        f"the journal waits for a file descriptor: [Errno {error}] no descriptor",
        "the journal has a file descriptor again",
    ]
    for call in (
        lambda: Disk().sync_directory(tmp_path),
        lambda: list(numbers(Folder(tmp_path), "journal")),
        lambda: Blocks(lambda _: tmp_path / "file")._files.read(1, Location(1, 0, 0, 0)),
    ):
        errors += [error]
        call()
    assert len(waits) == 6


def test_other_errors_are_errors(tmp_path, exhausted):
    """P8: other errors of the disk are raised at once."""
    errors, waits = exhausted
    errors += [errno.EIO]
    with pytest.raises(OSError, match="no descriptor"):
        Disk().create(tmp_path / "file")
    assert not waits


@pytest.mark.parametrize("most", [1, 3, 7])
def test_short_writes_are_gone_on_with(tmp_path, monkeypatch, most):
    """P8, Q7: a write that the system takes only in part is continued at its place."""
    taken = []

    def short(fd, views, offset):
        data = b"".join(views)[:most]
        taken.append(len(data))
        return os.pwrite(fd, data, offset)

    replace(monkeypatch, disks, os, pwritev=short)
    disk = Disk()
    fd = disk.create(tmp_path / "file")
    disk.write(fd, [b"ab", b"", b"cdef", memoryview(b"ghijk")], 2)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"\0\0abcdefghijk"
    assert len(taken) == -(-11 // most)


def test_a_disk_that_takes_nothing_is_an_error(tmp_path, monkeypatch):
    """P8: a write of no bytes is not repeated for ever."""
    replace(monkeypatch, disks, os, pwritev=lambda *_: 0)
    disk = Disk()
    fd = disk.create(tmp_path / "file")
    with pytest.raises(OSError, match="wrote no bytes"):
        disk.write(fd, [b"a"], 0)
    os.close(fd)


@pytest.mark.parametrize("sync", [True, False])
def test_groups_go_by_pieces(tmp_path, monkeypatch, sync):
    """P8: while a piece is taken, those before it go to the disk, if the disk is synced at all."""
    sizes, begun = [], []

    class Noting(Disk):
        def write(self, fd, buffers, offset):
            sizes.append(sum(map(len, buffers)))
            super().write(fd, buffers, offset)

    monkeypatch.setattr(disks, "start_writeback", lambda _, *part: begun.append(part))
    disk = Noting(sync=sync)
    fd = disk.create(tmp_path / "file")
    buffers = [os.urandom(size) for size in (3, 5 * limits.MIB // 2, 0, 4, limits.MIB // 2)]
    disk.write_group(fd, buffers, 10)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == bytes(10) + b"".join(buffers)
    assert sizes == [limits.MIB, limits.MIB, limits.MIB, 7]
    ends = [10 + index * limits.MIB for index in range(4)]
    assert begun == (list(pairwise(ends)) if sync else [])


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.ENOSYS, None])
def test_errors_of_an_early_write(monkeypatch, error):
    """Q7: an error of the disk is raised at once; a system that cannot begin early is none."""
    asked = []

    def begin(_, *part):
        asked.append(part)
        ctypes.set_errno(error or 0)
        return -1 if error else 0

    monkeypatch.setattr(writeback, "_sync_file_range", begin)
    page = writeback._PAGE_BYTES
    lost = error in {errno.EIO, errno.ENOSPC}
    with pytest.raises(OSError, match=os.strerror(error)) if lost else nullcontext():
        writeback.start_writeback(0, page + 5, 4 * page + 7)
    assert asked == [(page, 3 * page, 2)]  # whole pages
