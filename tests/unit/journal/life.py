"""A lifetime of a journal with all its operations, and the check of what a crash left of it."""

import json

from ackq_broker.journal import Entry, dump
from tests.fakes.disk import RecordingDisk
from tests.unit.journal.running_journal import TIMEOUT_S, Running, block, block_bytes, recovered

OPTIONS = {"segment_bytes": 4096}


class Service:
    """A stand-in for the service: its state is its list of records and the set of live blocks."""

    def __init__(self, directory, disk, **options):
        self.disk = disk
        self.state, self.live = [], set()
        self.running = Running(directory, start=False, disk=disk, **OPTIONS, **options)
        self.journal = self.running.journal
        if self.running.recovery.snapshot is not None:
            self.state, live = json.loads(self.running.recovery.snapshot)
            self.live = set(live)
        for _, record in self.running.recovery.records:
            self.journal.free_blocks(self.apply(record.decode()))
        self.journal.start()
        note = self.running._synced

        def synced(sequence):
            disk.note("synced", sequence)
            note(sequence)

        self.journal._group_commit._on_synced = synced

    def apply(self, record):
        """Applies a record: `+3` brings block 3, `-3` frees it; returns the freed blocks."""
        self.state.append(record)
        number = int(record[1:])
        (self.live.add if record[0] == "+" else self.live.discard)(number)
        return [] if record[0] == "+" else [number]

    def append(self, *unit):
        entries = [Entry(r.encode(), *(block(int(r[1:]))[1:] if r[0] == "+" else ())) for r in unit]
        self.disk.note("appended", unit)
        freed = [number for record in unit for number in self.apply(record)]
        self.journal.append(entries)
        self.journal.free_blocks(freed)

    def sync(self):
        self.running.wait_synced(len(self.state))

    def compact(self):
        """Stores every third block in other bytes, and copies the others out of their segments."""
        self.journal.rewrite_blocks([(n, rewritten(n)) for n in sorted(self.live) if not n % 3])
        self.journal.compact(0.9, lambda: True)

    def snapshot(self):
        self.running.snapshot(json.dumps([self.state, sorted(self.live)]).encode())


def rewritten(number):
    """Other bytes of a block, with the same meaning."""
    return b"the rest of block %d" % number


def live(directory, disk, **options):
    """Runs a lifetime with every operation of a journal, and a clean end.

    Group commits, new segments, frees, snapshots, deletions and compaction.
    """
    service = Service(directory, disk, **options)
    for number in range(1, 8):
        service.append(f"+{number}")
    service.sync()
    service.append("+8", "+9", "-1")
    service.sync()
    service.append("-2", "-3")
    service.sync()
    service.snapshot()
    for number in range(10, 26):
        service.append(f"+{number}")
        service.sync()
    service.append(*[f"-{number}" for number in range(10, 24) if number % 6])
    service.sync()
    # One block in six lives in the segments so far: this compacts, the next snapshot deletes them.
    service.snapshot()
    assert any("relocation" in line for line in dump(directory))
    service.compact()
    service.append("+26", "-4")
    # Requested before the records that it covers are synced.
    service.snapshot()
    service.append("+27")
    service.append("-27", "+28")
    service.sync()
    service.append(*[f"-{number}" for number in sorted(service.live)])
    service.snapshot()
    service.append("+29")
    service.sync()
    # A unit that is larger than a segment.
    service.append(*[f"+{number}" for number in range(30, 40)])
    service.sync()
    service.append("+40")
    service.sync()
    service.journal.close()
    return service


def check(directory, notes, where, disk=None):
    """Checks that recovered records are a prefix in whole units, with all synced ones."""
    units = [what[1] for what in notes if what[0] == "appended"]
    synced = max((what[1] for what in notes if what[0] == "synced"), default=0)
    service = Service(directory, disk or RecordingDisk())
    expected, wholes = [], {0}
    for unit in units:
        expected += unit
        wholes.add(len(expected))
    count = len(service.state)
    assert service.state == expected[:count], where
    assert synced <= count, (where, "lost what was synced")
    assert count in wholes, (where, "split a unit")
    assert service.journal.sequence == count, where
    for number in service.live:
        found = service.journal.read_block(number)
        assert found in (block_bytes(number), rewritten(number)), (where, number)
    new = f"+{1000 + count}"
    service.append(new)
    service.sync()
    service.journal.close()
    assert recovered(directory).records[-1] == (count + 1, new.encode()), where
    return expected[:count]


def live_twice(directory, disk, **options):
    """As `live`, then leftovers of an unclean end, transient blocks, a backup and a clean end.

    The backup is the directory `backups/whole` next to the data directory.
    """
    live(directory, disk, **options)
    for left in ("FORMAT.new", f"snapshot-{7:020d}.snap.new", f"journal-{99:020d}.seg.new"):
        (directory / left).touch()
    service = Service(directory, disk, **options)
    journal = service.journal
    service.append("+50")
    journal.store_transient(51, (b"transient",))
    service.append(*[f"+{number}" for number in range(60, 80)])
    service.sync()
    assert journal.read_block(51) == b"transient"
    journal.free_blocks([51])
    state = json.dumps([service.state, sorted(service.live)]).encode()
    target = directory.parent / "backups" / "whole"
    journal.back_up((state,), journal.sequence, target).result(TIMEOUT_S)
    service.append("-50", "+80")
    service.sync()
    journal.close()
