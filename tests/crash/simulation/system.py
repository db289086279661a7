"""The operating system as seen by a simulated process: calls, clocks, random numbers.

The product is not changed: while a world is installed, the names `os`, `time`, `threading` and so
on in the product's modules refer to this module. So the real `Disk` runs, with its loops around
short writes, and each call below it is a scheduling point at which the process may end.
"""

import errno
import os as real_os
import random
import time as real_time
import uuid as real_uuid
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from types import SimpleNamespace

from ackq_broker import server
from ackq_broker.engine import backups, block_cache, engine, process_memory, recovery
from ackq_broker.engine import snapshot as engine_snapshot
from ackq_broker.engine.clock import BrokerClock, Uptime
from ackq_broker.journal import recovery as journal_recovery
from ackq_broker.journal.files import directory
from ackq_broker.journal.files import disk as journal_disk
from ackq_broker.journal.files.identity import Identity
from ackq_broker.journal.read import blocks, scan, snapshot
from ackq_broker.journal.write import backup, compaction, group_commit, log, spares, transient
from ackq_broker.service import admin
from ackq_broker.service.blocks import compaction as block_compaction
from ackq_broker.service.consuming import channel, dispatcher
from ackq_broker.service.consuming import service as consuming
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.links import stream as link_stream
from ackq_broker.service.sessions import service as sessions
from tests.crash.simulation.kernel import EndedError
from tests.crash.simulation.threads import Threads

BLOCK = 512
MEMORY = 1 << 30

_SEEN = [
    (module, name)
    for module, names in (
        (journal_recovery, "os"),
        (directory, "os fcntl uuid identity"),
        (journal_disk, "os time"),
        (blocks, "os threading"),
        (scan, "os"),
        (snapshot, "os"),
        (backup, "os"),
        (compaction, "threading Future"),
        (group_commit, "threading time Future"),
        (log, "os secrets Spares"),
        (spares, "threading"),
        (transient, "os threading ThreadPoolExecutor"),
        (admin, "time"),
        (server, "time Uptime ConsumerDispatcher GarbageCollector"),
        (channel, "secrets"),
        (dispatcher, "time"),
        (consuming, "time"),
        (backups, "time"),
        (block_cache, "threading"),
        (block_compaction, "time"),
        (engine, "ThreadPoolExecutor"),
        (process_memory, "trim"),
        (recovery, "os time machine_bytes used_bytes BrokerClock _die"),
        (engine_snapshot, "time Future SimpleQueue"),
        (sessions, "secrets"),
        (link_stream, "secrets"),
    )
    for name in names.split()
]


class System:
    """The system calls of the broker's processes.

    Args:
        kernel: The scheduler.
        disk: The file system.
        seed: Seed of the product's random ids and salts.
        sync_s: Returns the seconds that a sync takes now.
        inline_chance: As in `Threads`.
    """

    def __init__(self, kernel, disk, seed, sync_s, inline_chance):
        self.kernel = kernel
        self.disk = disk
        self.wall_offset_us = 1_700_000_000_000_000
        self.random = random.Random(f"{seed}/product")
        self.threads = Threads(kernel, inline_chance)
        self.time = _Time(self)
        self.os = _Os(self, sync_s)
        self.Path = type("SimulatedPath", (_Path,), {"__slots__": (), "system": self})

    def wall_us(self):
        """The machine's wall clock, in microseconds since the epoch."""
        return self.wall_offset_us + int(self.kernel.now_s * 1_000_000)

    def die(self, error):
        """Ends the process that runs, after an error."""
        self.kernel.life.end("failed", error)
        raise EndedError

    def identity(self, fd):
        return Identity(self.disk.opened(fd).file.number, 0)


class _Time:
    CLOCK_BOOTTIME = real_time.CLOCK_BOOTTIME
    gmtime = staticmethod(real_time.gmtime)
    strftime = staticmethod(real_time.strftime)

    def __init__(self, system):
        self._system = system
        self._kernel = system.kernel

    def monotonic(self):
        return self._kernel.now_s

    perf_counter = monotonic

    def monotonic_ns(self):
        return int(self._kernel.now_s * 1_000_000_000)

    def clock_gettime_ns(self, _):
        return self.monotonic_ns()

    def time_ns(self):
        return self._system.wall_us() * 1000

    def time(self):
        return self._system.wall_us() / 1_000_000

    def sleep(self, seconds):
        kernel = self._kernel
        kernel.at(kernel.now_s + seconds, kernel.wake, kernel.fiber)
        kernel.fiber.wait()


