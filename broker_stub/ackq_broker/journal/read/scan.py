"""Reads the log back group by group, and distinguishes a torn tail from damage.

Group k+1 is written only after group k is synced. So a bad group with anything after it was
complete once: that is damage. A bad group with nothing after it may never have been synced, hence
was never reported as synced: that is the torn tail of a crash, as long as its file has the size
that it was allocated with, and FORMAT records no later group (`read_last`). Invariant: a group is
yielded whole and checked, or not at all, and follows the previous group by number, sequence and
chain, also from segment to segment.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ackq_broker.journal.files.checksum import crc32
from ackq_broker.journal.files.directory import LogEnd, segment_name
from ackq_broker.journal.files.format import (
    CORE,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    HAS_BLOCK,
    LOST,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    FormatError,
    GroupHeader,
    Position,
    RecordHeader,
    SegmentHeader,
)

_READ_BYTES: Final = 1024 * 1024


class Flaw(NamedTuple):
    """A damaged place in a file: bytes that differ from the bytes written.

    Attributes:
        path: The file.
        offset: Its first byte that cannot be trusted.
        reason: Why it cannot be trusted.
        block_id: Set when only the bytes of this block are damaged: the records after it can be
            read.
    """

    path: Path
    offset: int
    reason: str
    block_id: int | None = None

    def __str__(self) -> str:
        return f"{self.path.name} byte {self.offset}: {self.reason}"


class ScannedRecord(NamedTuple):
    """A record read from a file; `offset` is of its header, `bulk_offset` of its block."""

    offset: int
    header: RecordHeader
    payload: bytes
    bulk_offset: int

    @property
    def block_id(self) -> int | None:
        """The id of the record's block; None without one."""
        return self.header.block_id if self.header.flags & HAS_BLOCK else None


class ScannedGroup(NamedTuple):
    """A group read from a file; `flaws` are of blocks only, `end` is where the next one begins."""

    offset: int
    header: GroupHeader
    records: list[ScannedRecord]
    flaws: list[Flaw]
    end: Position


class BrokenLogError(Exception):
    """The log cannot be read beyond a position.

    Attributes:
        flaw: Where and why.
        torn_bytes: Length of the torn tail; 0 means damage.
        at: The end of the last good group.
        group_end: End of the bad group according to its sound header; 0 if unknown.
    """

    def __init__(
        self, flaw: Flaw, *, at: Position, torn_bytes: int = 0, group_end: int = 0
    ) -> None:
        super().__init__(str(flaw))
        self.flaw = flaw
        self.at = at
        self.torn_bytes = torn_bytes
        self.group_end = group_end


