"""Snapshot files: state after a sequence, position to resume the log, locations of live blocks.

    snapshot header, 88 bytes
     0       8       12      16      24            32        40            48      56
     +-------+-------+-------+-------+-------------+---------+-------------+-------+
     | magic |version|segment|offset | group number| sequence| state length| blocks|
     +-------+-------+-------+-------+-------------+---------+-------------+-------+
     56      60         64          68          84    88
     +-------+----------+-----------+-----------+-----+
     | chain | state crc| blocks crc| history id| crc |
     +-------+----------+-----------+-----------+-----+
    followed by the block table (`BlockTable.to_bytes`, 28 bytes a block) and the state.

The fields from segment to chain are the `Position` at which reading the log resumes. Invariant: a
snapshot gets its final name only when all of it is on the disk, and the log was on the disk up to
its position before.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ackq.errors import ClosedError, DamagedError
from ackq_broker.journal.files.block_table import ROW_BYTES, BlockTable
from ackq_broker.journal.files.checksum import crc32
from ackq_broker.journal.files.directory import (
    DataDirectory,
    segment_name,
    snapshot_name,
    unfinished,
)
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import FormatError, Position

SNAPSHOT_MAGIC: Final = b"ackqsnp\n"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sIIQQQQQIII16s")
_CRC: Final = struct.Struct("<I")
SNAPSHOT_HEADER_BYTES: Final = _HEADER.size + _CRC.size

assert SNAPSHOT_HEADER_BYTES == 88  # noqa: PLR2004 - the diagram


class Snapshot(NamedTuple):
    """The state after `position.sequence`, opaque and in chunks, with its live blocks."""

    position: Position
    table: BlockTable
    state: Iterable[bytes]
    history_id: bytes


def write(directory: Path, snapshot: Snapshot, disk: Disk) -> None:
    """Writes and syncs a snapshot under its unfinished name, chunk by chunk as they arrive.

    Raises:
        OSError: The snapshot does not count; the previous one still does.
        ClosedError: The same, for a state that was abandoned.
    """
    path = unfinished(directory / snapshot_name(snapshot.position.sequence))
    fd = disk.create(path)
    try:
        _write(fd, snapshot, disk)
        disk.sync_file(fd)
    except (OSError, ClosedError):
        disk.unlink(path)
        raise
    finally:
        os.close(fd)


def publish(directory: Path, snapshot: Snapshot, disk: Disk) -> None:
    """Gives a written snapshot its name, once the log is on the disk up to its position (I1).

    Raises:
        OSError: It is unknown whether the snapshot counts.
    """
    path = directory / snapshot_name(snapshot.position.sequence)
    disk.rename(unfinished(path), path)
    # The superseded files are deleted next: that must not reach the disk before the name does.
    disk.sync_directory(directory)


def superseded(data: DataDirectory, position: Position, table: BlockTable) -> list[Path]:
    """The files superseded by a snapshot: older snapshots, covered segments without live blocks."""
    paths = [
        data.path / snapshot_name(sequence)
        for sequence in data.snapshots()
        if sequence < position.sequence
    ]
    return paths + dead_segments(data, position, table)


def dead_segments(data: DataDirectory, position: Position, table: BlockTable) -> list[Path]:
    """The segments superseded by a snapshot at `position`: covered, and without live blocks."""
    live = table.live_bytes()
    return [
        data.path / segment_name(number)
        for number in data.segments()
        if number < position.segment and number not in live
    ]


def read(path: Path) -> Snapshot:
    """Reads a snapshot back.

    Raises:
        DamagedError: A checksum or a length is wrong.
    """
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        error.filename = str(path)  # a read error has no file name
        raise
    try:
        return _decode(data)
    except FormatError as error:
        raise DamagedError(
            f"{path} is damaged: {error}; the records that it replaced were deleted, so restore "
            "the data directory from a copy",
            file=path,
        ) from error


def _write(fd: int, snapshot: Snapshot, disk: Disk) -> None:
    """Writes the state, and then the header, which has its length and its checksum."""
    table = snapshot.table.to_bytes()
    begin = SNAPSHOT_HEADER_BYTES + len(table)
    length = crc = 0
    for chunk in snapshot.state:
        disk.write(fd, [chunk], begin + length)
        length += len(chunk)
        crc = crc32(chunk, crc)
    position = snapshot.position
    head = _HEADER.pack(
        SNAPSHOT_MAGIC,
        _VERSION,
        position.segment,
        position.offset,
        position.group,
        position.sequence,
        length,
        len(snapshot.table),
        position.chain,
        crc,
        crc32(table),
        snapshot.history_id,
    )
    disk.write(fd, [head + _CRC.pack(crc32(head)), table], 0)


def _decode(data: memoryview) -> Snapshot:
    if len(data) < SNAPSHOT_HEADER_BYTES:
        raise FormatError("the header is short")
    (
        magic,
        version,
        segment,
        offset,
        group,
        sequence,
        length,
        blocks,
        chain,
        state_crc,
        table_crc,
        history_id,
    ) = _HEADER.unpack_from(data)
    if magic != SNAPSHOT_MAGIC or version != _VERSION:
        raise FormatError("the magic or the version is wrong")
    if crc32(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        raise FormatError("the checksum of the header is wrong")
    middle = SNAPSHOT_HEADER_BYTES + blocks * ROW_BYTES
    if len(data) != middle + length:
        raise FormatError(f"it has {len(data)} bytes instead of {middle + length}")
    table, state = data[SNAPSHOT_HEADER_BYTES:middle], data[middle:]
    if crc32(table) != table_crc:
        raise FormatError("the checksum of the block table is wrong")
    if crc32(state) != state_crc:
        raise FormatError("the checksum of the state is wrong")
    position = Position(segment, offset, group, chain, sequence)
    return Snapshot(position, BlockTable.from_bytes(table, blocks), (bytes(state),), history_id)