class _Os:
    """`os`, as far as the broker uses it on files; all else is the real module."""

    def __init__(self, system, sync_s):
        self._kernel = system.kernel
        self._disk = system.disk
        self._sync_s = sync_s

    def __getattr__(self, name):
        return getattr(real_os, name)

    def open(self, path, flags, _mode=0o777):
        self._kernel.point()
        return self._disk.open(str(path), flags, self._kernel.life)

    def close(self, fd):
        life = self._kernel.life
        if life is not None and life.ended:
            return
        self._disk.close(fd)

    def fstat(self, fd):
        return _stat(self._disk.opened(fd).file)

    def pread(self, fd, length, offset):
        self._kernel.point()
        file = self._readable(fd)
        return bytes(file.data[offset : offset + length])

    def preadv(self, fd, views, offset):
        self._kernel.point()
        data = self._readable(fd).data
        (view,) = views
        count = min(len(view), max(0, len(data) - offset))
        view[:count] = data[offset : offset + count]
        return count

    def lseek(self, fd, offset, whence):
        size = len(self._disk.opened(fd).file.data)
        if offset >= size:
            raise OSError(errno.ENXIO, "behind the end")
        return size if whence == real_os.SEEK_HOLE else offset

    def pwrite(self, fd, data, offset):
        return self.pwritev(fd, [data], offset)

    def pwritev(self, fd, views, offset):
        data = b"".join(views)
        life = self._kernel.life
        alive = life is None or not life.ended
        disk = self._disk
        file = disk.opened(fd).file if alive else None
        try:
            self._kernel.point()
        except EndedError:
            if alive and data:  # killed during the call
                disk.write(file, data[: int(self._kernel.random() * len(data))], offset)
            raise
        if disk.strikes("write"):
            raise OSError(errno.EIO, "write")
        if offset + len(data) > len(file.data) and disk.strikes("room"):
            raise OSError(errno.ENOSPC, "write")
        if len(data) > 1 and disk.strikes("short"):
            data = data[: 1 + int(self._kernel.random() * (len(data) - 1))]
        disk.write(file, data, offset)
        return len(data)

    def posix_fallocate(self, fd, offset, length):
        self._kernel.point()
        file = self._disk.opened(fd).file
        if offset + length > len(file.data):
            if self._disk.strikes("room"):
                raise OSError(errno.ENOSPC, "allocate")
            self._disk.resize(file, offset + length)

    def ftruncate(self, fd, size):
        self._kernel.point()
        file = self._disk.opened(fd).file
        if size != len(file.data):
            self._disk.resize(file, size)

    def fdatasync(self, fd):
        kernel, disk = self._kernel, self._disk
        kernel.point()
        opened = disk.opened(fd)
        if opened.directory is not None:
            disk.sync_names(opened.directory)
            return
        file = opened.file
        fiber = kernel.fiber
        disk.on_change("syncing")
        # A start syncs in its event loop as well, and is not slowed down.
        waits = fiber is not None or (kernel.life is not None and kernel.life.ready)
        if waits and (seconds := self._sync_s()):
            if fiber is not None:
                kernel.at(kernel.now_s + seconds, kernel.wake, fiber)
                fiber.wait()
            else:
                until_s = kernel.now_s + seconds
                kernel.at(until_s, lambda: None)
                kernel.run_until(lambda: kernel.now_s >= until_s)
        if disk.strikes("sync"):
            disk.lose(file)
            raise OSError(errno.EIO, "sync")
        disk.sync(file)

    fsync = fdatasync

    def statvfs(self, _):
        return SimpleNamespace(f_bavail=self._disk.free_bytes, f_frsize=1)

    @contextmanager
    def scandir(self, path):
        yield [_Entry(path / name) for name in self._disk.listing(str(path))]

    def getpid(self):
        return 1

    def _readable(self, fd):
        if self._disk.strikes("read"):
            raise OSError(errno.EIO, "read")
        return self._disk.opened(fd).file


