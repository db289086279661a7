"""A running journal with its reports, its blocks, and disks that can be held or fail."""

import json
import threading
from contextlib import contextmanager

from ackq.errors import DamagedError
from ackq_broker.journal import Entry, Journal
from ackq_broker.journal.files.disk import Disk

TIMEOUT_S = 60
NEVER_S = 3600


class Running:
    """A journal in use, the records it recovered, and its reports."""

    def __init__(self, directory, *, start=True, **options):
        self.reported = []
        self.failures = []
        self._changed = threading.Condition()
        options = {"sync": False, "segment_bytes": 4096, "idle_close_s": NEVER_S, **options}
        self.journal, self.recovery = Journal.open(
            directory, on_synced=self._synced, on_failure=self._failed, **options
        )
        self.records = []
        if start:
            try:
                self.records = list(self.recovery.records)
            except DamagedError:
                self.journal.close()
                raise
            self.journal.start()

    def _synced(self, sequence):
        with self._changed:
            self.reported.append(sequence)
            self._changed.notify_all()

    def _failed(self, error):
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def append(self, *entries):
        """Appends one unit and waits until it is reported synced."""
        last = self.journal.append([e if isinstance(e, Entry) else Entry(e) for e in entries])
        self.wait_synced(last)
        return last

    def append_blocks(self, first, last):
        """Appends the blocks first..last, a group and a record each."""
        for number in range(first, last + 1):
            self.append(block(number))

    def wait_synced(self, sequence):
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.failures or (self.reported and self.reported[-1] >= sequence),
                TIMEOUT_S,
            )

    def check_blocks(self, numbers):
        """Checks that these blocks are readable and have their bytes."""
        for number in numbers:
            assert self.journal.read_block(number) == block_bytes(number), number

    def wait_failed(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self.failures, TIMEOUT_S)
        return self.failures[0]

    def snapshot(self, state=b"state"):
        return self.journal.write_snapshot((state,), self.journal.sequence).result(TIMEOUT_S)


@contextmanager
def opened(directory, **options):
    """A running journal, closed at the end."""
    running = Running(directory, **options)
    try:
        yield running
    finally:
        running.journal.close()


class KilledError(Exception):
    """Raised in a journal whose process was killed."""


class DeadDisk(Disk):
    """A disk that refuses every write."""

    def write(self, fd, buffers, offset):  # noqa: ARG002 - whatever it is
        raise KilledError


def kill(running):
    """Ends a journal as SIGKILL does: nothing more is written, and the log is not closed."""
    log = running.journal._group_commit._log
    log._disk = DeadDisk()
    log.close = log.abandon  # a log closed when idle would end cleanly
    running.journal.close()


def recovered(directory, **options):
    """The recovery of a directory, its records as a list, after a clean close."""
    with opened(directory, **options) as running:
        return running.recovery._replace(records=running.records)


def block(block_id, size=600):
    """An entry that brings a block whose bytes show its id."""
    return Entry(b"record of block %d" % block_id, block_id, block_parts(block_id, size))


def block_parts(block_id, size=600):
    body = bytes([block_id % 251 + 1]) * size
    return (body[: size // 3], memoryview(body)[size // 3 :])


def block_bytes(block_id, size=600):
    return b"".join(block_parts(block_id, size))


def segment_files(directory):
    return sorted(directory.glob("journal-*.seg"))


def history_id(directory):
    """The history id in FORMAT."""
    return json.loads((directory / "FORMAT").read_text())["history_id"]


def flip(path, offset):
    """Flips one bit of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


class HeldDisk(Disk):
    """A disk whose data syncs can be held, so that a test decides which units form a group."""

    def __init__(self):
        super().__init__(sync=False)
        self.trace = []
        self._lock = threading.Condition()
        self._held = False
        self._waiting = False

    def hold(self, running, *records):
        """Appends a unit, and holds its sync until `release`."""
        self._held = True
        running.journal.append([Entry(record) for record in records])
        with self._lock:
            assert self._lock.wait_for(lambda: self._waiting, TIMEOUT_S)

    def release(self):
        with self._lock:
            self._held = False
            self._lock.notify_all()

    def write(self, fd, buffers, offset):
        self.trace.append(("write", sum(memoryview(b).nbytes for b in buffers)))
        super().write(fd, buffers, offset)

    def sync_data(self, fd):  # noqa: ARG002 - it only waits
        self.trace.append(("sync",))
        with self._lock:
            self._waiting = True
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: not self._held, TIMEOUT_S)
            self._waiting = False
        self.trace.append(("synced",))


class HeldAt:
    """A failpoint that holds the journal at a point until `go_on` is set."""

    def __init__(self, point):
        self.point = point
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, point):
        if point == self.point:
            self.reached.set()
            assert self.go_on.wait(TIMEOUT_S)


class ListingDisk(Disk):
    """A disk that lists the directories whose names were synced."""

    def __init__(self):
        super().__init__(sync=False)
        self.synced = []

    def sync_directory(self, directory):
        self.synced.append(directory)


class FailingDisk(Disk):
    """A disk on which the kinds of call in `fail` fail; it counts the refused calls."""

    def __init__(self):
        super().__init__(sync=False)
        self.fail = {}
        self._refused = threading.Semaphore(0)

    def wait_refused(self, times=1):
        for _ in range(times):
            assert self._refused.acquire(timeout=TIMEOUT_S)

    def check(self, name):
        """Fails if this kind of call is to fail."""
        if name in self.fail:
            self._refused.release()
            raise self.fail[name]

    def write(self, fd, buffers, offset):
        if "write" in self.fail:
            # Half of the bytes are written, as on a full disk.
            data = b"".join(bytes(part) for part in buffers)
            super().write(fd, [data[: len(data) // 2]], offset)
            self.check("write")
        super().write(fd, buffers, offset)


def _failing(name):
    def call(self, *arguments):
        self.check(name)
        return getattr(Disk, name)(self, *arguments)

    return call


for _name in ("create", "sync_data", "sync_file", "sync_directory", "allocate", "rename"):
    setattr(FailingDisk, _name, _failing(_name))
