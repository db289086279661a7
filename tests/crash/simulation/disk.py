"""An in-memory file system that loses unsynced data at power cuts and fails on request.

Fault model. When a process dies, everything that it wrote stays. After a power cut, synced data
stays; of the writes to a file since its last sync, any set of 512-byte sectors and any of its size
changes stay; of the name changes since the last sync of their directory, any set stays. A failed
sync may have written any part, and the next sync does not try again: data that was read from the
cache until then may be lost after a power cut.
"""

import errno
import itertools
import os
from collections import Counter

from tests.fakes.power_cuts import renamed, with_all, with_some

# No number is reused, in any world: a descriptor collected late closes none of another world.
_descriptors = itertools.count(1000)
_KINDS = ("write", "read", "sync", "room", "short")


class _File:
    """An inode: the content processes see, the durable content, and the changes between them."""

    __slots__ = ("data", "durable", "links", "number", "pending")

    def __init__(self, number):
        self.number = number
        self.data = bytearray()
        self.durable = b""
        self.pending = []
        self.links = 0


class _Open:
    """A file descriptor."""

    __slots__ = ("directory", "file", "life", "locks")

    def __init__(self, file, life, directory=None):
        self.file = file
        self.life = life
        self.directory = directory
        self.locks = False


class SimulatedDisk:
    """Files by path, and the descriptors that a process lifetime has open.

    Args:
        random: A `random.Random` for power cuts and for the place where a fault hits.
        note: Takes the bytes of each change, for the digest of the run.
    """

    def __init__(self, random, note):
        self._random = random
        self._note = note
        self._numbers = 0
        self.files = {}
        self.directories = {"/"}
        self._durable_names = {}
        self._pending_names = []
        self._fds = {}
        self._locks = {}
        self.free_bytes = 1 << 40
        # Calls left until a fault of each kind strikes.
        self._armed = {}
        self.faults = Counter()
        # Called with the kind of each change: write, resize, syncing (a sync begins), sync, lost
        # (it failed), name, rename, unlink, names.
        self.on_change = lambda _: None

    # --- faults ---

    def arm(self, kind, calls):
        """Makes a call of one kind fail after `calls` others: write, read, sync, room or short."""
        assert kind in _KINDS, kind
        self._armed[kind] = calls

    def disarm(self):
        """Cancels every armed fault."""
        self._armed.clear()

    def strikes(self, kind):
        """Whether the armed fault of a kind strikes at this call; counts the call."""
        left = self._armed.get(kind)
        if left is None:
            return False
        if left:
            self._armed[kind] = left - 1
            return False
        del self._armed[kind]
        self.faults[kind] += 1
        return True

    def close_all(self, life):
        """Closes the descriptors of a process that has ended."""
        for fd in [fd for fd, each in self._fds.items() if each.life is life]:
            self.close(fd)

    def cut_power(self):
        """Keeps the synced changes, and any subset of the others."""
        random = self._random
        kept = random.choice((_none, _all, _some, _late))(self._pending_names, random)
        names = renamed(self._durable_names, kept)
        share = random.choice((0, 0, 1, random.random(), random.random(), random.random()))
        for file in {id(file): file for file in names.values()}.values():
            file.durable = with_some(file.durable, file.pending, share, random)
        self.files = names
        self._durable_names = dict(names)
        self._pending_names = []
        for file in names.values():
            file.pending = []
            file.data = bytearray(file.durable)
            file.links = 0
        for file in names.values():
            file.links += 1
        self._note(b"power")

    def unsynced(self):
        """Whether a power cut now could lose any change."""
        return bool(self._pending_names) or any(file.pending for file in self.files.values())

    # --- names ---

    def create(self, path):
        """Creates an empty file under a name."""
        self._require_directory(path)
        self._numbers += 1
        file = _File(self._numbers)
        self._set_name(path, file)
        return file

    def rename(self, source, target):
        file = self.find(source)
        self._drop(source)
        self._drop(target)
        self.files[target] = file
        file.links += 1
        self._pending_names.append(("rename", source, target, file))
        self._note(f"rename {source} {target}".encode())
        self.on_change("rename")

    def link(self, source, target):
        if target in self.files:
            raise _error(errno.EEXIST, target)
        self._set_name(target, self.find(source))

    def unlink(self, path):
        self.find(path)
        self._drop(path)
        self._pending_names.append(("unlink", path))
        self._note(f"unlink {path}".encode())
        self.on_change("unlink")

    def make_directory(self, path):
        if path in self.directories:
            raise _error(errno.EEXIST, path)
        # Directories are durable at once: the product makes them before it puts files into them.
        self.directories.add(path)

    def find(self, path):
        file = self.files.get(path)
        if file is None:
            raise _error(errno.ENOENT, path)
        return file

    def listing(self, directory):
        """The names in a directory, in their order of creation."""
        prefix = directory.rstrip("/") + "/"
        depth = prefix.count("/")
        files = [path for path in self.files if path.startswith(prefix)]
        paths = [
            *files,
            *(p for p in sorted(self.directories) if p != "/" and p.startswith(prefix)),
        ]
        return [path.rpartition("/")[2] for path in paths if path.count("/") == depth]

    def sync_names(self, directory):
        prefix = directory.rstrip("/") + "/"
        mine, others = [], []
        for change in self._pending_names:
            (mine if change[1].startswith(prefix) else others).append(change)
        self._pending_names = others
        self._durable_names = renamed(self._durable_names, mine)
        self._note(b"names")
        self.on_change("names")

    # --- descriptors ---

    def open(self, path, flags, life):
        if flags & os.O_DIRECTORY:
            if path not in self.directories:
                raise _error(errno.ENOENT, path)
            return self._descriptor(_Open(None, life, path))
        file = self.files.get(path)
        if file is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            if self.strikes("room"):
                raise _error(errno.ENOSPC, path)
            file = self.create(path)
        elif flags & os.O_TRUNC and file.data:
            self.resize(file, 0)
        return self._descriptor(_Open(file, life))

    def close(self, fd):
        opened = self._fds.pop(fd, None)
        if opened is None:
            raise _error(errno.EBADF, str(fd))
        if opened.locks:
            del self._locks[opened.file.number]

    def opened(self, fd):
        opened = self._fds.get(fd)
        if opened is None:
            raise _error(errno.EBADF, str(fd))
        return opened

    def lock(self, fd):
        opened = self.opened(fd)
        if opened.file.number in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        self._locks[opened.file.number] = fd
        opened.locks = True

    # --- content ---

    def write(self, file, data, offset):
        """Writes bytes to the file and adds them to its pending changes."""
        end = offset + len(data)
        if end > len(file.data):
            file.data.extend(bytes(end - len(file.data)))
        file.data[offset:end] = data
        file.pending.append((offset, bytes(data)))
        self._note(data)
        self.on_change("write")

    def resize(self, file, size):
        if size < len(file.data):
            del file.data[size:]
        else:
            file.data.extend(bytes(size - len(file.data)))
        file.pending.append((None, size))
        self._note(b"resize %d" % size)
        self.on_change("resize")

    def sync(self, file):
        if file.pending:
            file.durable = with_all(file.durable, file.pending)
            file.pending = []
        self._note(b"sync %d" % file.number)
        self.on_change("sync")

    def lose(self, file):
        """A failed sync: any part of the changes is durable, and no later sync writes the rest."""
        file.durable = with_some(file.durable, file.pending, self._random.random(), self._random)
        file.pending = []
        self.on_change("lost")

    # --- inside ---

    def _descriptor(self, opened):
        fd = next(_descriptors)
        self._fds[fd] = opened
        return fd

    def _require_directory(self, path):
        if (path.rpartition("/")[0] or "/") not in self.directories:
            raise _error(errno.ENOENT, path)

    def _set_name(self, path, file):
        self.files[path] = file
        file.links += 1
        self._pending_names.append(("name", path, file))
        self._note(f"name {path}".encode())
        self.on_change("name")

    def _drop(self, path):
        file = self.files.pop(path, None)
        if file is not None:
            file.links -= 1


def _none(_changes, _random):
    return []


def _all(changes, _random):
    return changes


def _some(changes, random):
    share = random.random()
    return [change for change in changes if random.random() < share]


def _late(changes, random):
    """The last changes without the earlier ones."""
    return changes[random.randrange(len(changes)) :] if changes else []


def _error(number, path):
    return OSError(number, os.strerror(number), path)
