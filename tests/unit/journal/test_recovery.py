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
    block_bytes,
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
    again = recovered(data)

    assert (first.created, first.snapshot, first.snapshot_sequence, first.records) == (
        True,
        None,
        0,
        [],
    )
    assert (again.created, again.records, again.cut_bytes) == (False, [], 0)
    assert again.history_id == first.history_id


def test_records_come_back_in_order(data):
    """Q7: every synced record is recovered with its sequence."""
    with opened(data) as running:
        assert running.append(b"one", b"two") == 2
        assert running.append(b"three") == 3
        assert running.journal.synced == 3

    assert recovered(data).records == [(1, b"one"), (2, b"two"), (3, b"three")]


def test_sequences_go_on_after_a_restart(data):
    """The sequence is the number of core records ever appended."""
    with opened(data) as running:
        running.append(b"one", b"two")
    with opened(data) as running:
        assert (running.journal.sequence, running.journal.synced) == (2, 2)
        assert running.append(b"three") == 3

    assert [sequence for sequence, _ in recovered(data).records] == [1, 2, 3]


def test_blocks_come_back_over_segments(data):
    """Q7: blocks are readable after a restart, whichever segment they are in."""
    with opened(data) as running:
        running.append_blocks(1, 19)
    assert len(segment_files(data)) > 3

    with opened(data) as running:
        found = [running.journal.read_block(number) for number in range(1, 20)]

    assert found == [block_bytes(number) for number in range(1, 20)]


def test_an_empty_block_and_no_block_differ(data):
    """A block of no bytes is a block."""
    with opened(data) as running:
        running.append(Entry(b"none"), Entry(b"empty", 7, ()))
    with opened(data) as running:
        assert running.journal.read_block(7) == b""


def test_a_torn_tail_is_cut_at_every_byte(data, tmp_path):
    """P4: any part of an unsynced last group is cut, and the synced records are recovered."""
    path, (_, second, end) = crashed(data, [b"first"], [block(1, 90), b"tail"])
    content = path.read_bytes()

    for cut in range(second, end):
        target = copy_with(data, tmp_path / "cut", path, content[:cut].ljust(4096, b"\0"))
        found = recovered(target)
        assert found.records == [(1, b"first")], cut
        assert found.cut_bytes == len(content[second:cut].rstrip(b"\0")), cut


def test_a_flipped_bit_in_the_last_group_cuts_it(data, tmp_path):
    """P4: a last group with a wrong bit may not have been synced."""
    path, (_, second, end) = crashed(data, [b"first"], [block(1, 90), b"tail"])
    content = bytearray(path.read_bytes())

    for offset in range(second, end):
        flipped = content.copy()
        flipped[offset] ^= 1 << offset % 8
        target = copy_with(data, tmp_path / "flip", path, flipped)
        found = recovered(target)
        assert (found.records, found.cut_bytes) == ([(1, b"first")], end - second), offset


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


def test_zeros_behind_the_last_group_are_a_clean_end(data):
    """A segment is allocated whole: bytes that were never written read as zeros."""
    path, _ = crashed(data, [b"first"])
    path.write_bytes(path.read_bytes() + bytes(100_000))

    found = recovered(data)

    assert (found.records, found.cut_bytes) == ([(1, b"first")], 0)


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


def test_the_refusal_names_place_and_remedies(data):
    """The error names the file, the byte, and the commands that help."""
    path, (first, _, _) = crashed(data, [b"first"], [b"second"])
    flip(path, first + GROUP_HEADER_BYTES)

    with pytest.raises(DamagedError) as caught:
        recovered(data)

    message = caught.value.message
    assert f"{path} byte {first + GROUP_HEADER_BYTES}" in message
    assert f"ackq-broker verify {data}" in message
    assert f"ackq-broker repair --keep-damaged {data}" in message


def test_a_damaged_segment_that_is_not_the_last_is_refused(data):
    """A segment with a later one has no torn tail, not even in its last group."""
    with opened(data) as running:
        running.append_blocks(1, 9)
    path = segment_files(data)[0]
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(DamagedError, match=path.name):
        recovered(data)


def test_a_segment_cut_between_two_groups_is_refused(data):
    """Segments fit by group number and chain: a missing group is found by that alone."""
    with opened(data) as running:
        running.append(block(1))
        start = running.journal._group_commit._log.position.offset
        running.append_blocks(2, 9)
    path = segment_files(data)[0]
    path.write_bytes(path.read_bytes()[:start])

    with pytest.raises(DamagedError, match="group 1 is the last here, but journal-"):
        recovered(data)


def test_a_missing_segment_is_refused(data):
    """Every segment after the snapshot has to exist."""
    with opened(data) as running:
        running.append_blocks(1, 19)
    path = segment_files(data)[1]
    path.unlink()

    with pytest.raises(DamagedError, match=f"{path.name} byte 0: the file is missing"):
        recovered(data)


def test_a_segment_under_another_name_is_refused(data):
    """A segment's header has its number."""
    with opened(data) as running:
        running.append_blocks(1, 19)
    first, second, *_ = segment_files(data)
    second.write_bytes(first.read_bytes())

    with pytest.raises(DamagedError, match="the header is that of segment 1"):
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


def test_blocks_that_the_state_does_not_have_are_dropped(data):
    """Q7: a dead block that was still read at a stop is in the snapshot, and no record frees it."""
    with opened(data) as running:
        running.append_blocks(1, 5)
        running.snapshot()

    with opened(data, start=False) as running:
        assert running.journal.keep_blocks(as_ids([2, 4])) == 3
        running.journal.start()
        assert running.journal.read_block(4) == block_bytes(4)
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(5)
        assert list(running.journal.block_lengths(as_ids([1, 2, 3, 4, 99]))) == [0, 600, 0, 600, 0]


def test_a_block_that_the_state_has_and_no_file_is_damage(data):
    """Q7: its messages cannot be delivered, so the broker does not start without it."""
    with opened(data) as running:
        running.append_blocks(1, 5)

    running = Running(data, start=False)
    assert len(list(running.recovery.records)) == 5
    with pytest.raises(DamagedError, match="1 blocks that no file has, the first of them block 7"):
        running.journal.keep_blocks(as_ids([4, 7]))
    running.journal.close()
