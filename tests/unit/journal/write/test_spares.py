"""Spares: dead segments that later segments are written over."""

import pytest

from ackq.errors import DamagedError
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import GROUP_MAGIC, SegmentHeader
from ackq_broker.journal.write.spares import Spares
from tests.unit.journal.running_journal import (
    block_bytes,
    flip,
    kill,
    opened,
    recovered,
    segment_files,
)

SEGMENT_BYTES = 4096


class SmallDisk(Disk):
    """A disk whose free bytes a test sets."""

    free = 1 << 60

    def free_bytes(self, directory):  # noqa: ARG002 - there is one
        return self.free


def spare_files(directory):
    return sorted(path.name for path in directory.glob("journal-*.new"))


def reused(path):
    return SegmentHeader.unpack(path.read_bytes()).reused


def fill_and_free(running):
    """Fills segments and frees all but the last block of them."""
    running.append_blocks(1, 20)
    running.journal.free_blocks(range(1, 20))
    running.snapshot()


def write_over(running):
    """Begins the next segments over dead ones."""
    fill_and_free(running)
    running.append_blocks(21, 30)


def test_a_new_segment_is_written_over_a_dead_one(data):
    """I6, Q7: old records of the dead segment are not recovered, and new ones are."""
    with opened(data, disk=SmallDisk(sync=False)) as running:
        fill_and_free(running)
        assert len(spare_files(data)) == 2
        running.append_blocks(21, 30)
        assert spare_files(data) == []
        assert sum(map(reused, segment_files(data))) == 2
        assert running.journal.read_block(21) == block_bytes(21)
    assert [record for _, record in recovered(data).records] == [
        b"record of block %d" % number for number in range(21, 31)
    ]


def test_a_start_and_a_clean_end_leave_no_spare(data):
    """I6: neither a stopped broker nor one that was killed keeps spares."""
    with opened(data, disk=SmallDisk(sync=False)) as running:
        fill_and_free(running)
        kill(running)
        (data / "journal-00000000000000000001.seg.new").touch()
    with opened(data, disk=SmallDisk(sync=False)) as running:
        assert spare_files(data) == []
        running.append_blocks(31, 50)
        running.journal.free_blocks(range(1, 50))
        running.snapshot()
        assert spare_files(data)
    assert spare_files(data) == []


@pytest.mark.parametrize("cut", ["header", "body", "clean"])
def test_a_torn_group_is_told_from_what_was_there_before(data, cut):
    """Q7: a crash in a group leaves old bytes after it; all earlier groups are recovered.

    A damaged group that another one follows was synced, whatever bytes are after that.
    """
    with opened(data, disk=SmallDisk(sync=False)) as running:
        write_over(running)
        kill(running)
    last = segment_files(data)[-1]
    assert reused(last)
    content = last.read_bytes()
    group = content.rfind(
        GROUP_MAGIC + b"\x01", 0, running.journal._group_commit._log.position.offset
    )
    if cut != "clean":
        at = group if cut == "header" else group + 100
        last.write_bytes(content[:at] + b"?" * 512 + content[at + 512 :])
    assert len(recovered(data).records) == (10 if cut == "clean" else 9)
    last.write_bytes(content)
    flip(last, 70)
    with pytest.raises(DamagedError, match=last.name):
        recovered(data)


def test_damage_before_a_later_group_is_damage(data):
    """Q7: a group that another one follows was synced, whatever bytes are after that."""
    with opened(data, disk=SmallDisk(sync=False)) as running:
        write_over(running)
        running.append(b"one more")
        kill(running)
    last = segment_files(data)[-1]
    assert reused(last)
    flip(last, 70)
    with pytest.raises(DamagedError, match=last.name):
        recovered(data)


def test_the_reserve_is_left_alone(tmp_path):
    """I6, P8: no spare is kept within the disk reserve plus two segments."""
    disk = SmallDisk()
    spares = Spares(tmp_path, disk, SEGMENT_BYTES)
    spares.reserve_bytes = 10 * SEGMENT_BYTES
    path = tmp_path / "journal-1.seg"
    for free, kept in ((12 * SEGMENT_BYTES - 1, 0), (12 * SEGMENT_BYTES, 1)):
        path.write_bytes(b"dead")
        disk.free = free
        spares.keep(path)
        assert len(spare_files(tmp_path)) == kept
    disk.free -= 1
    spares.trim()
    assert spare_files(tmp_path) == []


@pytest.mark.parametrize("free", [0, 1 << 60])
def test_room_is_given_back_when_it_is_not_used_or_short(tmp_path, free):
    """I6, P8: after half a minute without a new segment, and at once when the disk fills up."""
    disk, now = SmallDisk(), [0.0]
    spares = Spares(tmp_path, disk, SEGMENT_BYTES, lambda: now[0])

    def kept():
        spares.trim()
        return len(spare_files(tmp_path))

    for number in (1, 2, 3):
        path = tmp_path / f"journal-{number}.seg"
        path.write_bytes(b"dead")
        spares.keep(path)
        assert not path.exists()
    assert kept() == 2, "two are enough"
    now[0] = 29.0
    assert kept() == 2
    disk.free = free
    now[0] = 31.0 if free else 29.0
    assert kept() == 0


def test_nothing_is_kept_of_an_unusual_size_or_on_a_full_disk(tmp_path):
    """I6: a segment of one large group is deleted."""
    disk = SmallDisk()
    spares = Spares(tmp_path, disk, SEGMENT_BYTES)
    large, small = tmp_path / "journal-1.seg", tmp_path / "journal-2.seg"
    large.write_bytes(bytes(SEGMENT_BYTES + 1))
    small.write_bytes(b"dead")
    spares.keep(large)
    disk.free = 0
    spares.keep(small)
    assert list(tmp_path.iterdir()) == []
    assert spares.take(tmp_path / "journal-3.seg.new") is None
