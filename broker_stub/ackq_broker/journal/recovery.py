"""Opens a data directory (Q7): finds and syncs the end of the log, reads the records to replay.

Invariant: no record is returned before it is known to be on the disk, and no group that may have
been reported as synced is dropped: such a bad group is damage, and the journal does not open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ackq.errors import DamagedError
from ackq_broker.journal.files.block_table import Location
from ackq_broker.journal.files.directory import (
    COPIED,
    DataDirectory,
    LogEnd,
    segment_name,
    snapshot_name,
    unfinished,
)
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import (
    CORE,
    END_ROOM_BYTES,
    LOST,
    FormatError,
    Position,
    SegmentHeader,
)
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.read.blocks import Blocks
from ackq_broker.journal.read.scan import (
    BrokenLogError,
    Flaw,
    ScannedGroup,
    SegmentFile,
    read_last,
    read_log,
)
from ackq_broker.journal.write.log import Log, create_segment

_COPY_BYTES: Final = 4 * 1024 * 1024
# Where a journal without a snapshot begins: before segment 1.
ORIGIN: Final = Position(segment=0, offset=0, group=0, chain=0, sequence=0)


class Recovery(NamedTuple):
    """The snapshot and records that a service replays before it serves.

    Attributes:
        snapshot: The state of the newest snapshot; None without a snapshot.
        snapshot_sequence: The last record the snapshot includes, 0 without one.
        records: (sequence, record) of all later records, in order, read as they are iterated:
            memory stays bounded by one group. Raises `DamagedError`. To be exhausted before
            `Journal.start`.
        created: The journal is new.
        cut_bytes: Length of the torn tail that was cut.
        history_id: 32 hex digits; a new one after a repair, and in a copy (Q8).
        history_cause: Why that history began; "" for the first.
        lost_blocks: Blocks that repair found lost, until `Journal.forget_lost`; some may be dead.
    """

    snapshot: bytes | None
    snapshot_sequence: int
    records: Iterator[tuple[int, bytes]]
    created: bool
    cut_bytes: int
    history_id: str
    history_cause: str
    lost_blocks: tuple[int, ...]


class OpenedJournal(NamedTuple):
    """A recovered journal; `blocks` is complete once `recovery.records` is exhausted.

    `replay_bytes` is the length of the log after the snapshot, which a restart no longer reads
    once the next snapshot is written.
    """

    recovery: Recovery
    log: Log
    blocks: Blocks
    replay_bytes: int


def recover(data: DataDirectory, disk: Disk, *, segment_bytes: int) -> OpenedJournal:
    """Opens the journal of a locked data directory.

    Raises:
        DamagedError: Names the file and the byte.
        OSError: The disk refused; nothing is lost.
    """
    # A killed process may have left a snapshot's name in the page cache alone; the files that it
    # supersedes are deleted below, and a power cut must not keep the deletion without the name.
    disk.sync_directory(data.path)
    created = not data.formatted
    if created:
        _create(data, disk, segment_bytes)
    snapshot = newest_snapshot(data)
    begin = ORIGIN if snapshot is None else snapshot.position
    numbers = data.segments()
    for number in missing_segments(snapshot, numbers, data.log_end):
        raise damaged_error(
            data.path, Flaw(data.path / segment_name(number), 0, "the file is missing")
        )
    data.remove_leftovers()
    last = _recover_last(data, disk, begin, numbers[-1], segment_bytes)
    try:
        if snapshot is not None:
            for path in snapshots.superseded(data, begin, snapshot.table):
                disk.unlink(path)
        if not created:
            _renew_format(data, last.position, segment_bytes)
    except BaseException:
        os.close(last.fd)
        raise
    blocks = Blocks(
        lambda number: data.path / segment_name(number), snapshot.table if snapshot else None
    )
    replayed = [number for number in numbers if number >= begin.segment]
    recovery = Recovery(
        snapshot=b"".join(snapshot.state) if snapshot else None,
        snapshot_sequence=begin.sequence,
        records=_replay(data.path, begin, replayed, last.position, blocks),
        created=created,
        cut_bytes=last.cut_bytes,
        history_id=data.require_history().hex(),
        history_cause=data.history_cause,
        lost_blocks=data.lost_blocks,
    )
    log = Log(
        data,
        disk,
        header=last.header,
        fd=last.fd,
        position=last.position,
        closed=last.closed,
        segment_bytes=segment_bytes,
    )
    sizes = [(data.path / segment_name(number)).stat().st_size for number in replayed[:-1]]
    return OpenedJournal(recovery, log, blocks, sum(sizes) + last.position.offset - begin.offset)


def newest_snapshot(data: DataDirectory) -> snapshots.Snapshot | None:
    """The newest snapshot; an older one was left by a process that died while deleting it."""
    sequences = data.snapshots()
    return snapshots.read(data.path / snapshot_name(sequences[-1])) if sequences else None


def damaged_error(directory: Path, flaw: Flaw) -> DamagedError:
    """The error for a journal that does not open, with file, byte and the commands that help."""
    return DamagedError(
        f"the journal is damaged: {flaw.path} byte {flaw.offset}: {flaw.reason}. The damaged part "
        "may hold confirmed messages, so the broker does not start without it; no record was "
        f"removed. 'ackq-broker verify {directory}' lists all damage. Restore the directory from "
        "a copy, or continue without the unreadable data: 'ackq-broker repair --keep-damaged "
        f"{directory}'",
        segment=flaw.path,
        byte=flaw.offset,
    )


def missing_segments(
    snapshot: snapshots.Snapshot | None, numbers: Sequence[int], known: LogEnd | None
) -> list[int]:
    """Missing segments: from the snapshot's on, and earlier segments that hold live blocks."""
    first = max(1, snapshot.position.segment if snapshot else 1)
    last = max([first, *numbers, known.segment if known else 0])
    needed = set(range(first, last + 1))
    if snapshot is not None:
        needed.update(snapshot.table.live_bytes())
    return sorted(needed.difference(numbers))


