"""The byte format of a segment; every byte is covered by a checksum.

All integers are little-endian, all checksums are CRC-32 (zlib). A segment is a header and then
groups without gaps; zeros follow the last group, because segments are created at their full size.
Version 2 is a segment that was written over a dead one: leftovers of the dead segment may follow
its last group. None of those groups passes as one of this segment, as each segment has its own
salt. So the proof that nothing was written after a group is zeros in version 1, and the absence of
a later group in version 2.

The room for a group is on the disk before the group is written. So a crash leaves the last segment
at its full size, and a *torn tail* is a bad group in it with nothing after it: it was never
reported as synced. A smaller last segment was cut by something else, and that is damage. Only a
clean end cuts the last segment, after an empty group, and FORMAT records that first (`LogEnd`).
FORMAT also names a group that the log had at the last start or clean end: a log that ends before it
is damage as well, be it a missing last segment, a restored older one, or zeros. Two cases cannot be
distinguished from a torn tail or a clean end: zeros in place of the last groups written since then,
as in the copy of a disk that lost them; and a whole directory restored as it was (see Q8 for the
copies that are detected). A copy made while the broker ran may also lack blocks from before its
snapshot: `verify` reads them all.

    segment header, 64 bytes
     0       8       12     16              24              32           40     44          60    64
     +-------+-------+------+---------------+---------------+------------+------+-----------+-----+
     | magic |version| salt | segment number| first sequence| first group| chain| history id| crc |
     +-------+-------+------+---------------+---------------+------------+------+-----------+-----+

    group header, 40 bytes
     0       4       8               16              24              32      36    40
     +-------+-------+---------------+---------------+---------------+-------+-----+
     | magic |records| group number  | first sequence| byte length   | chain | crc |
     +-------+-------+---------------+---------------+---------------+-------+-----+

    record, 32 bytes and two bodies
     0    1     2    4       8          16      20          24        28    32
     +----+-----+----+-------+----------+-------+-----------+---------+-----+--------+------+
     |kind|flags|zero|record | block id |bulk   |record crc |bulk crc | crc | record | bulk |
     |    |     |    |length |          |length |           |         |     |        |      |
     +----+-----+----+-------+----------+-------+-----------+---------+-----+--------+------+

The checksums are linked, so that bytes which are valid in themselves but in the wrong place do not
pass:

- `chain` of a group is the `crc` of the previous group (0 for group 1); a segment header repeats
  the chain of its first group, so that every segment can be read on its own and the order of two
  neighbours can be checked.
- `crc` of a group header starts from the segment's random `salt`: a segment inside a message body
  never passes as one.
- `crc` of a record header starts from the `crc` of the previous record in the group, the first
  from the group's.
- a record and its bulk have separate checksums, so that damage to one message's bytes is
  distinguished from damage to the structure, and a reader can step over it.

`first sequence` is the sequence of the next core record, also when the group holds none.
Relocations (a block copied forward out of a mostly dead segment) are the journal's own records:
they take no sequence.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ackq_broker.journal.files.checksum import crc32

# Version of a data directory. 2: it may have segments that were written over dead ones.
FORMAT_VERSION: Final = 2
# Version of a segment: its last group is followed by zeros, or by leftovers of a dead segment.
_CLEAN: Final = 1
_REUSED: Final = 2

SEGMENT_MAGIC: Final = b"ackqseg\n"
GROUP_MAGIC: Final = b"\xacGrp"

_SEGMENT: Final = struct.Struct("<8sIIQQQI16s")
_GROUP: Final = struct.Struct("<4sIQQQI")
_RECORD: Final = struct.Struct("<BBHIQIII")
_CRC: Final = struct.Struct("<I")

SEGMENT_HEADER_BYTES: Final = _SEGMENT.size + _CRC.size
GROUP_HEADER_BYTES: Final = _GROUP.size + _CRC.size
RECORD_HEADER_BYTES: Final = _RECORD.size + _CRC.size

# Room after every group of records: for the empty group that closes the log, and for a header that
# is never written. A segment without this room was cut when the next one existed.
END_ROOM_BYTES: Final = 2 * GROUP_HEADER_BYTES

# Bodies below this are joined into one buffer: an iovec entry costs more than copying that little.
_JOIN_BELOW_BYTES: Final = 16 * 1024

# The diagrams above.
assert (SEGMENT_HEADER_BYTES, GROUP_HEADER_BYTES, RECORD_HEADER_BYTES) == (64, 40, 32)

Bulk = Sequence[bytes | memoryview]


# Kinds of records; 0 is left out so that zeros are never a record. Plain integers: converting each
# record's kind to an enum halved the rate of recovery.
CORE: Final = 1
RELOCATION: Final = 2

# Flags of records. HAS_BLOCK: the block id is valid and the bulk (it may be empty) is that block.
# LOST: set by repair; the bulk is kept as found and does not match its checksum, which a read
# reports.
HAS_BLOCK: Final = 1
LOST: Final = 2


class FormatError(ValueError):
    """Bytes that do not follow the format; the text is the reason."""


class Entry(NamedTuple):
    """A record to append, with its block, if any, as buffers to be joined."""

    record: bytes
    block_id: int | None = None
    bulk: Bulk = ()


class Position(NamedTuple):
    """A position in the log: the end of a group, where the next one begins.

    Attributes:
        segment: Segment number, from 1.
        offset: Byte in the segment.
        group: Number of the last group before the position, 0 for none.
        chain: `crc` of that group's header, 0 for none.
        sequence: Sequence of the last core record before the position.
    """

    segment: int
    offset: int
    group: int
    chain: int
    sequence: int


class SegmentHeader(NamedTuple):
    """Header of a segment, as in the diagram.

    `history_id`, 16 bytes, is the journal's at the creation of the segment. `reused` is whether it
    was written over a dead segment, whose bytes may follow its groups.
    """

    number: int
    salt: int
    first_sequence: int
    first_group: int
    chain: int
    history_id: bytes
    reused: bool = False

    @property
    def position(self) -> Position:
        """Position at which the segment's first group begins."""
        return Position(
            self.number,
            SEGMENT_HEADER_BYTES,
            self.first_group - 1,
            self.chain,
            self.first_sequence - 1,
        )

    def pack(self) -> bytes:
        """The header's 64 bytes."""
        head = _SEGMENT.pack(
            SEGMENT_MAGIC,
            _REUSED if self.reused else _CLEAN,
            self.salt,
            self.number,
            self.first_sequence,
            self.first_group,
            self.chain,
            self.history_id,
        )
        return head + _CRC.pack(crc32(head))

    @classmethod
    def unpack(cls, data: bytes | bytearray) -> SegmentHeader:
        """Parses a segment header of 64 bytes; raises `FormatError`."""
        if len(data) < SEGMENT_HEADER_BYTES:
            raise FormatError("the segment header is short")
        magic, version, salt, number, sequence, group, chain, history_id = _SEGMENT.unpack_from(
            data
        )
        if magic != SEGMENT_MAGIC:
            raise FormatError("the segment magic is wrong")
        if crc32(data[: _SEGMENT.size]) != _CRC.unpack_from(data, _SEGMENT.size)[0]:
            raise FormatError("the checksum of the segment header is wrong")
        if version not in (_CLEAN, _REUSED):
            raise FormatError(f"the segment has format version {version}")
        return cls(number, salt, sequence, group, chain, history_id, version == _REUSED)


