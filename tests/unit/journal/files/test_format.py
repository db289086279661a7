"""The bytes on the disk, pinned by golden files: a change makes every data directory unreadable."""

import struct
import zlib
from pathlib import Path

import pytest

from ackq_broker.journal.files.block_table import BlockTable, Location
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import (
    CORE,
    FORMAT_VERSION,
    GROUP_HEADER_BYTES,
    RELOCATION,
    SEGMENT_HEADER_BYTES,
    Entry,
    FormatError,
    GroupHeader,
    Position,
    RecordHeader,
    SegmentHeader,
    encode_group,
)
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.read.scan import SegmentFile, read_groups

GOLDEN = Path(__file__).with_name("golden")
HISTORY = bytes(range(16))
HEADER = SegmentHeader(
    number=3, salt=0x5A17, first_sequence=42, first_group=7, chain=0xC0FFEE, history_id=HISTORY
)
RECORDS = [
    (CORE, Entry(b"a record")),
    (CORE, Entry(b"with a block", 258, (b"first half, ", memoryview(b"second half")))),
    (RELOCATION, Entry(b"", 17, (b"moved",))),
    (CORE, Entry(b"an empty block", 259)),
]


def segment():
    """A segment with a group of every kind of record, and the empty group that closes it."""
    group = encode_group(HEADER.position, HEADER.salt, RECORDS)
    content = HEADER.pack() + b"".join(group.buffers)
    end = Position(3, len(content), 7, group.crc, 44)
    return content + b"".join(encode_group(end, HEADER.salt, []).buffers)


def golden(name):
    """The bytes of a golden file: hexadecimal, blanks are ignored, # begins a comment."""
    lines = (GOLDEN / name).read_text(encoding="ascii").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def test_a_segment_is_what_it_always_was():
    """The format of segments stays the same, byte for byte."""
    assert segment() == golden("segment.hex")


def test_a_snapshot_is_what_it_always_was(tmp_path):
    """The format of snapshots stays the same, byte for byte."""
    table = BlockTable()
    table.add(258, Location(segment=3, offset=164, length=23, crc=0xABCDEF))
    table.add(70_000, Location(segment=2, offset=1 << 33, length=5, crc=7))
    position = Position(segment=3, offset=400, group=8, chain=0xBEEF, sequence=44)
    snapshot = snapshots.Snapshot(position, table, (b"the ", b"state"), HISTORY)
    snapshots.write(tmp_path, snapshot, Disk(sync=False))
    snapshots.publish(tmp_path, snapshot, Disk(sync=False))

    path = tmp_path / "snapshot-00000000000000000044.snap"
    assert path.read_bytes() == golden("snapshot.hex")
    found = snapshots.read(path)
    assert (found.position, found.history_id) == (position, HISTORY)
    assert b"".join(found.state) == b"the state"
    assert [found.table.find(n) for n in (258, 70_000)] == [table.find(n) for n in (258, 70_000)]


def test_the_golden_segment_is_read(tmp_path):
    """The reader finds the header, groups and records of the golden segment."""
    content = golden("segment.hex")
    path = tmp_path / "journal-00000000000000000003.seg"
    path.write_bytes(content)

    def bulk_of(record):
        return content[record.bulk_offset :][: record.header.bulk_length]

    with SegmentFile(path) as file:
        header = file.header()
        groups = list(read_groups(file, header.position, last=True))

    assert header == HEADER
    assert [group.header.number for group in groups] == [7, 8]
    assert [
        (record.header.kind, record.payload, record.block_id, bulk_of(record))
        for record in groups[0].records
    ] == [
        (CORE, b"a record", None, b""),
        (CORE, b"with a block", 258, b"first half, second half"),
        (RELOCATION, b"", 17, b"moved"),
        (CORE, b"an empty block", 259, b""),
    ]
    assert groups[1].records == []
    assert groups[1].end == Position(3, len(segment()), 8, groups[1].header.crc, 44)


def test_a_group_of_another_place_does_not_pass():
    """Linked checksums: a valid group or record of another place is refused.

    A group under another salt, and a record of another group.
    """
    group = b"".join(encode_group(HEADER.position, HEADER.salt, RECORDS).buffers)
    later = HEADER.position._replace(group=20)
    other = b"".join(encode_group(later, HEADER.salt, RECORDS).buffers)

    with pytest.raises(FormatError, match="checksum of the group header"):
        GroupHeader.unpack(group, HEADER.salt + 1)
    seed = GroupHeader.unpack(group, HEADER.salt).crc
    RecordHeader.unpack(group, GROUP_HEADER_BYTES, seed)
    with pytest.raises(FormatError, match="checksum of the record header"):
        RecordHeader.unpack(other, GROUP_HEADER_BYTES, seed)


def test_a_newer_segment_is_refused():
    """A segment of another format version is refused."""
    packed = bytearray(HEADER.pack())
    struct.pack_into("<I", packed, 8, FORMAT_VERSION + 1)
    struct.pack_into("<I", packed, 60, zlib.crc32(packed[:60]))

    with pytest.raises(FormatError, match=f"format version {FORMAT_VERSION + 1}"):
        SegmentHeader.unpack(bytes(packed))


@pytest.mark.parametrize("length", [0, 1, SEGMENT_HEADER_BYTES - 1])
def test_short_headers_are_refused(length):
    """A header that is cut short is refused."""
    content = segment()
    with pytest.raises(FormatError, match="short"):
        SegmentHeader.unpack(content[:length])
    with pytest.raises(FormatError, match="short"):
        GroupHeader.unpack(content[64:][: min(length, GROUP_HEADER_BYTES - 1)], HEADER.salt)
    with pytest.raises(FormatError, match="short"):
        RecordHeader.unpack(content[104:][: min(length, 31)], 0, 0)


def test_an_unknown_kind_of_record_is_refused():
    """A record of an unknown kind is damage, and is not skipped."""
    good = RecordHeader(CORE, 0, 1, 0, 0, 0, 0, 0)
    for bad in (good._replace(kind=0), good._replace(kind=3), good._replace(flags=4)):
        packed, _ = bad.pack(1)
        with pytest.raises(FormatError, match="unknown kind"):
            RecordHeader.unpack(packed, 0, 1)
