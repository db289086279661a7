"""A data directory: its lock, its format, and its history."""

import json
import os
import shutil

import pytest

from ackq.errors import DamagedError, InUseError, NotFoundError, UnsupportedError
from ackq_broker.journal import begin_new_history, dump, repair, verify
from ackq_broker.journal.files.directory import segment_name
from ackq_broker.journal.files.identity import Identity
from tests.unit.journal.running_journal import ListingDisk, opened, recovered, segment_files


def test_a_directory_in_use_is_refused(data):
    """Two brokers on one directory would destroy it: the second is refused, naming the first."""
    with opened(data) as running:
        running.append(b"one")
        with pytest.raises(InUseError) as caught:
            recovered(data)
        with pytest.raises(InUseError):
            verify(data)
    assert caught.value.fields == {"directory": str(data), "pid": str(os.getpid())}
    assert f"{data} is in use by process {os.getpid()}" in caught.value.message

    assert recovered(data).records == [(1, b"one")]


def test_a_newer_format_is_refused(data):
    """A directory of a newer program is left alone."""
    recovered(data)
    path = data / "FORMAT"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({"format": 3, "new": "fields"}))

    with pytest.raises(UnsupportedError, match=f"{data} has journal format 3") as caught:
        recovered(data)
    assert caught.value.fields["format"] == "3"
    path.write_text(json.dumps(meta))
    assert recovered(data).created is False


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"format": 1}',
        b"\x00\x00",
        b'{"format": "x"}',
        b"[1]",
        b"\xff\xfe",
        b'{"format": 1, "history_id": "ab", "inode": 1}',
        b'{"format": 1, "history_id": 1, "inode": 1}',
        b'{"format": Infinity}',
        b"[" * 100_000,
    ],
)
def test_an_unreadable_format_is_refused(data, content):
    """A FORMAT with other content is refused, not guessed."""
    recovered(data)
    (data / "FORMAT").write_bytes(content)

    with pytest.raises(DamagedError, match="FORMAT cannot be read"):
        recovered(data)


def test_a_flipped_bit_in_format_loses_nothing(data):
    """Q7, Q8: a flipped bit in FORMAT is refused, or the journal opens with all its records.

    FORMAT has no checksum.
    """
    with opened(data) as running:
        running.append(b"one")
    refused = 0
    for offset in range(len((data / "FORMAT").read_bytes())):
        sound = (data / "FORMAT").read_bytes()
        content = bytearray(sound)
        content[offset % len(content)] ^= 1 << offset % 7
        rewrite(data / "FORMAT", content)
        try:
            found = recovered(data).records
        except (DamagedError, UnsupportedError):
            refused += 1
            rewrite(data / "FORMAT", sound)
        else:
            assert found == [(1, b"one")], content
    assert refused > 100


