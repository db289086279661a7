"""Opening after a clean end, a torn tail and damage."""

import shutil
import tracemalloc

import pytest

from ackq.errors import BlockNotFoundError, DamagedError
from ackq_broker.journal import Entry
from ackq_broker.journal.files.block_table import as_ids
from ackq_broker.journal.files.format import GROUP_HEADER_BYTES, SEGMENT_HEADER_BYTES
from tests.unit.journal.running_journal import (
    Running,
    block,
    flip,
    kill,
    opened,
    recovered,
    segment_files,
)


def crashed(directory, *groups):
    """Kills a process after the last of the groups; returns its segment and the groups' starts."""
    running = Running(directory)
    log = running.journal._group_commit._log
    starts = []
    for group in groups:
        starts.append(log.position.offset)
        running.append(*group)
    starts.append(log.position.offset)
    kill(running)
    return segment_files(directory)[0], starts


def copy_with(directory, target, path, content):
    shutil.copytree(directory, target, dirs_exist_ok=True)
    (target / path.name).write_bytes(content)
    return target


def test_a_new_journal_is_empty(data):
    """A directory without a journal gets one, and recovery reports that."""
    first = recovered(data)

    assert first[:5] == (None, 0, [], True, 0)
    assert recovered(data) == first._replace(created=False)


def test_records_come_back_in_order(data):
    """Q7: every synced record is recovered with its sequence; a block of no bytes is a block."""
    with opened(data) as running:
        assert running.append(b"one", b"two") == 2
        assert running.append(Entry(b"empty", 7, ())) == running.journal.synced == 3

    with opened(data) as running:
        assert running.records == [(1, b"one"), (2, b"two"), (3, b"empty")]
        assert (running.journal.sequence, running.journal.synced) == (3, 3)
        assert running.journal.read_block(7) == b""
        assert running.append(b"four") == 4


def test_a_torn_tail_is_cut_at_every_byte(data, tmp_path):
    """P4: a last group that is partly there, or has a wrong bit, may not have been synced."""
    path, (_, second, end) = crashed(data, [b"first"], [block(1, 90), b"tail"])
    content = path.read_bytes()

    for at in range(second, end):
        short, flipped = content[:at].ljust(4096, b"\0"), bytearray(content)
        flipped[at] ^= 1 << at % 8
        for torn, cut in (short, len(short[second:].rstrip(b"\0"))), (flipped, end - second):
            found = recovered(copy_with(data, tmp_path / "torn", path, torn))
            assert (found.records, found.cut_bytes) == ([(1, b"first")], cut), at


def test_lost_sectors_in_the_last_group_cut_it(data, tmp_path):
    """P4: sectors are written in any order, so later ones without earlier ones are a torn tail."""
    path, (_, second, end) = crashed(data, [b"first"], [block(1, 2000)])
    content = path.read_bytes()

    for sector in range(second // 512, end // 512 + 1):
        start = max(second, sector * 512)
        stop = min(end, sector * 512 + 512)
        lost = content[:start] + bytes(stop - start) + content[stop:]
        target = copy_with(data, tmp_path / "lost", path, lost)
        assert recovered(target).records == [(1, b"first")], sector


def test_a_cut_tail_is_gone_for_good(data):
    """After a torn tail was cut, its sequence numbers and bytes are used for new records."""
    path, (_, _, end) = crashed(data, [b"first"], [b"second, to be torn"])
    path.write_bytes(path.read_bytes()[: end - 1].ljust(4096, b"\0"))

    with opened(data) as running:
        assert running.append(b"other") == 2

    assert recovered(data).records == [(1, b"first"), (2, b"other")]


def test_every_flipped_bit_in_an_earlier_group_is_refused(data, tmp_path):
    """Q7: a group with a later one was synced, so it is never given up silently."""
    path, (first, second, _) = crashed(data, [block(1, 90), b"more"], [b"second"])
    content = bytearray(path.read_bytes())

    for offset in range(first, second):
        flipped = content.copy()
        flipped[offset] ^= 1 << offset % 8
        target = copy_with(data, tmp_path / "flip", path, flipped)
        with pytest.raises(DamagedError) as caught:
            recovered(target)
        assert caught.value.fields["segment"] == str(target / path.name), offset
        assert first <= int(caught.value.fields["byte"]) <= offset, offset
        assert (target / path.name).read_bytes() == flipped, "nothing is changed"


def test_the_empty_group_turns_the_last_group_into_an_earlier_one(data):
    """A closed log has no torn tail: a wrong bit in its last records is damage."""
    with opened(data) as running:
        running.append(b"only")
    path = segment_files(data)[0]
    flip(path, SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES)

    with pytest.raises(DamagedError, match="checksum of the record header"):
        recovered(data)


def test_a_torn_group_proves_the_one_before_it(data):
    """Group k+1 begins only after group k is synced: any byte of it makes a flaw in k damage."""
    path, (first, second, _) = crashed(data, [b"first"], [b"second"])
    content = bytearray(path.read_bytes()[: second + 3])
    content[first + GROUP_HEADER_BYTES + 35] ^= 1
    path.write_bytes(content)

    with pytest.raises(DamagedError):
        recovered(data)


def test_a_journal_inside_a_message_is_only_a_message(data):
    """A torn tail that contains a copy of its own segment is cut like any other."""
    path, (_, start) = crashed(data, [b"first"])
    running = Running(data)
    running.append(Entry(b"copy", 1, (path.read_bytes()[:start],)))
    kill(running)
    content = path.read_bytes()
    # The header of the group that has the copy did not reach the disk.
    path.write_bytes(content[:start] + bytes(GROUP_HEADER_BYTES) + content[start + 40 :])

    assert recovered(data).records == [(1, b"first")]


def test_unfinished_and_transient_files_are_removed(data):
    """Unfinished and transient files of a dead process are ignored and deleted."""
    recovered(data)
    leftovers = [data / "journal-00000000000000000002.seg.new", data / "FORMAT.new"]
    leftovers.append(data / "transient-00000000000000000001.seg")
    for path in leftovers:
        path.write_bytes(b"left over")

    recovered(data)

    assert [path for path in leftovers if path.exists()] == []


def test_start_needs_all_records_applied(data):
    """A service cannot write before it has replayed all records."""
    with opened(data) as running:
        running.append(b"one", b"two")
    expected = pytest.raises(AssertionError, match="before all records were applied")
    with opened(data, start=False) as running, expected:
        running.journal.start()


def test_memory_of_recovery_is_bounded_by_a_group(data):
    """Records are read as they are iterated: 100 groups of 100 kB never need more than a few."""
    with opened(data, segment_bytes=1 << 20) as running:
        for number in range(1, 101):
            running.append(block(number, 100_000))
    tracemalloc.start()
    try:
        recovered(data, segment_bytes=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # 1 MiB for the copy of the last segment, and a group.
    assert peak < 2_000_000


def test_blocks_are_those_of_the_state(data):
    """Q7: a dead block that was still read at a stop is in the snapshot, and no record frees it.

    One that no file has is damage: its messages cannot be delivered, so no broker starts.
    """
    with opened(data) as running:
        running.append_blocks(1, 5)
        running.snapshot()

    with opened(data, start=False) as running:
        told = "1 blocks that no file has, the first of them block 7"
        with pytest.raises(DamagedError, match=told):
            running.journal.keep_blocks(as_ids([2, 4, 7]))
        assert running.journal.keep_blocks(as_ids([2, 4])) == 3
        running.journal.start()
        running.check_blocks([4])
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(5)
        assert list(running.journal.block_lengths(as_ids([1, 2, 3, 4, 99]))) == [0, 600, 0, 600, 0]
