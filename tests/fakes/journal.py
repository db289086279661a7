"""A journal that syncs when the test asks for it."""

from concurrent.futures import Future

import numpy as np

from ackq import limits
from ackq.errors import BlockNotFoundError
from ackq_broker.core.core import Core
from ackq_broker.engine.alarms import DiskAlarm
from ackq_broker.engine.clock import BrokerClock
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.in_flight import InFlight


class FakeJournal:
    """A journal in memory; `synced` moves only by `sync`."""

    def __init__(self):
        self.entries = []
        self.lone = []
        self.blocks = {}
        self.freed = []
        self.synced = 0
        self.unsynced_bytes = 0
        self.unsynced_limit = limits.MAX_UNSYNCED_BYTES
        self.snapshot_due = False
        self.has_garbage = False
        self.snapshot_under_way = False
        self.snapshots = []

    def append(self, entries, *, lone=False):
        self.entries += entries
        self.lone.append(lone)
        for entry in entries:
            if entry.block_id is not None:
                self.blocks[entry.block_id] = b"".join(entry.bulk)
        return len(self.entries)

    def store_transient(self, block_id, bulk):
        self.blocks[block_id] = b"".join(bulk)

    def read_block(self, block_id):
        if block_id not in self.blocks:
            raise BlockNotFoundError("gone", block=block_id)
        return self.blocks[block_id]

    def block_lengths(self, block_ids):
        return np.array([len(self.blocks.get(each, b"")) for each in block_ids], np.int64)

    def write_snapshot(self, _state, sequence):
        self.snapshots.append(sequence)
        return Future()

    def trim_spares(self):
        """Does nothing: there are no spares."""

    def free_blocks(self, block_ids):
        self.freed += block_ids
        for block_id in block_ids:
            self.blocks.pop(block_id, None)


class HeldEngine(Engine):
    """An engine on a fake journal, an ample disk and a clock that the test moves.

    `failures` has the errors that ended it.
    """

    MEMORY_BYTES = 1 << 40

    def __init__(self):
        self.free_bytes = 1 << 60
        self.failures = []
        self.used_bytes = 0
        self.now_s = 0.0
        self.wall_us = 1_700_000_000_000_000
        super().__init__(
            Core(),
            FakeJournal(),
            "history",
            BrokerClock(wall_ns=lambda: self.wall_us * 1000),
            DiskAlarm(lambda: self.free_bytes),
            InFlight(
                self.MEMORY_BYTES,
                lambda: self.used_bytes,
                lambda: self.journal.unsynced_bytes,
                lambda: self.now_s,
            ),
            self.failures.append,
        )

    def sync(self, up_to=None):
        """Lets the journal sync up to a sequence, or entirely."""
        self.journal.synced = self.core.sequence if up_to is None else up_to
        self.on_synced()
