"""Verify, repair and dump, on every kind of damage."""

import pytest

from ackq.errors import DamagedError, UnsupportedError
from ackq_broker.journal import dump, repair, verify
from ackq_broker.journal.files.directory import segment_name, snapshot_name
from ackq_broker.journal.files.format import GROUP_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.unit.journal.running_journal import (
    Running,
    block,
    block_bytes,
    flip,
    history_id,
    kill,
    opened,
    recovered,
    segment_files,
)


@pytest.fixture
def filled(data):
    """Blocks 1 to 20, a group and a record each, over several segments."""
    with opened(data) as running:
        running.append_blocks(1, 20)
    assert len(segment_files(data)) == 4
    return data


def place_of(directory, number):
    """The segment file of a block, and the place of its bytes."""
    for path in segment_files(directory):
        place = path.read_bytes().find(block_bytes(number))
        if place >= 0:
            return path, place
    raise AssertionError(number)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def repaired(directory, **options):
    done = repair(directory, segment_bytes=4096, **options)
    assert verify(directory).opens
    return done


def test_a_sound_journal(filled):
    """Verify finds no flaw, and repair changes nothing, history included."""
    before = contents(filled)

    report = verify(filled)
    done = repair(filled)

    assert (report.opens, report.flaws, report.torn_bytes, report.lost_blocks) == (True, (), 0, ())
    assert report.end.sequence == 20
    assert report.groups == 21
    assert (done.changed, done.kept_in) == (False, None)
    assert contents(filled) == before


def test_a_torn_tail_is_no_damage(filled):
    """Verify tells the torn tail of a crash from damage."""
    running = Running(filled)
    running.append(block(21))
    end = running.journal._group_commit._log.position.offset
    kill(running)
    path = segment_files(filled)[-1]
    content = path.read_bytes()
    path.write_bytes(content[: end - 1].ljust(len(content), b"\0"))

    report = verify(filled)

    assert (report.opens, report.end.sequence) == (True, 20)
    assert report.torn_bytes == GROUP_HEADER_BYTES + RECORD_HEADER_BYTES + 18 + 600 - 1
    assert recovered(filled).cut_bytes == report.torn_bytes


def test_a_damaged_block_is_marked_lost(filled):
    """Repair keeps the record of an unreadable block: only its messages are lost, with an error."""
    path, place = place_of(filled, 3)
    flip(path, place + 10)
    before = history_id(filled)
    report = verify(filled)
    assert [(flaw.path, flaw.offset, flaw.block_id) for flaw in report.flaws] == [(path, place, 3)]
    with pytest.raises(DamagedError, match="block 3 of group 3: its checksum is wrong"):
        recovered(filled)

    done = repaired(filled)

    assert (done.changed, done.lost_blocks, done.cut, done.end.sequence) == (True, (3,), None, 20)
    assert done.history_id == history_id(filled) != before
    for records in (20, 0):  # the second time, after a snapshot
        assert verify(filled).lost_blocks == (3,)
        with opened(filled) as running:
            assert len(running.records) == records
            with pytest.raises(DamagedError, match="block 3 is damaged on the disk"):
                running.journal.read_block(3)
            running.check_blocks({*range(1, 21)} - {3})
            running.snapshot()


def test_a_damaged_copy_of_a_relocated_block(data):
    """Q7: its message is saved, as the old place can be read until the next snapshot."""
    with opened(data) as running:
        running.append_blocks(1, 11)
        running.journal.free_blocks(set(range(1, 12)) - {3})
        running.snapshot()
    path = segment_files(data)[-1]
    place = path.read_bytes().find(block_bytes(3))
    flip(path, place + 10)
    report = verify(data)
    assert ([flaw.block_id for flaw in report.flaws], report.unsaved_blocks) == ([3], ())
    assert repaired(data).lost_blocks == ()
    for _ in range(2):  # the second time, after a snapshot
        with opened(data) as running:
            assert running.journal.read_block(3) == block_bytes(3)
            running.snapshot()


