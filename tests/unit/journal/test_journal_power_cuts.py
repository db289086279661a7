"""Power cuts at every point of a journal's lifetime, on a disk that keeps only synced bytes.

`tests.fakes.disk` states the fault model. After each cut the journal has to open, with everything
that it had promised.
"""

import copy
import random

import pytest

from ackq.errors import DamagedError
from tests.fakes.disk import Image, RecordingDisk
from tests.sizes import sized
from tests.unit.journal.life import OPTIONS, check, live
from tests.unit.journal.running_journal import recovered

IMAGES_PER_POINT = 2
# Of the points, each that this divides. It is odd, since kinds of changes alternate.
STRIDE = sized(3, 1)
# For a recovery: the losses depend on which of a few names the cut keeps.
CUTS_PER_POINT = 12


def put(directory, files):
    """Makes a directory hold exactly these files."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for name, content in files.items():
        (directory / name).write_bytes(content)


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    directory = tmp_path_factory.mktemp("life") / "data"
    disk = RecordingDisk()
    live(directory, disk)
    return disk.changes


def test_the_life_has_everything(life):
    """The lifetime that is cut below has new segments, reused ones, snapshots and deletions."""
    kinds = {change[0] for change in life}
    created = {change[1] for change in life if change[0] == "create"}
    unlinked = {change[1] for change in life if change[0] == "unlink"}

    assert kinds == {
        "create", "reopen", "write", "resize", "sync", "sync_directory", "rename", "unlink", "note",
    }  # fmt: skip
    assert len([name for name in created if name.startswith("journal")]) >= 5
    assert len([name for name in unlinked if name.startswith("journal")]) >= 2
    assert len([name for name in unlinked if name.startswith("snapshot")]) == 3


def points(life):
    """Yields (step, change, the disk after it) for each change of a lifetime."""
    image = Image()
    for step, change in enumerate(life):
        image.apply(change)
        yield step, change, image


def test_power_cut_at_every_point(life, tmp_path):
    """Q7: at any instant, and whatever the disk kept, each record reported synced is recovered.

    SIGKILL alone keeps all that was written.
    """
    for step, change, image in points(life):
        if step % STRIDE:
            continue
        if change[0] != "note":
            put(tmp_path / "data", image.after_kill())
            check(tmp_path / "data", image.notes, step)
        if life[step + 1 : step + 2] and life[step + 1][0] == "note":
            # Equal bytes on the disk, and more promised: the next step is the sharper test.
            continue
        for attempt in range(IMAGES_PER_POINT):
            put(tmp_path / "data", image.after_power_cut(random.Random(1000 * step + attempt)))
            check(tmp_path / "data", image.notes, (step, attempt))


@pytest.mark.parametrize("killed", [True, False])
def test_power_cut_during_recovery(life, tmp_path, killed):
    """Q7: a power cut at any point of the recovery from a kill or a power cut loses no record.

    SIGKILL leaves names that are not on the disk yet: no file is deleted before all are synced.
    """
    for step, change, image in points(life):
        if killed and change[0] in ("rename", "unlink") and not step % STRIDE:
            # The page cache outlives the process: unsynced changes are still in it.
            files, second, cuts = image.after_kill(), copy.deepcopy(image), CUTS_PER_POINT
        elif not killed and not step % (23 * STRIDE):
            files = image.after_power_cut(random.Random(step))
            second, cuts = Image(files), 1
        else:
            continue
        put(tmp_path / "data", files)
        disk = RecordingDisk()
        found = check(tmp_path / "data", image.notes, step, disk)
        # The records that one recovery found on the disk, the next finds as well.
        second.notes = [("appended", found), ("synced", len(found))]
        for again, redo in enumerate(disk.changes):
            second.apply(redo)
            for attempt in range(cuts):
                chance = random.Random(100 * again + attempt)
                put(tmp_path / "again", second.after_power_cut(chance))
                check(tmp_path / "again", second.notes, (step, again, attempt))
            if killed and redo[0] == "sync_directory":
                break


def test_a_refusal_removes_nothing(life, tmp_path):
    """Q7: a journal that lacks a segment keeps every file: superseded ones, and spares, too."""
    data = tmp_path / "data"
    refused = 0
    for _, change, image in points(life):
        if change[0] != "rename" or not change[2].startswith("snapshot"):
            continue
        put(data, image.after_kill())
        max(data.glob("journal-*.seg")).unlink()
        before = {path.name: path.read_bytes() for path in data.glob("[js]*")}
        with pytest.raises(DamagedError, match="no record was removed"):
            recovered(data)
        assert {path.name: path.read_bytes() for path in data.glob("[js]*")} == before
        refused += 1
    assert refused


def test_power_cut_in_a_group_larger_than_a_segment(life, tmp_path):
    """Q7: its room is on the disk before its bytes, so a power cut leaves a torn tail of it."""
    cut = 0
    for step, change, image in points(life):
        if change[0] != "write" or len(change[3]) <= OPTIONS["segment_bytes"]:
            continue
        for attempt in range(40):
            put(tmp_path / "data", image.after_power_cut(random.Random(attempt)))
            check(tmp_path / "data", image.notes, (step, attempt))
        cut += 1
    assert cut


@pytest.mark.parametrize("kind", ["sync", "sync_directory"])
def test_the_model_has_teeth(life, tmp_path, kind):
    """A journal without its syncs, of files or of the directory, fails the tests above."""
    image = Image()
    for change in life:
        if change[0] != kind:
            image.apply(change)

    def survives(seed):
        put(tmp_path / "data", image.after_power_cut(random.Random(seed)))
        try:
            check(tmp_path / "data", image.notes, seed)
        except (AssertionError, DamagedError):
            return False
        return True

    assert [survives(seed) for seed in range(20)].count(False) > 3
