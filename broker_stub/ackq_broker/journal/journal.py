"""The journal as the service uses it: appends records, reports syncs, reads blocks back.

Invariant: records are written in the order in which they were appended, and `on_synced(n)` is
called only when records 1 to n are on the disk. The journal handles bytes, not messages.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from ackq import limits
from ackq.errors import BlockNotFoundError, DiskFullError
from ackq_broker.journal.failpoints import Failpoint, FailpointDisk, unarmed
from ackq_broker.journal.files.block_table import BlockIds, as_ids
from ackq_broker.journal.files.directory import DataDirectory
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import CORE, Bulk, Entry, bulk_bytes, entry_bytes
from ackq_broker.journal.read.scan import Flaw
from ackq_broker.journal.recovery import OpenedJournal, Recovery, damaged_error, recover
from ackq_broker.journal.write.backup import Backup
from ackq_broker.journal.write.compaction import Compactor
from ackq_broker.journal.write.group_commit import (
    IDLE_CLOSE_S,
    FreedBlocks,
    GroupCommit,
    SyncTimes,
    Unit,
)
from ackq_broker.journal.write.transient import TransientBlocks


class Journal:
    """An open journal. Life cycle: `open`, replay the records, `start`, use, `close`.

    `append`, `store_transient`, `free_blocks`, `write_snapshot` and `close` belong to one thread,
    the owner's; the other methods may be called from any thread.

    Attributes:
        segment_bytes: Size of a segment file.
    """

    def __init__(
        self,
        data: DataDirectory,
        disk: Disk,
        opened: OpenedJournal,
        *,
        on_synced: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        segment_bytes: int,
        reserve_bytes: int,
        idle_close_s: float,
    ) -> None:
        self.segment_bytes = segment_bytes
        self._data = data
        self._disk = disk
        self._replayed = opened.recovery.records
        self._blocks = opened.blocks
        self._group_commit = GroupCommit(
            opened.log,
            opened.blocks,
            on_synced=on_synced,
            on_failure=on_failure,
            idle_close_s=idle_close_s,
        )
        self._transient = TransientBlocks(data.path, disk, on_failure)
        self._spares = opened.log.spares
        self._spares.reserve_bytes = reserve_bytes
        self._compactor = Compactor(
            data,
            disk,
            opened.blocks,
            self._group_commit,
            opened.log.spares,
            on_failure=on_failure,
        )
        self._started = False
        self._sequence = opened.log.position.sequence
        self._appended_bytes = 0
        self._last_block_id = -1
        # Bytes written and freed when the last snapshot was started; bytes that recovery replays
        # count as written.
        self._written_before = -opened.replay_bytes
        self._freed_before = 0
        # The last record of the newest snapshot started, and the bytes of the last one written.
        self._snapshot_sequence = opened.recovery.snapshot_sequence
        self._snapshot_bytes = len(opened.recovery.snapshot or b"")

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        on_synced: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        sync: bool = True,
        segment_bytes: int = limits.SEGMENT_BYTES,
        reserve_bytes: int = limits.DISK_RESERVE_BYTES,
        idle_close_s: float = IDLE_CLOSE_S,
        failpoint: Failpoint = unarmed,
        disk: Disk | None = None,
    ) -> tuple[Self, Recovery]:
        """Opens the journal of a data directory, or creates it (Q7).

        Args:
            directory: The data directory; created if it does not exist.
            on_synced: Called in the journal's thread: all records up to this sequence are on the
                disk.
            on_failure: Called in a thread of the journal when a write or sync failed. Whether the
                records after `synced` are on the disk is unknown: the process has to end without
                another answer.
            sync: False leaves syncing to the operating system; for tests that start many brokers.
            segment_bytes: Size of a segment file.
            reserve_bytes: Free disk space that is kept clear of spare segments (P8).
            idle_close_s: Seconds without an append after which the log is closed by an empty group.
            failpoint: Called with the name of each point of `failpoints.POINTS` when it is reached.
            disk: Makes every change to the disk; for tests.

        Raises:
            InUseError: Another process has the directory open.
            UnsupportedError: The format is newer than this program.
            DamagedError: Synced bytes cannot be read; names file, byte and remedies.
            DiskFullError: The disk has no room for the one more segment that opening needs.
        """
        disk = disk or Disk(sync=sync)
        if failpoint is not unarmed:
            disk = FailpointDisk(disk, failpoint, directory)
        data: DataDirectory | None = None
        try:
            data = DataDirectory(directory, disk)
            opened = recover(data, disk, segment_bytes=segment_bytes)
        except OSError as error:
            if data is not None:
                data.close()
            if error.errno == errno.ENOSPC:
                raise DiskFullError(
                    f"the disk of {directory} has no room for the {segment_bytes} bytes or "
                    "more that opening the journal needs: free some space, nothing is lost",
                    directory=directory,
                ) from error
            raise
        except BaseException:
            if data is not None:
                data.close()
            raise
        journal = cls(
            data,
            disk,
            opened,
            on_synced=on_synced,
            on_failure=on_failure,
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
            idle_close_s=idle_close_s,
        )
        return journal, opened.recovery

    def forget_lost(self) -> None:
        """Clears `Recovery.lost_blocks` once a snapshot has dropped their messages; blocking."""
        self._data.lost_blocks = ()
        self._data.write_format()

    def start(self) -> None:
        """Starts the writing thread; every record of the recovery must have been applied."""
        assert next(self._replayed, None) is None, "start before all records were applied"
        self._last_block_id = self._blocks.last_id
        self._started = True
        self._group_commit.start()

    @property
    def sequence(self) -> int:
        """The sequence of the last record appended."""
        return self._sequence

    @property
    def synced(self) -> int:
        """The sequence up to which all records are on the disk."""
        return self._group_commit.synced

    @property
    def unsynced_bytes(self) -> int:
        """Bytes in memory that are not on the disk yet; backpressure is based on them."""
        return self._group_commit.unsynced_bytes + self._transient.unwritten_bytes

    @property
    def unsynced_limit(self) -> int:
        """Unsynced bytes at which backpressure begins, from the measured disk rate (P14)."""
        return self._group_commit.pace.waiting_bytes

    def append(self, entries: Sequence[Entry], *, lone: bool = False) -> int:
        """Appends records atomically: after a crash the log has all of them, or none.

        Waits for the disk only if they are `lone`, nothing waits, and the disk was quick so far:
        then they are synced, without a call of `on_synced`. Block ids ascend over all calls, and
        continue after the recovered ids; the buffers of a bulk must no longer change.

        Returns:
            The sequence of the last record.

        Raises:
            ClosedError: The journal was closed or failed.
        """
        assert self._started
        size = 0
        for entry in entries:
            size += entry_bytes(entry)
            if entry.block_id is not None:
                assert entry.block_id > self._last_block_id, "block ids ascend"
                self._last_block_id = entry.block_id
                self._blocks.add_pending(entry.block_id, entry.bulk)
        if entries:
            self._group_commit.put(Unit(CORE, entries, size), lone=lone)
            self._appended_bytes += size
            self._sequence += len(entries)
        return self._sequence

    def store_transient(self, block_id: int, bulk: Bulk) -> None:
        """Stores a block until it is freed or the process ends (P5); ids ascend."""
        self._transient.put(block_id, bulk)
        self._appended_bytes += bulk_bytes(bulk)

    def read_block(self, block_id: int) -> bytes:
        """The bytes of a durable or transient block, also before it is on the disk.

        May wait for the disk. Callable from any thread.

        Raises:
            BlockNotFoundError: The block was freed, or never appended.
            DamagedError: The bytes on the disk differ from the bytes that were written.
        """
        try:
            return self._blocks.read(block_id)
        except BlockNotFoundError:
            return self._transient.read(block_id)

    def free_blocks(self, block_ids: Iterable[int]) -> None:
        """Frees blocks that no later record refers to.

        Also during the replay of a recovery. A durable block may stay readable for a moment.
        Ids that are not live are ignored: a replay frees transient blocks of an earlier process.
        """
        ids = as_ids(block_ids)
        ids = ids[~self._transient.free(ids)]
        if not len(ids):
            return
        if self._started:
            self._group_commit.put(FreedBlocks(ids))
        else:
            self._blocks.free(ids)

    def keep_blocks(self, block_ids: BlockIds) -> int:
        """Drops all durable blocks except the given ones, before `start`; returns their number.

        A snapshot may list blocks that were already dead, which no replayed record frees.

        Args:
            block_ids: The blocks that the replayed records refer to, ascending.

        Raises:
            DamagedError: The journal lacks one of these blocks.
        """
        assert not self._started
        known = self._blocks.copy_table().ids()
        missing = np.setdiff1d(block_ids, known, assume_unique=True)
        if len(missing):
            raise damaged_error(
                self._data.path,
                Flaw(
                    self._data.path,
                    0,
                    f"the state refers to {len(missing)} blocks that no file has, the first of them"
                    f" block {missing[0]}",
                ),
            )
        return len(self._blocks.free(np.setdiff1d(known, block_ids, assume_unique=True)).segments)

    @property
    def activity_bytes(self) -> int:
        """Bytes appended and freed so far; constant while the journal is idle."""
        freed = self._group_commit.freed_bytes + self._transient.freed_bytes
        return self._appended_bytes + freed

    def block_lengths(self, block_ids: BlockIds) -> npt.NDArray[np.int64]:
        """The length of each block in bytes; 0 for a block that is not in a file."""
        return self._blocks.lengths(block_ids) + self._transient.lengths(block_ids)

    def rewrite_blocks(self, blocks: Sequence[tuple[int, bytes]]) -> None:
        """Replaces the bytes of blocks, by id; blocks until the durable ones are on the disk.

        The new bytes have to mean the same for everything that later records refer to.

        Raises:
            ClosedError: The journal was closed, or failed.
            OSError: The disk has no room for a transient block.
        """
        durable = {block_id for block_id, _ in blocks if self._blocks.locate(block_id) is not None}
        self._compactor.rewrite([block for block in blocks if block[0] in durable])
        self._transient.rewrite([block for block in blocks if block[0] not in durable])

    def compact(self, below: float, going: Callable[[], bool]) -> None:
        """Copies the live blocks out of full segments whose live share is below `below`; blocking.

        Ends early when `going` returns False; a snapshot deletes the segments. Files of transient
        blocks are deleted at once.

        Raises:
            ClosedError: The journal was closed, or failed.
            OSError: The disk has no room for a transient block.
        """
        self._compactor.compact(below, going)
        self._transient.compact(below, going)

    @property
    def sync_times(self) -> SyncTimes:
        """Histogram of the sync durations of this process."""
        return self._group_commit.sync_times

    @property
    def written_bytes(self) -> int:
        """Bytes of records and blocks that this process has written to the log."""
        return self._group_commit.written_bytes

    def file_bytes(self) -> int:
        """Disk space used by the files of the data directory; may wait for the disk."""
        return self._data.used_bytes()

    def live_bytes(self) -> int:
        """Bytes of the live durable blocks that are in files."""
        return self._blocks.live_bytes()

    @property
    def deletable_segments(self) -> int:
        """Number of segments a snapshot would delete now; 0 while a snapshot is being written."""
        return 0 if self._compactor.busy else len(self._compactor.deletable())

    @property
    def snapshot_under_way(self) -> bool:
        """Whether a snapshot is being written, or segments are compacted after it."""
        return self._compactor.busy

    @property
    def snapshot_due(self) -> bool:
        """Whether a snapshot would spare a restart enough bytes or records, or free enough bytes.

        The bounds are `limits.SNAPSHOT_EVERY_BYTES`, and `limits.SNAPSHOT_EVERY_RECORDS` or more
        records where the last snapshot is large.
        """
        if self._compactor.busy:
            return False
        records = self._sequence - self._snapshot_sequence
        least = self._snapshot_bytes // limits.SNAPSHOT_RECORD_BYTES
        if records >= max(limits.SNAPSHOT_EVERY_RECORDS, least):
            return True
        written = self._group_commit.written_bytes - self._written_before
        freed = self._group_commit.freed_bytes - self._freed_before
        return max(written, freed) >= limits.SNAPSHOT_EVERY_BYTES

    @property
    def has_garbage(self) -> bool:
        """Whether bytes were written or freed since the last snapshot; False during a snapshot."""
        return not self._compactor.busy and (
            self._group_commit.written_bytes > self._written_before
            or self._group_commit.freed_bytes > self._freed_before
        )

    def write_snapshot(self, state: Iterable[bytes], sequence: int) -> Future[None]:
        """Writes a snapshot in the background; it counts once the log is synced up to it (I1).

        Args:
            state: The state after record `sequence`, opaque, in chunks: a thread of the journal
                iterates them, possibly after further records were appended. Blocks freed by
                `sequence` have been passed to `free_blocks`.
            sequence: The last sequence appended: a snapshot is of the current state.

        Returns:
            Resolved when the snapshot counts and the segments that it supersedes are deleted; with
            an `OSError` when it could not be written, or with the `ClosedError` of an abandoned
            state. After either the previous snapshot stays in force.
        """
        assert self._started
        assert sequence == self._sequence, "a snapshot is of the state at the last record appended"
        self._written_before = self._group_commit.written_bytes
        self._freed_before = self._group_commit.freed_bytes
        self._snapshot_sequence = sequence
        return self._compactor.start(self._measured(state))

    def _measured(self, state: Iterable[bytes]) -> Iterator[bytes]:
        """Passes on the chunks of a state; records its length when all were taken."""
        length = 0
        for chunk in state:
            length += len(chunk)
            yield chunk
        self._snapshot_bytes = length

    def back_up(self, state: Iterable[bytes], sequence: int, target: Path) -> Future[Backup]:
        """Makes a backup in the background: a directory that opens with the current state.

        Args:
            state: As for `write_snapshot`.
            sequence: Likewise.
            target: A directory that does not exist yet; its parents are created.

        Returns:
            Resolved when the backup is on the disk; with the error when it could not be made.
        """
        assert self._started
        assert sequence == self._sequence, "a backup is of the state at the last record appended"
        return self._compactor.back_up(state, target)

    def trim_spares(self) -> None:
        """Deletes spare segments that were not reused lately, to release their disk space (I6)."""
        self._spares.trim()

    def disk_free_bytes(self) -> int:
        """The free bytes of the disk of the data directory."""
        return self._disk.free_bytes(self._data.path)

    def stop_waiting(self) -> None:
        """Makes a full disk a failure, and ends a backup early; before the last snapshot."""
        self._group_commit.stop_waiting()
        self._compactor.hurry()

    def close(self) -> None:
        """Syncs the appended records, closes the log, unlocks the directory.

        Also to be called after a failure, and when the recovery could not be replayed.
        """
        self._compactor.close()
        self._group_commit.close()
        self._spares.close()
        self._transient.close()
        self._data.close()
