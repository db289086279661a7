"""Group commit: one thread writes all units that have arrived as one group and syncs it.

A lone unit can be written and synced in the caller's thread while this thread waits and the disk
is quick, as two hand-overs between threads cost more than a quick sync.

Invariant: units take effect in the order of `put`, each whole in one group, and `on_synced` names a
sequence only after the sync that covers it returned. After a failure nothing is ever reported.

Not all items are bytes for the disk: freed blocks and snapshot marks wait in the same queue, so
that the block table, which changes with the log only, always matches a definite point in it.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from ackq import limits
from ackq.errors import ClosedError
from ackq_broker.journal.files.block_table import BlockIds, BlockTable
from ackq_broker.journal.files.format import CORE, Entry, Position
from ackq_broker.journal.read.blocks import Blocks
from ackq_broker.journal.write.log import Log, NoRoomError
from ackq_broker.journal.write.pace import Pace

# An idle log is closed by an empty group after this time: then the log provably ends with it.
IDLE_CLOSE_S: Final = 0.25
_RETRY_S: Final = 1.0
# A unit of at most `_HERE_BYTES` is synced in the caller's thread after `_QUICK_SYNCS` syncs in
# succession that took less than `_QUICK_S`; so one slow sync ends that for as many.
_HERE_BYTES: Final = 64 * limits.KIB
_QUICK_SYNCS: Final = 8
_QUICK_S: Final = 0.001

_log: Final = logging.getLogger(__name__)


class Unit(NamedTuple):
    """Entries written atomically; `size` is their `entry_bytes`, `done` is resolved by the sync."""

    kind: int
    entries: Sequence[Entry]
    size: int
    done: Future[None] | None = None


class FreedBlocks(NamedTuple):
    """Blocks that no record refers to once the preceding units have taken effect."""

    block_ids: BlockIds


class Mark(NamedTuple):
    """A point between two units; `captured` is resolved when all units before it are synced."""

    captured: Future[Capture]


class Capture(NamedTuple):
    """The log at a mark: its end, and its live blocks."""

    position: Position
    table: BlockTable


Item = Unit | FreedBlocks | Mark


class GroupCommit:
    """The queue of items and the thread that writes them.

    Args:
        log: Groups are written to it; owned by the thread from `start` on.
        blocks: Gets the locations of blocks.
        on_synced: Called in the thread with the last sequence on the disk.
        on_failure: Called in the thread once, with the error that ended it. From then on no answer
            may leave the process.
        idle_close_s: Seconds without a unit after which the log is closed by an empty group.
    """

    def __init__(
        self,
        log: Log,
        blocks: Blocks,
        *,
        on_synced: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        idle_close_s: float,
    ) -> None:
        self._log = log
        self._blocks = blocks
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._idle_close_s = idle_close_s
        self._thread = threading.Thread(target=self._run, name="journal-commit", daemon=True)
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._batch: list[Item] = []
        self._closing = False
        self._waits = True
        self._idle = False  # the thread waits for items
        self._wrote_here = False  # since the thread began to wait
        self._quick_syncs = 0  # in succession
        self.failure: BaseException | None = None
        self.synced = log.position.sequence
        self.unsynced_bytes = 0
        self.written_bytes = 0
        self.freed_bytes = 0
        self.sync_times = SyncTimes()
        self.pace = Pace()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def put(self, item: Item, *, lone: bool = False) -> None:
        """Puts an item in the queue; waits for no disk, except for one that was quick so far.

        Args:
            item: It takes effect after the items before it.
            lone: Nothing is about to follow this unit: it is written and synced before the return
                where that is quick, and `on_synced` is not called.

        Raises:
            ClosedError: The journal was closed, or failed.
        """
        with self._changed:
            if self.failure is not None or self._closing:
                raise ClosedError(
                    f"the journal takes no more records: {self.failure or 'it was closed'}"
                )
            if lone and isinstance(item, Unit) and self._quick(item.size):
                self._write_here(item)
                return
            self._items.append(item)
            if isinstance(item, Unit):
                self.unsynced_bytes += item.size
            self._changed.notify()

    def stop_waiting(self) -> None:
        """Makes a full disk end the journal from now on, instead of waiting for room."""
        with self._changed:
            self._waits = False
            self._changed.notify()

    def close(self) -> None:
        """Writes the remaining items, closes the log by an empty group, and ends the thread."""
        with self._changed:
            self._closing, self._waits = True, False
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        elif self.failure is None:
            self._log.abandon()

    def _quick(self, size: int) -> bool:
        """Whether a unit can be written at once, probably without a long wait; under the lock."""
        return (
            self._idle
            and not self._items
            and self._quick_syncs >= _QUICK_SYNCS
            and size <= _HERE_BYTES
            and not self._log.closed  # else the thread would not wake to close it again
            and self._log.has_room(size)
        )

    def _write_here(self, unit: Unit) -> None:
        """Writes and syncs a unit in the caller's thread; the lock keeps the other one waiting."""
        try:
            self._write([unit], [unit])
        except BaseException as error:
            self.failure = error
            self._log.abandon()
            self._on_failure(error)
            raise
        self._wrote_here = True
        self.synced = self._log.position.sequence

    def _run(self) -> None:
        try:
            while self._take():
                self._commit(self._batch)
            if self.failure is None:
                self._log.close()
        except BaseException as error:  # noqa: BLE001 - every error ends the process
            self._fail(error)

    def _take(self) -> bool:
        """Takes the items of the next group, none to close the log; waits; False at the end."""
        with self._changed:
            while not self._items:
                if self.failure is not None:
                    return False
                if not self._log.closed:
                    if self._closing or not (self._wait(self._idle_close_s) or self._wrote_here):
                        self._batch = []
                        return True
                elif self._closing:
                    return False
                else:
                    self._wait()
            self._batch = self._next_batch()
            return True

    def _wait(self, timeout_s: float | None = None) -> bool:
        self._idle, self._wrote_here = True, False
        try:
            return self._changed.wait(timeout_s)
        finally:
            self._idle = False

    def _next_batch(self) -> list[Item]:
        batch: list[Item] = []
        size = 0
        while self._items:
            item = self._items[0]
            if isinstance(item, Unit):
                size += item.size
                if size > self.pace.group_bytes and batch:
                    break
            batch.append(self._items.popleft())
            if isinstance(item, Mark):
                # A mark captures the log before it, and nothing after it.
                break
        return batch

    def _commit(self, batch: list[Item]) -> None:
        units = [item for item in batch if isinstance(item, Unit)]
        self._write(batch, units)
        self._report(units)

    def _write(self, batch: Sequence[Item], units: Sequence[Unit]) -> None:
        """Writes and syncs a group, then does what waited for that."""
        records = [(unit.kind, entry) for unit in units for entry in unit.entries]
        if records or not batch:
            size = sum(unit.size for unit in units)
            if records:
                self._wait_for_room(size)
            began_s = time.perf_counter()
            placed = iter(self._log.write(records, size))
            written_s = time.perf_counter()
            self._log.sync()
            synced_s = time.perf_counter()
            self.sync_times.add(synced_s - written_s)
            self.pace.add(size, synced_s - began_s)
            quick = synced_s - began_s < _QUICK_S
            self._quick_syncs = self._quick_syncs + 1 if quick else 0
            self.written_bytes += size
        for item in batch:
            if isinstance(item, Unit):
                for _ in range(sum(entry.block_id is not None for entry in item.entries)):
                    block, location = next(placed)
                    put = self._blocks.place if item.kind == CORE else self._blocks.move
                    put(block.block_id, location)
            elif isinstance(item, FreedBlocks):
                self.freed_bytes += self._blocks.free(item.block_ids).length
            else:
                item.captured.set_result(Capture(self._log.position, self._blocks.copy_table()))

    def _wait_for_room(self, size: int) -> None:
        """Waits while the disk is full; below the reserve other processes filled it (P8)."""
        waited = False
        while True:
            try:
                self._log.find_room(size)
            except NoRoomError as error:
                if not waited:
                    _log.error("the journal waits for room on the disk: %s", error)
                waited = True
                with self._changed:
                    if self._changed.wait_for(lambda: not self._waits, _RETRY_S):
                        raise
            else:
                if waited:
                    _log.warning("the journal has room on the disk again")
                return

    def _report(self, units: list[Unit]) -> None:
        if not units:
            return
        with self._changed:
            self.unsynced_bytes -= sum(unit.size for unit in units)
        for unit in units:
            if unit.done is not None:
                unit.done.set_result(None)
        if self._log.position.sequence > self.synced:
            self.synced = self._log.position.sequence
            self._on_synced(self.synced)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.failure = error
            abandoned = [*self._batch, *self._items]
            self._items.clear()
        self._log.abandon()
        self._on_failure(error)
        for item in abandoned:
            if isinstance(item, FreedBlocks):
                continue
            future: Future[Any] | None = item.done if isinstance(item, Unit) else item.captured
            if future is not None and not future.done():
                future.set_exception(ClosedError(f"the journal failed: {error}"))


# Upper bounds in seconds. A sync takes 0.05 ms without a disk, 1 ms on a fast disk, 10 ms on
# others.
BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)


class SyncTimes:
    """Histogram of the durations of syncs; written by one thread at a time, read by any.

    Recording a sync costs one lookup and two additions.

    Attributes:
        counts: Number of syncs that took no longer than the bound of the same index, and longer
            than the previous bound; the last entry counts syncs beyond all bounds.
        total_s: Total duration of all syncs.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """Records the duration of a sync."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds
