"""A journal that is shorter than its synced records is refused, however it lost its end (Q7)."""

import json
import shutil

import pytest

from ackq.errors import DamagedError
from ackq_broker.journal import dump, repair, verify
from ackq_broker.journal.files.format import (
    END_ROOM_BYTES,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
)
from tests.unit.journal.running_journal import (
    Running,
    block,
    flip,
    history_id,
    kill,
    opened,
    recovered,
    segment_files,
)


def filled(directory, last=20, *, clean):
    """Appends blocks 1 to `last`, a group each, over several segments; returns where groups end."""
    running = Running(directory)
    ends = []
    for number in range(1, last + 1):
        running.append(block(number))
        ends.append(running.journal._group_commit._log.position[:2])
    if clean:
        running.journal.close()
    else:
        kill(running)
    return ends


def cut(path, size):
    """Leaves `size` bytes of a file."""
    path.write_bytes(path.read_bytes()[:size])


def refused(directory, reason, *, dumped=True):
    """Checks that recovery, verify and dump report the same damage, and repair removes it."""
    with pytest.raises(DamagedError, match=reason) as caught:
        recovered(directory)
    report = verify(directory)
    assert not report.opens
    assert report.torn_bytes == 0
    flaw = report.flaws[0]
    if dumped:
        assert [line for line in dump(directory) if "damage: " in line and flaw.reason in line]
    assert not [line for line in dump(directory) if "torn tail" in line]
    assert (caught.value.fields["segment"], caught.value.fields["byte"]) == (
        str(flaw.path),
        str(flaw.offset),
    )
    for told in (
        f"{flaw.path} byte {flaw.offset}",
        f"ackq-broker verify {directory}",
        f"ackq-broker repair --keep-damaged {directory}",
    ):
        assert told in caught.value.message
    before = history_id(directory)
    done = repair(directory, segment_bytes=4096)
    assert (done.changed, done.cut) == (True, flaw)
    assert done.history_id == history_id(directory) != before
    assert verify(directory).opens
    found = recovered(directory)
    assert len(found.records) == done.end.sequence == report.end.sequence
    assert found.history_id == done.history_id
    return done.end.sequence


@pytest.mark.parametrize("clean", [True, False])
def test_a_last_segment_cut_anywhere(data, tmp_path, clean):
    """The records of a last segment are not given up silently, wherever it is cut."""
    ends = filled(data, 4, clean=clean)
    path = segment_files(data)[-1]
    content = path.read_bytes()
    groups = [end for _, end in ends]
    cuts = {*range(SEGMENT_HEADER_BYTES, len(content), 97), *groups, len(content) - 1}
    cuts |= {end + GROUP_HEADER_BYTES for end in groups if end + GROUP_HEADER_BYTES < len(content)}

    for size in sorted(cuts):
        target = shutil.copytree(data, tmp_path / f"cut-{size}")
        cut(target / path.name, size)
        expected = sum(end <= size for end in groups)
        assert refused(target, "shortened|had group 5") == expected, size


# Segments of five blocks each: what is done to them, the damage, and the last record before it.
DAMAGE = {
    "no first header": (lambda paths, _: flip(paths[0], 20), "checksum of the segment header", 0),
    "an empty last one": (lambda paths, _: cut(paths[-1], 0), "header is short", 15),
    "no last one": (lambda paths, _: paths[-1].unlink(), "the file is missing|shortened", 15),
    "one missing": (lambda paths, _: paths[1].unlink(), "the file is missing", 5),
    "one byte missing": (lambda paths, _: cut(paths[0], -1), "journal-0*1.seg", 4),
    "cut between groups": (
        lambda paths, ends: cut(paths[0], ends[0][1]),
        "group 1 is the last here, but journal-",
        1,
    ),
    "another's name": (
        lambda paths, _: paths[1].write_bytes(paths[0].read_bytes()),
        "the header is that of segment 1",
        5,
    ),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", DAMAGE)
def test_a_damaged_segment_is_refused(data, which, clean):
    """Each segment after the snapshot exists, has its header and all its groups."""
    damage, reason, last = DAMAGE[which]
    ends = filled(data, clean=clean)
    damage(segment_files(data), ends)

    # A dump lists what is there, so that it shows no gap between two segments.
    dumped = which not in {"one missing", "cut between groups"}
    assert refused(data, reason, dumped=dumped) == last


def test_a_last_segment_that_is_missing_behind_an_idle_close(data):
    """The empty group before a new segment is not taken for a clean end."""
    running = Running(data, idle_close_s=0)
    running.append_blocks(1, 20)
    kill(running)
    paths = segment_files(data)
    paths[-1].unlink()

    with pytest.raises(DamagedError, match=f"{paths[-2].name} byte .* shortened"):
        recovered(data)


def test_a_group_larger_than_a_segment(data, tmp_path):
    """Its room is on the disk before it is written, so missing bytes are no torn tail."""
    running = Running(data)
    running.append(block(1))
    running.append(block(2, 10_000))
    kill(running)
    path = segment_files(data)[-1]
    assert recovered(shutil.copytree(data, tmp_path / "whole")).cut_bytes == 0

    for size in (100, 4095, 4096, 9000, path.stat().st_size - END_ROOM_BYTES):
        target = shutil.copytree(data, tmp_path / f"cut-{size}")
        cut(target / path.name, size)
        refused(target, "shortened")


def test_a_missing_segment_behind_a_group_larger_than_a_segment(data):
    """A segment that was trimmed for the next one shows that, however large it is."""
    running = Running(data)
    running.append(block(1, 10_000))
    running.append(block(2))
    kill(running)
    segment_files(data)[-1].unlink()

    assert refused(data, "shortened") == 1


def test_zeros_in_the_place_of_synced_groups(data):
    """The groups of the last clean end, or of the last start, must exist."""
    ends = filled(data, 3, clean=True)
    path = segment_files(data)[-1]
    content = path.read_bytes()
    path.write_bytes(content[: ends[1][1]].ljust(len(content), b"\0"))
    with pytest.raises(DamagedError, match="had group 4"):
        recovered(data)
    path.write_bytes(content)
    running = Running(data)
    running.append(block(4))
    kill(running)
    path.write_bytes(content[: ends[1][1]].ljust(4096, b"\0"))

    assert refused(data, "had group 4") == 2


def test_an_older_last_segment(data):
    """A segment that was restored as it was before the last start is refused."""
    filled(data, 2, clean=True)
    path = segment_files(data)[-1]
    older = path.read_bytes()
    with opened(data) as running:
        running.append(block(3))
    path.write_bytes(older)

    assert refused(data, "had group 5") == 2


def test_segments_of_another_size(data):
    """The size of a segment may change at each start, also after a kill."""
    for size in (8192, 4096, 65536, 4096):
        running = Running(data, segment_bytes=size)
        running.append(b"record")
        kill(running)

    assert len(recovered(data).records) == 4
    with opened(data, segment_bytes=65536):
        assert segment_files(data)[-1].stat().st_size == 65536
    with opened(data):  # after a clean end no larger file is needed
        assert segment_files(data)[-1].stat().st_size == 4096


def test_a_directory_of_an_older_version_opens_as_before(data):
    """Without an end in FORMAT a short file may be the broker's own; the start adds an end."""
    ends = filled(data, 3, clean=False)
    form = data / "FORMAT"
    meta = json.loads(form.read_text())
    del meta["log_end"]
    form.write_text(json.dumps(meta))
    path = segment_files(data)[-1]
    cut(path, ends[2][1])
    assert verify(data).opens

    running = Running(data)
    assert len(running.records) == 3
    kill(running)
    cut(path, ends[2][1])

    assert refused(data, "shortened") == 3