def _create(data: DataDirectory, disk: Disk, segment_bytes: int) -> None:
    """Creates an empty journal. FORMAT is written last: where it exists, segment 1 does as well.

    A directory without FORMAT may hold segment 1 of a process that died at this point, but no
    record: nothing was served yet.
    """
    numbers = data.segments()
    if data.snapshots() or numbers not in ([], [1]) or (numbers and _has_records(data.path)):
        raise damaged_error(data.path, Flaw(data.path / "FORMAT", 0, "the file is missing"))
    history_id = data.new_history("")
    _, fd = create_segment(data.path, disk, ORIGIN, history_id, segment_bytes)
    os.close(fd)
    data.log_end = LogEnd(1, 0, segment_bytes, closed=False)
    data.write_format()


def _renew_format(data: DataDirectory, end: Position, segment_bytes: int) -> None:
    """Writes this start's FORMAT, by which a restored older FORMAT or log is detected (Q7, Q8).

    From now on the log may grow: it no longer ends where it was closed.
    """
    if data.history_id is None:
        data.new_history(COPIED)
    data.log_end = LogEnd(end.segment, end.group, segment_bytes, closed=False)
    data.write_format()


def _has_records(directory: Path) -> bool:
    with SegmentFile(directory / segment_name(1)) as file:
        try:
            begin = file.header().position.offset
        except FormatError:
            return True
        return file.data_end(begin) > begin


class _LastSegment(NamedTuple):
    header: SegmentHeader
    fd: int
    position: Position
    closed: bool
    cut_bytes: int


def _recover_last(
    data: DataDirectory, disk: Disk, begin: Position, number: int, segment_bytes: int
) -> _LastSegment:
    """Finds the end of the log, and syncs everything before it once more.

    The previous process may have died because a sync failed. Then the page cache holds bytes,
    marked clean, that the disk lacks; they would pass the checks now, be served, and be lost after
    a power cut. So the bytes read are written to another file and synced, and only that file
    counts.
    """
    directory = data.path
    cut_bytes = 0
    # Before any group: everything before a snapshot's position or an existing segment is proven.
    closed = True
    with SegmentFile(directory / segment_name(number)) as file:
        try:
            header = file.header()
        except FormatError as error:
            raise damaged_error(directory, Flaw(file.path, 0, str(error))) from error
        position = begin if number == begin.segment else header.position
        try:
            for group in read_last(file, position, data.log_end):
                _require_sound(directory, group)
                position, closed = group.end, not group.header.records
        except BrokenLogError as broken:
            if not broken.torn_bytes:
                raise damaged_error(directory, broken.flaw) from broken
            cut_bytes = broken.torn_bytes
        # FORMAT still has the size of the previous start, which may have been larger: without a
        # clean end a smaller file would be taken for a shortened one.
        known = data.log_end
        ended = known is None or (known.closed and known.group == position.group)
        least = 0 if ended or known is None else known.file_bytes
        size = max(segment_bytes, least, position.offset + END_ROOM_BYTES)
        fd = _rewrite(directory, disk, file, position.offset, size)
    return _LastSegment(header, fd, position, closed, cut_bytes)


def _rewrite(directory: Path, disk: Disk, file: SegmentFile, end: int, size: int) -> int:
    """Copies the first `end` bytes to a new file under the old name, and returns it open.

    The file is allocated with `size` bytes. The copy goes through user space: a copy made by the
    file system (reflink, copy_file_range) could share the very disk blocks that never got the
    bytes.
    """
    fd = disk.create(unfinished(file.path))
    try:
        disk.allocate(fd, size)
        for offset in range(0, end, _COPY_BYTES):
            disk.write(fd, [file.read(offset, min(_COPY_BYTES, end - offset))], offset)
        disk.sync_file(fd)
        disk.rename(unfinished(file.path), file.path)
        disk.sync_directory(directory)
    except BaseException:
        os.close(fd)
        with suppress(OSError):  # it has its name by now, or the disk fails: the first error counts
            disk.unlink(unfinished(file.path))  # it may have got the rest of the disk
        raise
    return fd


def _replay(
    directory: Path, begin: Position, numbers: Sequence[int], end: Position, blocks: Blocks
) -> Iterator[tuple[int, bytes]]:
    """The core records from `begin` to `end`; adds the blocks of these records to `blocks`."""
    position = begin
    try:
        for _, group in read_log(directory, begin, numbers):
            _require_sound(directory, group)
            yield from _records(group, position.sequence, blocks)
            position = group.end
    except BrokenLogError as broken:
        raise damaged_error(directory, broken.flaw) from broken
    assert position[2:] == end[2:], "the last segment was rewritten up to its last group"


def _records(group: ScannedGroup, sequence: int, blocks: Blocks) -> Iterator[tuple[int, bytes]]:
    for record in group.records:
        header = record.header
        core = header.kind == CORE
        # A relocated block whose copy is damaged is read at its old place.
        if record.block_id is not None and (core or not header.flags & LOST):
            location = Location(
                group.end.segment, record.bulk_offset, header.bulk_length, header.bulk_crc
            )
            (blocks.place if core else blocks.move)(record.block_id, location)
        if core:
            sequence += 1
            yield sequence, record.payload


def _require_sound(directory: Path, group: ScannedGroup) -> None:
    for flaw in group.flaws:
        raise damaged_error(directory, flaw)