class GroupHeader(NamedTuple):
    """Header of a group, as in the diagram; `crc` is its own, and the chain of the next group."""

    records: int
    number: int
    first_sequence: int
    length: int
    chain: int
    crc: int

    @classmethod
    def unpack(cls, data: bytes | memoryview, salt: int) -> GroupHeader:
        """Parses a group header of 40 bytes; raises `FormatError`."""
        if len(data) < GROUP_HEADER_BYTES:
            raise FormatError("the group header is short")
        magic, records, number, sequence, length, chain = _GROUP.unpack_from(data)
        if magic != GROUP_MAGIC:
            raise FormatError("the group magic is wrong")
        crc = crc32(data[: _GROUP.size], salt)
        if crc != _CRC.unpack_from(data, _GROUP.size)[0]:
            raise FormatError("the checksum of the group header is wrong")
        return cls(records, number, sequence, length, chain, crc)


class RecordHeader(NamedTuple):
    """Header of a record, as in the diagram; the next record's `crc` starts from its `crc`."""

    kind: int
    flags: int
    length: int
    block_id: int
    bulk_length: int
    record_crc: int
    bulk_crc: int
    crc: int

    @classmethod
    def unpack(cls, data: bytes | memoryview, offset: int, seed: int) -> RecordHeader:
        """Parses the record header of 32 bytes at `offset`; raises `FormatError`."""
        if len(data) < offset + RECORD_HEADER_BYTES:
            raise FormatError("the record header is short")
        fields = _RECORD.unpack_from(data, offset)
        kind, flags, zero, length, block_id, bulk_length, record_crc, bulk_crc = fields
        end = offset + _RECORD.size
        crc = crc32(data[offset:end], seed)
        if crc != _CRC.unpack_from(data, end)[0]:
            raise FormatError("the checksum of the record header is wrong")
        if kind not in (CORE, RELOCATION) or zero or flags & ~(HAS_BLOCK | LOST):
            raise FormatError(f"the record has the unknown kind {kind} or flags {flags}")
        return cls(kind, flags, length, block_id, bulk_length, record_crc, bulk_crc, crc)

    def pack(self, seed: int) -> tuple[bytes, int]:
        """The header's 32 bytes, and their checksum, which starts from `seed`."""
        head = _RECORD.pack(self.kind, self.flags, 0, *self[2:7])
        crc = crc32(head, seed)
        return head + _CRC.pack(crc), crc


