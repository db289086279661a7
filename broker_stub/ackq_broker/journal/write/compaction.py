"""Snapshots in the background, deletion of superseded segments, compaction of mostly dead ones.

Invariant: a segment is deleted only when a snapshot that is on the disk covers all its records and
lists no block in it. A copy of a block is read only once it is synced, and its old bytes stay until
such a snapshot.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from ackq import limits
from ackq.errors import BlockNotFoundError, ClosedError, DamagedError
from ackq_broker.journal.files.block_table import BlockTable
from ackq_broker.journal.files.directory import DataDirectory, segment_name
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import RELOCATION, Entry, entry_bytes
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.read.blocks import Blocks
from ackq_broker.journal.write import backup
from ackq_broker.journal.write.backup import Backup
from ackq_broker.journal.write.group_commit import Capture, GroupCommit, Mark, Unit
from ackq_broker.journal.write.spares import Spares

# A segment is worth copying when that frees at least three times what it writes.
_COMPACT_BELOW: Final = 0.25
# The most bytes copied after one snapshot, so that copying does not compete with publishers.
_COMPACT_BYTES: Final = limits.SEGMENT_BYTES // 4
_COMPACT_UNIT_BYTES: Final = 8 * limits.MIB

_log: Final = logging.getLogger(__name__)


class Compactor:
    """Writes snapshots and compacts after each, in its own thread, one at a time.

    Args:
        data: The data directory.
        disk: Makes every change.
        blocks: The blocks.
        group_commit: Takes marks and relocations.
        spares: Takes dead segments.
        on_failure: Called when it is unknown whether the snapshot's name is on the disk: then the
            broker must stop serving.
    """

    def __init__(
        self,
        data: DataDirectory,
        disk: Disk,
        blocks: Blocks,
        group_commit: GroupCommit,
        spares: Spares,
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._data = data
        self._disk = disk
        self._blocks = blocks
        self._group_commit = group_commit
        self._spares = spares
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None
        self._done: Future[Any] | None = None
        self._closing = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether a snapshot, or the compaction after it, is under way."""
        return self._done is not None and not self._done.done()

    def start(self, state: Iterable[bytes]) -> Future[None]:
        """Starts a snapshot of everything put so far, after the snapshot or backup under way.

        The future is resolved when the snapshot is on the disk, the dead segments are deleted and
        the copies out of mostly dead ones are synced. It has an `OSError` when the snapshot could
        not be written: the previous snapshot still counts.
        """
        done = Future[None]()
        self._start(done, lambda captured: self._write(state, captured, done))
        return done

    def back_up(self, state: Iterable[bytes], target: Path) -> Future[Backup]:
        """Starts a backup of everything put so far; no segment is deleted until it ends.

        A snapshot or backup under way is finished first. The future has the error of
        `backup.back_up` when the backup failed.
        """
        done = Future[Backup]()

        def make(captured: Future[Capture]) -> None:
            try:
                capture = captured.result()
                made = backup.back_up(
                    self._data,
                    capture,
                    state,
                    target,
                    self._disk,
                    lambda: not self._closing.is_set(),
                )
            except BaseException as error:  # noqa: BLE001 - the journal has not changed
                done.set_exception(error)
            else:
                done.set_result(made)

        self._start(done, make)
        return done

    def _start(self, done: Future[Any], work: Callable[[Future[Capture]], None]) -> None:
        """Puts a mark and starts a thread that waits for the previous thread, then does `work`."""
        # From now on only the thread resolves it: a cancelled caller does not cancel it.
        done.set_running_or_notify_cancel()
        captured: Future[Capture] = Future()
        self._group_commit.put(Mark(captured))
        before, self._done = self._thread, done

        def run() -> None:
            if before is not None:
                before.join()
            work(captured)

        self._thread = threading.Thread(target=run, name="journal-snapshot", daemon=True)
        self._thread.start()

    def compact(self, below: float, going: Callable[[], bool]) -> None:
        """Copies the live blocks out of full segments whose live share is below `below`; blocking.

        The next snapshot deletes the segments. `going` is called before each batch of copies; False
        ends the compaction.

        Raises:
            ClosedError: The journal was closed, or failed.
        """
        table = self._blocks.copy_table()
        for number in self._mostly_dead(table, self._data.segments()[-1], below):
            for unit in self._relocations(table, number):
                if self._closing.is_set() or not going():
                    return
                self._copy(unit)

    def rewrite(self, blocks: Sequence[tuple[int, bytes]]) -> None:
        """Replaces the bytes of blocks, by id; returns when they are on the disk.

        A block that was freed meanwhile stays free.

        Raises:
            ClosedError: The journal was closed, or failed.
        """
        entries = [Entry(b"", block_id, (data,)) for block_id, data in blocks]
        self._copy(Unit(RELOCATION, entries, sum(map(entry_bytes, entries)), Future()))

    def deletable(self) -> list[int]:
        """The full segments without a live block, which a snapshot would delete now."""
        live = self._blocks.copy_table().live_bytes()
        return [number for number in self._data.segments()[:-1] if number not in live]

    def hurry(self) -> None:
        """Ends compaction and a backup early, from now on; snapshots are still written."""
        self._closing.set()

    def close(self) -> None:
        """Hurries, and waits for a snapshot under way; group commit must still run."""
        self.hurry()
        if self._thread is not None:
            self._thread.join()

    def _write(self, state: Iterable[bytes], captured: Future[Capture], done: Future[None]) -> None:
        try:
            capture = captured.result()
            snapshot = snapshots.Snapshot(
                capture.position, capture.table, state, self._data.require_history()
            )
            snapshots.write(self._data.path, snapshot, self._disk)
        except (OSError, ClosedError) as error:
            done.set_exception(error)
            return
        except BaseException as error:  # noqa: BLE001 - no later snapshot could begin
            done.set_exception(error)
            self._on_failure(error)
            return
        try:
            snapshots.publish(self._data.path, snapshot, self._disk)
            self._delete(capture)
            self._compact(capture)
        except ClosedError as error:
            done.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - every error ends the process
            done.set_exception(error)
            self._on_failure(error)
        else:
            done.set_result(None)

    def _delete(self, capture: Capture) -> None:
        dead = snapshots.dead_segments(self._data, capture.position, capture.table)
        for path in snapshots.superseded(self._data, capture.position, capture.table):
            if path in dead:
                self._spares.keep(path)
            else:
                self._disk.unlink(path)
        self._blocks.keep_files(self._data.segments())

    def _compact(self, capture: Capture) -> None:
        """Copies live blocks forward; the next snapshot deletes their old segments."""
        copied = 0
        last = capture.position.segment
        for number in self._mostly_dead(capture.table, last, _COMPACT_BELOW):
            for unit in self._relocations(capture.table, number):
                if self._closing.is_set() or copied >= _COMPACT_BYTES:
                    return
                self._copy(unit)
                copied += unit.size

    def _copy(self, unit: Unit) -> None:
        """Writes relocations; returns when they are on the disk."""
        self._group_commit.put(unit)
        assert unit.done is not None
        unit.done.result()

    def _mostly_dead(self, table: BlockTable, last: int, below: float) -> list[int]:
        """The segments before `last` worth compacting, lowest share of live bytes first."""
        shares = []
        for number, live in table.live_bytes().items():
            if number < last:
                size = (self._data.path / segment_name(number)).stat().st_size
                shares.append((live / size, number))
        return [number for share, number in sorted(shares) if share < below]

    def _relocations(self, table: BlockTable, segment: int) -> Iterator[Unit]:
        entries: list[Entry] = []
        size = 0
        for block_id in table.of_segment(segment).tolist():
            location = self._blocks.locate(block_id)
            if location is None or location.segment != segment:
                # Freed or copied since the table was captured.
                continue
            try:
                entry = Entry(b"", block_id, (self._blocks.read(block_id),))
            except BlockNotFoundError:
                continue
            except DamagedError as error:
                # Its segment stays, and a read of the block raises the same error.
                _log.warning("compaction skips segment %d: %s", segment, error)
                continue
            entries.append(entry)
            size += entry_bytes(entry)
            if size >= _COMPACT_UNIT_BYTES:
                yield Unit(RELOCATION, entries, size, Future())
                entries, size = [], 0
        if entries:
            yield Unit(RELOCATION, entries, size, Future())