class SegmentFile:
    """A segment open for reading; one buffer, as large as the largest group, serves all reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self.fd)

    def header(self) -> SegmentHeader:
        """The segment's header, which has to match the file's name; raises `FormatError`."""
        header = SegmentHeader.unpack(bytes(self.read(0, SEGMENT_HEADER_BYTES)))
        if self.path.name != segment_name(header.number):
            raise FormatError(f"the header is that of segment {header.number}")
        return header

    def read(self, offset: int, length: int) -> memoryview:
        """Reads up to `length` bytes, fewer at the end of the file; valid until the next read."""
        length = max(0, min(length, self.size - offset))
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        view = memoryview(self._buffer)[:length]
        done = 0
        while done < length:
            try:
                count = os.preadv(self.fd, [view[done:]], offset + done)
            except OSError as error:
                # Not a flaw of the log: bytes that a failing disk cannot read may be sound, and
                # reported as synced.
                error.filename = str(self.path)
                raise
            if count == 0:
                break
            done += count
        return view[:done]

    def data_from(self, offset: int) -> Iterator[tuple[int, memoryview]]:
        """The pieces of the file from `offset` on that may contain nonzero bytes, with offsets.

        A segment is allocated whole; skipping its holes spares reading 256 MiB of zeros.
        """
        while offset < self.size:
            try:
                start = os.lseek(self.fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            end = os.lseek(self.fd, start, os.SEEK_HOLE)
            for piece in range(start, end, _READ_BYTES):
                yield piece, self.read(piece, min(_READ_BYTES, end - piece))
            offset = end

    def data_end(self, offset: int) -> int:
        """The end of the last nonzero byte from `offset` on; `offset` if all are zero."""
        end = offset
        for start, data in self.data_from(offset):
            used = len(bytes(data).rstrip(b"\0"))
            if used:
                end = start + used
        return end


def read_groups(file: SegmentFile, position: Position, *, last: bool) -> Iterator[ScannedGroup]:
    """The groups of a segment from a position in it to its clean end, each checked in full.

    Damage to a block only is left to the caller, in `ScannedGroup.flaws`.

    Args:
        file: The segment.
        position: Where to begin: a segment's start, or the position of a snapshot.
        last: False when a later segment exists: then every group of this one was synced.

    Raises:
        BrokenLogError: A bad record or header, including the header of the segment.
    """
    try:
        header = file.header()
    except FormatError as error:
        raise BrokenLogError(Flaw(file.path, 0, str(error)), at=position) from error
    if file.size < position.offset:
        flaw = Flaw(file.path, file.size, "the file ends before the place of the snapshot")
        raise BrokenLogError(flaw, at=position)
    while True:
        group = _read_group(file, position, header, last=last)
        if group is None:
            return
        if group.flaws and last and not _followed(file, header, position, group.end.offset):
            raise _broken(file, group.flaws[0], position, torn=True, group_end=group.end.offset)
        yield group
        position = group.end


def read_last(
    file: SegmentFile, position: Position, known: LogEnd | None
) -> Iterator[ScannedGroup]:
    """The groups of the last segment, as `read_groups`; a log shorter than FORMAT says is damage.

    Args:
        file: The last segment.
        position: Where to begin.
        known: The end of the log as recorded in FORMAT; None if it records none.

    Raises:
        BrokenLogError: A bad group, or a recorded group is missing.
    """
    group_end = 0
    torn: BrokenLogError | None = None
    try:
        for group in read_groups(file, position, last=True):
            yield group
            position = group.end
    except BrokenLogError as broken:
        if not broken.torn_bytes:
            raise
        torn, group_end = broken, broken.group_end
    flaw = None if known is None else _shortened(file, position, group_end, known)
    if flaw is not None:
        raise BrokenLogError(flaw, at=position) from torn
    if torn is not None:
        raise torn


def _shortened(file: SegmentFile, end: Position, group_end: int, known: LogEnd) -> Flaw | None:
    if end.group < known.group:
        reason = (
            f"the log ends after group {end.group}, but it had group {known.group} when FORMAT "
            "was written"
        )
        return Flaw(file.path, end.offset, reason)
    if known.closed and end.group == known.group:
        return None
    least = max(known.file_bytes, end.offset + GROUP_HEADER_BYTES, group_end)
    if file.size >= least:
        return None
    reason = f"the file was shortened: it ends here, but was allocated with {least} bytes or more"
    return Flaw(file.path, file.size, reason)


def read_log(
    directory: Path, begin: Position, numbers: Sequence[int], known: LogEnd | None = None
) -> Iterator[tuple[SegmentFile, ScannedGroup]]:
    """The groups from `begin` to the clean end of the log, each with its file, open until the next.

    Recovery, verify and repair all read the log with this function.

    Args:
        directory: The data directory.
        begin: `ORIGIN`, or the position of the snapshot.
        numbers: The numbers of the segments, ascending.
        known: The end of the log as recorded in FORMAT; None to skip that check.

    Raises:
        BrokenLogError: A bad group, or a segment that is missing or does not continue the previous
            one.
    """
    position = begin
    first = max(1, begin.segment)
    last = max([first, *numbers, known.segment if known else 0])
    for number in range(first, last + 1):
        path = directory / segment_name(number)
        try:
            file = SegmentFile(path)
        except FileNotFoundError:
            flaw = Flaw(path, 0, "the file is missing")
            raise BrokenLogError(flaw, at=position) from None
        with file:
            if number != begin.segment:
                position = _next_start(directory, file, position)
            groups = (
                read_last(file, position, known)
                if number == last
                else read_groups(file, position, last=False)
            )
            for group in groups:
                yield file, group
                position = group.end


def _next_start(directory: Path, file: SegmentFile, end: Position) -> Position:
    """The start of a segment, checked against the end of the previous segment."""
    try:
        start = file.header().position
    except FormatError as error:
        raise BrokenLogError(Flaw(file.path, 0, str(error)), at=end) from error
    if (start.group, start.chain, start.sequence) != (end.group, end.chain, end.sequence):
        path = directory / segment_name(end.segment) if end.segment else file.path
        reason = (
            f"group {end.group} is the last here, but {file.path.name} begins with group "
            f"{start.group + 1}"
        )
        raise BrokenLogError(Flaw(path, end.offset, reason), at=end)
    return start


def _read_group(
    file: SegmentFile, at: Position, segment: SegmentHeader, *, last: bool
) -> ScannedGroup | None:
    salt = segment.salt
    try:
        header = GroupHeader.unpack(file.read(at.offset, GROUP_HEADER_BYTES), salt)
        _check_order(header, at)
    except FormatError as error:
        if not _followed(file, segment, at, at.offset):
            return None
        flaw = Flaw(file.path, at.offset, str(error))
        torn = last and not _later_group(file, at, salt)
        raise _broken(file, flaw, at, torn=torn) from error
    body = at.offset + GROUP_HEADER_BYTES
    end = body + header.length
    data = file.read(body, header.length)
    try:
        records, flaws = _parse_records(file.path, header, data, body)
    except _BadRecordError as error:
        flaw = Flaw(file.path, body + error.offset, str(error))
        torn = last and not _followed(file, segment, at, end)
        raise _broken(file, flaw, at, torn=torn, group_end=end) from error
    core = sum(record.header.kind == CORE for record in records)
    after = Position(at.segment, end, header.number, header.crc, at.sequence + core)
    return ScannedGroup(at.offset, header, records, flaws, after)


def _broken(
    file: SegmentFile, flaw: Flaw, at: Position, *, torn: bool, group_end: int = 0
) -> BrokenLogError:
    torn_bytes = file.data_end(at.offset) - at.offset if torn else 0
    return BrokenLogError(flaw, at=at, torn_bytes=torn_bytes, group_end=group_end)


def _check_order(header: GroupHeader, at: Position) -> None:
    found = (header.number, header.first_sequence, header.chain)
    if found != (at.group + 1, at.sequence + 1, at.chain):
        raise FormatError(
            f"group {header.number} with first sequence {header.first_sequence} does not follow "
            f"group {at.group} and sequence {at.sequence}"
        )


class _BadRecordError(Exception):
    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def _parse_records(
    path: Path, group: GroupHeader, data: memoryview, base: int
) -> tuple[list[ScannedRecord], list[Flaw]]:
    if len(data) < group.length:
        raise _BadRecordError(len(data), f"the file ends within group {group.number}")
    records: list[ScannedRecord] = []
    flaws: list[Flaw] = []
    offset = 0
    seed = group.crc
    for index in range(group.records):
        try:
            header = RecordHeader.unpack(data, offset, seed)
        except FormatError as error:
            raise _BadRecordError(
                offset, f"record {index} of group {group.number}: {error}"
            ) from error
        body = offset + RECORD_HEADER_BYTES
        bulk = body + header.length
        end = bulk + header.bulk_length
        if end > len(data):
            raise _BadRecordError(
                offset, f"record {index} of group {group.number} is longer than its group"
            )
        payload = bytes(data[body:bulk])
        if crc32(payload) != header.record_crc:
            raise _BadRecordError(
                body, f"record {index} of group {group.number}: its checksum is wrong"
            )
        record = ScannedRecord(base + offset, header, payload, base + bulk)
        if crc32(data[bulk:end]) != header.bulk_crc and not header.flags & LOST:
            reason = f"block {header.block_id} of group {group.number}: its checksum is wrong"
            flaws.append(Flaw(path, base + bulk, reason, header.block_id))
        records.append(record)
        offset, seed = end, header.crc
    if offset != len(data):
        raise _BadRecordError(offset, f"group {group.number} is longer than its records")
    return records, flaws


def _followed(file: SegmentFile, segment: SegmentHeader, at: Position, end: int) -> bool:
    """Whether bytes were written from `end` on, which proves that the group at `at` was synced.

    In a reused segment only a later group proves it: old bytes may look like a torn header.
    """
    if segment.reused:
        return _later_group(file, at, segment.salt)
    return file.data_end(end) > end


def _later_group(file: SegmentFile, at: Position, salt: int) -> bool:
    """Whether a later group follows a position where no group can be read.

    A message body cannot pass for such a group: the salt is this segment's alone, and the only
    groups of this segment that a body can contain are earlier ones, which have lower numbers.
    """
    carry, carry_at = b"", at.offset
    for start, piece in file.data_from(at.offset):
        data = bytes(piece)
        if carry and carry_at + len(carry) == start:
            data, start = carry + data, carry_at  # noqa: PLW2901 - a header may lie across two pieces
        found = data.find(GROUP_MAGIC)
        while found >= 0:
            try:
                header = GroupHeader.unpack(data[found : found + GROUP_HEADER_BYTES], salt)
            except FormatError:
                pass
            else:
                if header.number > at.group + 1:
                    return True
            found = data.find(GROUP_MAGIC, found + 1)
        carry = data[-GROUP_HEADER_BYTES:]
        carry_at = start + len(data) - len(carry)
    return False