class Placed(NamedTuple):
    """Place of a block in a group: `offset` is relative to the start of the group's header."""

    kind: int
    block_id: int
    offset: int
    length: int
    crc: int


class EncodedGroup(NamedTuple):
    """A group as buffers to write in order, its header's `crc`, and the places of its blocks."""

    buffers: list[bytes | memoryview]
    crc: int
    placed: list[Placed]


def bulk_bytes(bulk: Bulk) -> int:
    """The length of a bulk in bytes."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in bulk)


def entry_bytes(entry: Entry) -> int:
    """The size of an entry on disk in bytes, including its header."""
    return RECORD_HEADER_BYTES + len(entry.record) + bulk_bytes(entry.bulk)


def encode_group(
    position: Position, salt: int, records: Sequence[tuple[int, Entry]]
) -> EncodedGroup:
    """Encodes the group that follows `position`, from (kind, entry) pairs.

    Without records it is the empty group that closes the log.
    """
    length = sum(entry_bytes(entry) for _, entry in records)
    head = _GROUP.pack(
        GROUP_MAGIC,
        len(records),
        position.group + 1,
        position.sequence + 1,
        length,
        position.chain,
    )
    group_crc = crc = crc32(head, salt)
    joined = _Joiner()
    joined.add(head + _CRC.pack(group_crc))
    placed: list[Placed] = []
    offset = GROUP_HEADER_BYTES
    for kind, entry in records:
        header = _record_header(kind, entry)
        packed, crc = header.pack(crc)
        joined.add(packed)
        joined.add(entry.record)
        for part in entry.bulk:
            joined.add(part)
        offset += RECORD_HEADER_BYTES + header.length
        if entry.block_id is not None:
            placed.append(Placed(kind, entry.block_id, offset, header.bulk_length, header.bulk_crc))
        offset += header.bulk_length
    assert offset == GROUP_HEADER_BYTES + length
    return EncodedGroup(joined.finish(), group_crc, placed)


def _record_header(kind: int, entry: Entry) -> RecordHeader:
    bulk_crc = 0
    for part in entry.bulk:
        bulk_crc = crc32(part, bulk_crc)
    return RecordHeader(
        kind,
        0 if entry.block_id is None else HAS_BLOCK,
        len(entry.record),
        entry.block_id or 0,
        bulk_bytes(entry.bulk),
        crc32(entry.record),
        bulk_crc,
        crc=0,
    )


class _Joiner:
    """Collects buffers for one vectored write: small ones joined, large ones never copied."""

    def __init__(self) -> None:
        self._buffers: list[bytes | memoryview] = []
        self._small: list[bytes | memoryview] = []

    def add(self, data: bytes | memoryview) -> None:
        if len(data) < _JOIN_BELOW_BYTES:
            self._small.append(data)
            return
        self._flush()
        self._buffers.append(data)

    def finish(self) -> list[bytes | memoryview]:
        self._flush()
        return self._buffers

    def _flush(self) -> None:
        if self._small:
            self._buffers.append(b"".join(self._small))
            self._small = []
