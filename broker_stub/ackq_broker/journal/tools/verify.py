"""Verifies a data directory: reads all that a start reads and every live block; changes nothing.

Invariant: a journal whose report has `opens` true can be opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ackq.errors import DamagedError
from ackq_broker.journal.files.directory import DataDirectory, segment_name, snapshot_name
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import CORE, LOST, Position
from ackq_broker.journal.read.blocks import Blocks
from ackq_broker.journal.read.scan import BrokenLogError, Flaw, read_log
from ackq_broker.journal.read.snapshot import Snapshot
from ackq_broker.journal.recovery import ORIGIN, missing_segments, newest_snapshot


class Report(NamedTuple):
    """The result of `verify`.

    Attributes:
        groups: Number of whole groups after the snapshot.
        end: The end of the last of them.
        torn_bytes: Length of the torn tail, which the next open cuts; it is not damage.
        flaws: Damage that prevents the journal from opening, in the order of the log.
        lost_blocks: Damaged blocks that do not prevent opening: a read of one is an error, until a
            repair drops their messages.
        unsaved_blocks: Blocks of which no copy can be read: a repair drops their messages.
    """

    groups: int
    end: Position
    torn_bytes: int
    flaws: tuple[Flaw, ...]
    lost_blocks: tuple[int, ...]
    unsaved_blocks: tuple[int, ...]

    @property
    def opens(self) -> bool:
        """Whether the journal opens."""
        return not self.flaws


def verify(directory: Path) -> Report:
    """Checks the journal of a data directory that no process has open.

    Raises:
        InUseError: A process has it open.
        NotFoundError: No such directory, or no journal in it.
        UnsupportedError: The format is newer than this program.
        DamagedError: FORMAT cannot be read.
    """
    data = DataDirectory(directory, Disk(), create=False)
    try:
        return inspect(data)
    finally:
        data.close()


def inspect(data: DataDirectory) -> Report:
    """Checks the journal as `verify` does, in a directory that the caller has locked."""
    try:
        snapshot = newest_snapshot(data)
    except DamagedError as error:
        path = data.path / snapshot_name(data.snapshots()[-1])
        return Report(0, ORIGIN, 0, (Flaw(path, 0, error.message),), (), ())
    flaws = []
    if not data.formatted:
        flaws.append(Flaw(data.path / "FORMAT", 0, "the file is missing"))
    begin = snapshot.position if snapshot else ORIGIN
    numbers = data.segments()
    flaws += [
        Flaw(data.path / segment_name(number), 0, "the file is missing")
        for number in missing_segments(snapshot, numbers, data.log_end)
        if number < begin.segment
    ]
    lost = set(_unreadable(data, snapshot))
    flawed: set[int] = set()
    groups = torn_bytes = 0
    end = begin
    try:
        for _, group in read_log(data.path, begin, numbers, data.log_end):
            flaws += group.flaws
            groups += 1
            end = group.end
            bad = {flaw.block_id for flaw in group.flaws}
            for record in group.records:
                block_id = record.block_id
                if block_id is None:
                    continue
                marked = bool(record.header.flags & LOST)
                if not marked and block_id not in bad:
                    # A block that cannot be read at its old place may have been relocated before.
                    lost.discard(block_id)
                    flawed.discard(block_id)
                elif record.header.kind == CORE:  # of a relocated one the old place is read
                    (lost if marked else flawed).add(block_id)
    except BrokenLogError as broken:
        torn_bytes = broken.torn_bytes
        if not torn_bytes:
            flaws.append(broken.flaw)
    unsaved = tuple(sorted(lost | flawed))
    return Report(groups, end, torn_bytes, tuple(flaws), tuple(sorted(lost)), unsaved)


def _unreadable(data: DataDirectory, snapshot: Snapshot | None) -> list[int]:
    """The blocks of the snapshot that cannot be read back."""
    if snapshot is None:
        return []
    blocks = Blocks(lambda number: data.path / segment_name(number), snapshot.table)
    lost: list[int] = []
    for segment in snapshot.table.live_bytes():
        for block_id in snapshot.table.of_segment(segment).tolist():
            try:
                blocks.read(block_id)
            except DamagedError:
                lost.append(block_id)
    return lost