def rewrite(path, content):
    """Writes other bytes into the same file, so that it is no copy."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def test_a_missing_format_is_refused(data):
    """A directory with records and without FORMAT is not taken for a new one."""
    with opened(data) as running:
        running.append(b"one")
    (data / "FORMAT").unlink()

    with pytest.raises(DamagedError, match="FORMAT byte 0: the file is missing"):
        recovered(data)
    assert len(segment_files(data)) == 1


def test_a_start_that_died_before_format_begins_anew(data):
    """FORMAT is made last: a directory without it and without records has never served."""
    recovered(data)
    (data / "FORMAT").unlink()
    assert recovered(data).created

    (data / "FORMAT").unlink()
    (data / segment_name(1)).write_bytes(b"not a segment")
    with pytest.raises(DamagedError):
        recovered(data)


def test_a_copy_is_another_history(data, tmp_path):
    """Q8: a journal restored from a copy gets a new history id, and keeps it.

    The original keeps its own.
    """
    with opened(data) as running:
        running.append(b"one")
    shutil.copytree(data, tmp_path / "copy")

    original, copy, again = (
        recovered(path) for path in (data, tmp_path / "copy", tmp_path / "copy")
    )

    assert original.history_id != copy.history_id
    assert copy.history_id == again.history_id
    assert original.records == copy.records == [(1, b"one")]


def history(directory):
    """The history that a start serves, and its cause."""
    found = recovered(directory)
    return found.history_id, found.history_cause


def test_a_copy_says_why_it_is_another_history(data, tmp_path):
    """Q8: the first history of a journal has no cause; a copy keeps its own through restarts."""
    first, why = history(data)
    shutil.copytree(data, tmp_path / "copy")
    copy, copied = history(tmp_path / "copy")

    assert (why, copied, copy != first) == ("", "copied", True)
    assert history(tmp_path / "copy") == (copy, "copied")


@pytest.mark.parametrize("restored", ["over the files", "as new files", "what differs"])
def test_a_directory_restored_in_place_is_another_history(data, tmp_path, restored):
    """Q8: whichever way the copying tool puts the older files in place of the newer ones."""
    before, _ = history(data)
    shutil.copytree(data, tmp_path / "copy")
    with opened(data) as running:
        running.append(b"lost by the restore")

    for path in data.iterdir():
        saved = tmp_path / "copy" / path.name
        same = saved.exists() and saved.stat().st_mtime_ns == path.stat().st_mtime_ns
        if restored == "as new files" or not saved.exists():
            path.unlink()
        if saved.exists() and not (restored == "what differs" and same):
            shutil.copy2(saved, path)

    after, cause = history(data)
    assert (after != before, cause) == (True, "copied")
    assert history(data) == (after, cause)


def test_restarts_and_crashes_are_the_same_history(data):
    """Q8: no false alarm, also when a start died while it rewrote FORMAT."""
    before = history(data)
    for _ in range(3):
        (data / "FORMAT.new").write_bytes(b"half of it")
        assert history(data) == before


def test_a_file_system_that_does_not_know_when_a_file_was_made(data, tmp_path, monkeypatch):
    """Q8: without a birth time the inode number decides, as with a FORMAT of an older version."""
    monkeypatch.setattr("ackq_broker.journal.files.identity._born_ns", lambda _: 0)
    before = history(data)
    shutil.copytree(data, tmp_path / "copy")
    monkeypatch.undo()
    assert history(data) == before
    assert history(tmp_path / "copy")[1] == "copied"


def test_a_file_is_its_inode_unless_its_birth_is_known():
    """Q8: inode numbers are reused, and some network file systems change them."""
    here = Identity(7, 1000)
    assert here.is_of(Identity(8, 1000))
    assert not here.is_of(Identity(7, 1001))
    assert here.is_of(Identity(7, 0))
    assert not Identity(7, 0).is_of(Identity(8, 1000))


def test_an_operator_says_that_a_directory_was_restored(data, tmp_path):
    """Q8: `new-history` is for copies made below the file system, which no file shows."""
    before, _ = history(data)
    declared = begin_new_history(data)

    assert declared != before
    assert history(data) == history(data) == (declared, "declared")
    with pytest.raises(NotFoundError, match="there is no data directory"):
        begin_new_history(tmp_path / "none")
    (data / "FORMAT").unlink()
    with pytest.raises(DamagedError, match="FORMAT byte 0: the file is missing"):
        begin_new_history(data)


def test_a_moved_directory_is_the_same_history(data, tmp_path):
    """A rename is not a copy."""
    before = recovered(data).history_id
    data.rename(tmp_path / "elsewhere")

    assert recovered(tmp_path / "elsewhere").history_id == before


@pytest.mark.parametrize("tool", [verify, repair, lambda directory: list(dump(directory))])
def test_tools_leave_other_directories_alone(tmp_path, tool):
    """A mistyped directory without a journal is neither called damaged nor made into one."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotFoundError, match=f"{tmp_path} holds no journal"):
        tool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_every_new_directory_is_on_the_disk(tmp_path):
    """Q7: a power cut loses no new directory above the journal, nor the files in it."""
    disk = ListingDisk()
    data = tmp_path / "a" / "b" / "data"
    recovered(data, disk=disk)
    assert disk.synced[:3] == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]

    # A start that died before it had synced its directories; and one of an existing journal.
    again = ListingDisk()
    (data / "FORMAT").unlink()
    recovered(data, disk=again)
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} < set(again.synced)
    later = ListingDisk()
    recovered(data, disk=later)
    assert set(later.synced) == {data}


def test_tools_make_no_directories(data):
    """A mistyped directory is an error, not a new journal."""
    with pytest.raises(NotFoundError, match=f"no data directory {data}"):
        verify(data)
    assert not data.exists()


def test_a_format_of_other_bytes_is_shown(data):
    """Q7: a dump shows the FORMAT, damaged or not."""
    recovered(data)
    (data / "FORMAT").write_bytes(b'{"format": \xff\xfe}')
    assert next(dump(data)) == r'FORMAT {"format": \xff\xfe}'
