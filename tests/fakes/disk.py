"""A disk that records every change, and shows what a power cut at any point could leave.

Fault model. A power cut may come between any two changes, or during one. Synced data is kept. Of
the writes to a file since its last sync any set of 512-byte sectors may be kept, some of them in
part, and any of its size changes. So may any of the name changes since the last sync of the
directory.
"""

import os

from ackq_broker.journal.files.disk import Disk
from tests.fakes.power_cuts import renamed, with_all, with_some

# Share of torn sectors among those that are kept: some of their bytes are the new ones.
TORN = 0.05


class RecordingDisk(Disk):
    """A real disk that also records its changes.

    `note` adds promises that the journal made meanwhile.
    """

    def __init__(self):
        super().__init__(sync=False)
        self.changes = []

    def note(self, *what):
        self.changes.append(("note", *what))

    def create(self, path):
        fd = super().create(path)
        self.changes.append(("create", path.name, os.fstat(fd).st_ino))
        return fd

    def reopen(self, path):
        fd = super().reopen(path)
        self.changes.append(("reopen", path.name, os.fstat(fd).st_ino))
        return fd

    def allocate(self, fd, size):
        super().allocate(fd, size)
        self.changes.append(("resize", os.fstat(fd).st_ino, size))

    def write(self, fd, buffers, offset):
        data = b"".join(bytes(buffer) for buffer in buffers)
        super().write(fd, buffers, offset)
        self.changes.append(("write", os.fstat(fd).st_ino, offset, data))

    def truncate(self, fd, size):
        super().truncate(fd, size)
        self.changes.append(("resize", os.fstat(fd).st_ino, size))

    def sync_data(self, fd):
        self.changes.append(("sync", os.fstat(fd).st_ino))

    def sync_file(self, fd):
        self.changes.append(("sync", os.fstat(fd).st_ino))

    def sync_directory(self, directory):  # noqa: ARG002 - there is one directory only
        self.changes.append(("sync_directory",))

    def rename(self, source, target):
        super().rename(source, target)
        self.changes.append(("rename", source.name, target.name))

    def free_bytes(self, directory):  # noqa: ARG002 - there is room
        return 1 << 60

    def unlink(self, path):
        super().unlink(path)
        self.changes.append(("unlink", path.name))


class Image:
    """The disk after some changes: the durable content, and the pending changes.

    Args:
        files: Content of the files at the beginning, by name.
    """

    def __init__(self, files=None):
        self._names = {}
        self._pending_names = []
        self._synced = {}
        self._pending = {}
        self._by_inode = {}
        self._files = 0
        self.notes = []
        for name, content in (files or {}).items():
            self._names[name] = name
            self._synced[name] = content
            self._pending[name] = []

    def apply(self, change):
        """Applies one change of a `RecordingDisk`."""
        kind, *what = change
        if kind == "note":
            self.notes.append(tuple(what))
        elif kind == "create":
            name, inode = what
            # Not the inode itself: a new file may have the number of a deleted one, which may come
            # back.
            file = self._by_inode[inode] = self._files
            self._files += 1
            self._synced[file], self._pending[file] = b"", []
            self._pending_names.append(("name", name, file))
        elif kind == "reopen":
            name, inode = what
            self._by_inode[inode] = renamed(self._names, self._pending_names)[name]
        elif kind == "write":
            inode, offset, data = what
            self._pending[self._by_inode[inode]].append((offset, data))
        elif kind == "resize":
            inode, size = what
            self._pending[self._by_inode[inode]].append((None, size))
        elif kind == "sync":
            file = self._by_inode[what[0]]
            self._synced[file] = with_all(self._synced[file], self._pending[file])
            self._pending[file] = []
        elif kind == "sync_directory":
            self._names = renamed(self._names, self._pending_names)
            self._pending_names = []
        elif kind == "rename":
            file = renamed(self._names, self._pending_names)[what[0]]
            self._pending_names.append((kind, *what, file))
        else:
            self._pending_names.append((kind, *what))

    def after_power_cut(self, chance):
        """File contents by name as one power cut could leave them.

        `chance`, a `random.Random`, decides.
        """
        share = chance.choice((0, 1, chance.random()))
        kept = [change for change in self._pending_names if chance.random() < share]
        names = renamed(self._names, kept)
        share = chance.choice((0, 1, chance.random()))
        return {
            name: with_some(self._synced[file], self._pending[file], share, chance, TORN)
            for name, file in names.items()
        }

    def after_kill(self):
        """File contents by name after SIGKILL: all changes are kept."""
        names = renamed(self._names, self._pending_names)
        return {
            name: with_all(self._synced[file], self._pending[file]) for name, file in names.items()
        }