class _Entry:
    def __init__(self, path):
        self.name = path.name
        self._path = path

    def stat(self, **_):
        return self._path.stat()


class _Path(PurePosixPath):
    """`pathlib.Path` on the simulated disk."""

    __slots__ = ()

    def _disk(self):
        self.system.kernel.point()
        return self.system.disk

    def exists(self):
        disk = self._disk()
        return str(self) in disk.files or str(self) in disk.directories

    def absolute(self):
        return self

    def is_mount(self):
        return str(self) == "/"

    def is_dir(self):
        return str(self) in self._disk().directories

    def is_file(self):
        return str(self) in self._disk().files

    def iterdir(self):
        return (self / name for name in self._disk().listing(str(self)))

    def glob(self, pattern):
        return (path for path in self.iterdir() if path.match(pattern))

    def mkdir(self, **_):
        self._disk().make_directory(str(self))

    def read_bytes(self):
        return bytes(self._disk().find(str(self)).data)

    @contextmanager
    def open(self, mode):
        assert mode == "rb"
        os = self.system.os
        fd = os.open(self, real_os.O_RDONLY)
        try:
            yield SimpleNamespace(fileno=lambda: fd)
        finally:
            os.close(fd)

    def stat(self):
        return _stat(self._disk().find(str(self)))

    def rename(self, target):
        self._disk().rename(str(self), str(target))

    def hardlink_to(self, target):
        self._disk().link(str(target), str(self))

    def unlink(self):
        self._disk().unlink(str(self))


def _stat(file):
    return SimpleNamespace(
        st_size=len(file.data),
        st_ino=file.number,
        st_nlink=file.links,
        st_blocks=-(-len(file.data) // BLOCK),
    )


class _Secrets:
    def __init__(self, source):
        self._random = source

    def randbits(self, bits):
        return self._random.getrandbits(bits)

    def token_bytes(self, count=32):
        return self._random.randbytes(count)

    def token_hex(self, count=32):
        return self._random.randbytes(count).hex()


class _Fcntl:
    LOCK_EX, LOCK_NB = 2, 4

    def __init__(self, disk):
        self._disk = disk

    def flock(self, fd, _):
        self._disk.lock(fd)


class _NoCollector:
    """Replaces the broker's `GarbageCollector` and does nothing."""

    def __init__(self, done, ended):
        """Accepts the arguments of the broker's collector."""

    def start(self):
        """Does nothing."""

    stop = poll = start


def patches(system):
    """(module, name, value) of what replaces the real machine in the product's modules."""
    threads = system.threads
    secrets = _Secrets(system.random)
    uuid = SimpleNamespace(
        UUID=real_uuid.UUID,
        uuid4=lambda: real_uuid.UUID(bytes=system.random.randbytes(16), version=4),
    )
    by_name = {
        "os": system.os,
        "time": system.time,
        "threading": threads,
        "secrets": secrets,
        "uuid": uuid,
        "fcntl": _Fcntl(system.disk),
        "Future": threads.Future,
        "ThreadPoolExecutor": threads.ThreadPoolExecutor,
        "SimpleQueue": threads.SimpleQueue,
        "identity": system.identity,
        "machine_bytes": lambda: MEMORY,
        "used_bytes": lambda: 0,
        "trim": lambda: None,
        "_die": system.die,
        "Spares": partial(spares.Spares, clock=system.time.monotonic),
        "BrokerClock": partial(
            BrokerClock, wall_ns=system.time.time_ns, steady_ns=system.time.monotonic_ns
        ),
        # Objects with a clock as default argument have the real one.
        "Uptime": partial(Uptime, clock=system.time.monotonic),
        "ConsumerDispatcher": partial(ConsumerDispatcher, clock=system.time.monotonic),
        # The collector belongs to the process, which runs more worlds than this one.
        "GarbageCollector": _NoCollector,
    }
    return [(module, name, by_name[name]) for module, name in _SEEN]