def test_a_damaged_record_cuts_the_log(filled):
    """The state is a replay: records after an unreadable one are given up, and kept on request.

    Another repair does not touch the files that the first kept.
    """
    for number, folder in ((7, "damaged-1"), (5, "damaged-2"), (3, None)):
        path, place = place_of(filled, number)
        flip(path, place - 3)
        before = contents(filled)
        (flaw,) = verify(filled).flaws
        assert flaw.path == path

        done = repaired(filled, keep_damaged=folder is not None)

        assert (done.end.sequence, done.cut) == (number - 1, flaw)
        assert done.kept_in == (folder and filled / folder)
        if folder:
            kept = contents(done.kept_in)
            assert kept.items() <= before.items()
            assert sorted(kept) == [name for name in sorted(before) if path.name <= name]
    assert sorted(path.name for path in filled.glob("damaged-*")) == ["damaged-1", "damaged-2"]
    with opened(filled) as running:
        assert len(running.records) == 2
        assert running.append(block(30)) == 3
        running.check_blocks([2, 30])


def test_damage_of_both_kinds(filled):
    """A lost block before the cut, in the same segment, is marked as well."""
    path, place = place_of(filled, 1)
    flip(path, place)
    other, cut = place_of(filled, 2)
    assert other == path
    flip(path, cut - 3)

    done = repaired(filled)

    assert (done.lost_blocks, done.end.sequence) == ((1,), 1)
    assert contents(done.kept_in)[path.name][place] != block_bytes(1)[0], "kept as it was"


@pytest.fixture
def behind_snapshot(data):
    """Old segments that a snapshot covers, with live blocks 1 to 20, and two records after it."""
    with opened(data) as running:
        running.append_blocks(1, 20)
        running.snapshot()
        running.append(block(21))
        running.append(block(22))
    return data


def test_lost_blocks_are_told_until_they_are_forgotten(behind_snapshot):
    """Q8: each start reports lost blocks until their messages are dropped, once and for all.

    Verify reads every live block, also those that a start does not; the journal still opens.
    """
    flip(*place_of(behind_snapshot, 2))
    report = verify(behind_snapshot)
    assert (report.opens, report.lost_blocks) == (True, (2,))
    assert len(recovered(behind_snapshot).records) == 2
    flip(*place_of(behind_snapshot, 21))
    before = history_id(behind_snapshot)

    done = repaired(behind_snapshot)

    assert (done.changed, done.lost_blocks) == (True, (2, 21))
    assert history_id(behind_snapshot) == done.history_id != before
    again = repaired(behind_snapshot)
    assert (again.changed, again.lost_blocks) == (False, (2, 21))
    for _ in range(2):
        found = recovered(behind_snapshot)
        assert (found.lost_blocks, found.history_cause) == ((2, 21), "repaired")

    with opened(behind_snapshot) as running:
        running.journal.free_blocks([2, 21])
        running.snapshot()
        running.journal.forget_lost()

    assert recovered(behind_snapshot).lost_blocks == ()
    assert verify(behind_snapshot).lost_blocks == ()
    assert not repaired(behind_snapshot).changed


