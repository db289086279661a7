"""A disk that records every change, and shows what a power cut at any point could leave.

Fault model. A power cut may come between any two changes, or during one. Synced data is kept. Of
the writes to a file since its last sync any set of 512-byte sectors may be kept, some of them in
part, and any of its size changes. So may any of the name changes since the last sync of the
directory.
"""

import os

from ackq_broker.journal.files.disk import Disk

SECTOR = 512
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
            self._by_inode[inode] = _renamed(self._names, self._pending_names)[name]
        elif kind in ("write", "resize"):
            self._pending[self._by_inode[what[0]]].append((kind, *what[1:]))
        elif kind == "sync":
            file = self._by_inode[what[0]]
            self._synced[file] = _apply_all(self._synced[file], self._pending[file])
            self._pending[file] = []
        elif kind == "sync_directory":
            self._names = _renamed(self._names, self._pending_names)
            self._pending_names = []
        else:
            self._pending_names.append((kind, *what))

    def after_power_cut(self, chance):
        """File contents by name as one power cut could leave them.

        `chance`, a `random.Random`, decides.
        """
        share = chance.choice((0, 1, chance.random()))
        kept = [change for change in self._pending_names if chance.random() < share]
        names = _renamed(self._names, kept)
        share = chance.choice((0, 1, chance.random()))
        return {
            name: _apply_some(self._synced[file], self._pending[file], share, chance)
            for name, file in names.items()
        }

    def after_kill(self):
        """File contents by name after SIGKILL: all changes are kept."""
        names = _renamed(self._names, self._pending_names)
        return {
            name: _apply_all(self._synced[file], self._pending[file])
            for name, file in names.items()
        }


def _renamed(names, changes):
    names = dict(names)
    for kind, *what in changes:
        if kind == "name":
            names[what[0]] = what[1]
        elif kind == "rename" and what[0] in names:
            names[what[1]] = names.pop(what[0])
        elif kind == "unlink":
            names.pop(what[0], None)
    return names


def _apply_all(content, changes):
    content = bytearray(content)
    for kind, *what in changes:
        if kind == "resize":
            content = content[: what[0]].ljust(what[0], b"\0")
        else:
            offset, data = what
            content = content.ljust(offset + len(data), b"\0")
            content[offset : offset + len(data)] = data
    return bytes(content)


def _apply_some(content, changes, share, chance):
    some = []
    for kind, *what in changes:
        if kind == "resize":
            if chance.random() < share:
                some.append((kind, *what))
            continue
        offset, data = what
        start = offset
        while start < offset + len(data):
            end = min((start // SECTOR + 1) * SECTOR, offset + len(data))
            if chance.random() < share:
                first, last = start, end
                if share < 1 and chance.random() < TORN:
                    first, last = sorted((chance.randint(start, end), chance.randint(start, end)))
                some.append(("write", first, data[first - offset : last - offset]))
            start = end
    return _apply_all(content, some)