def test_a_segment_missing_behind_a_snapshot(behind_snapshot):
    """Live blocks in a missing segment are lost; repair makes the journal open without them."""
    gone = segment_files(behind_snapshot)[0]
    gone.unlink()
    with pytest.raises(DamagedError, match=f"{gone.name} byte 0: the file is missing"):
        recovered(behind_snapshot)
    assert [flaw.path for flaw in verify(behind_snapshot).flaws] == [gone]

    done = repaired(behind_snapshot)

    assert (done.cut, done.end.sequence) == (None, 22)
    lost = verify(behind_snapshot).lost_blocks
    assert lost[0] == 1
    with opened(behind_snapshot) as running:
        running.check_blocks({*range(1, 23)} - {*lost})
        for number in lost:
            with pytest.raises(DamagedError):
                running.journal.read_block(number)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, _: path.unlink(),
        lambda path, _: flip(path, 20),
        lambda path, first: path.write_bytes(first.read_bytes()),
        lambda path, _: path.write_bytes(path.read_bytes()[:100]),
    ],
    ids=["missing", "header", "another's header", "short"],
)
def test_the_segment_of_the_snapshot_is_damaged(behind_snapshot, damage):
    """The state of a snapshot is kept even when no record after it can be read."""
    (line,) = [line for line in dump(behind_snapshot) if line.startswith("snapshot")]
    path = behind_snapshot / segment_name(int(line.split("segment ")[1].split()[0]))
    first, *_, last = segment_files(behind_snapshot)
    if last > path:
        last.unlink()
    damage(path, first)
    assert not verify(behind_snapshot).opens

    done = repaired(behind_snapshot)

    assert done.end.sequence == 20
    with opened(behind_snapshot) as running:
        assert (running.recovery.snapshot_sequence, running.records) == (20, [])
        assert running.append(block(40)) == 21
    with opened(behind_snapshot) as running:
        running.check_blocks([40])


def test_a_damaged_snapshot_cannot_be_repaired(behind_snapshot):
    """The records that a snapshot replaced were deleted: repair refuses to start from nothing."""
    path = behind_snapshot / snapshot_name(20)
    flip(path, 100)
    before = contents(behind_snapshot)

    report = verify(behind_snapshot)
    with pytest.raises(UnsupportedError, match=f"{path} is damaged.*restore the data directory"):
        repair(behind_snapshot)

    assert [flaw.path for flaw in report.flaws] == [path]
    assert contents(behind_snapshot) == before


def test_a_missing_format_is_written_anew(filled):
    """Repair gives a directory without FORMAT a new history."""
    (filled / "FORMAT").unlink()

    done = repaired(filled)

    assert (done.changed, done.cut, done.lost_blocks) == (True, None, ())
    found = recovered(filled)
    assert (len(found.records), found.history_id) == (20, done.history_id)


def test_a_dump_has_a_line_for_everything(behind_snapshot):
    """Every file, group and record is a line, damage too, in a directory that is in use."""
    path, place = place_of(behind_snapshot, 2)
    flip(path, place)
    with opened(behind_snapshot):
        lines = list(dump(behind_snapshot))

    assert lines[0].startswith('FORMAT {"format": 2, "history_id": "')
    assert lines[1].startswith(f"{snapshot_name(20)} sequence 20, continues at segment ")
    assert len([line for line in lines if line.startswith("journal-")]) == len(
        segment_files(behind_snapshot)
    )
    assert len([line for line in lines if " record " in line]) == 22
    (damaged,) = [line for line in lines if "damaged" in line]
    assert (
        damaged.split() == f"{place - 49} record 2: 17 bytes, block 2 of 600 bytes, damaged".split()
    )


def test_a_dump_beside_a_busy_broker(data):
    """I6: a segment that was the last one when the dump began is not taken for a shortened one."""
    with opened(data) as running:
        running.append_blocks(1, 20)
        lines = dump(data)
        begun = next(line for line in lines if line.startswith("journal"))
        running.append_blocks(21, 60)
        rest = list(lines)
    assert not [line for line in (begun, *rest) if "damage" in line]
    assert any("block 60" in line for line in rest)


def test_a_dump_of_damage(filled):
    """A dump names the damage of an unreadable segment and continues with the next one."""
    path, place = place_of(filled, 7)
    flip(path, place - 3)
    flip(segment_files(filled)[-1], 20)
    (filled / "FORMAT").unlink()
    (filled / snapshot_name(5)).write_bytes(b"short")

    lines = list(dump(filled))

    assert lines[0] == "FORMAT is missing"
    assert "is damaged: the header is short" in lines[1]
    assert len([line for line in lines if " damage: record 0 of group 7" in line]) == 1
    assert lines[-1].endswith("the checksum of the segment header is wrong")
