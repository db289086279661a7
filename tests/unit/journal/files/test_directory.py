"""A data directory: its lock, its format, and its history."""

import os
import shutil

import pytest

from ackq.errors import DamagedError, InUseError, NotFoundError, UnsupportedError
from ackq_broker.journal import begin_new_history, dump, repair, verify
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
    """A FORMAT with other content is refused, not guessed, and that of a newer program left."""
    recovered(data)
    for written, error, told in (
        (content, DamagedError, "FORMAT cannot be read"),
        (b'{"format": 3, "new": 1}', UnsupportedError, f"{data} has journal format 3"),
    ):
        (data / "FORMAT").write_bytes(written)
        with pytest.raises(error, match=told):
            recovered(data)
        assert (data / "FORMAT").read_bytes() == written


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


def test_a_start_that_died_before_format_begins_anew(data):
    """FORMAT is made last: a directory without it and without records has never served.

    One with records and without FORMAT is not taken for a new one.
    """
    recovered(data)
    (data / "FORMAT").unlink()
    assert recovered(data).created

    with opened(data) as running:
        running.append(b"one")
    for content in segment_files(data)[0].read_bytes(), b"not a segment":
        (data / "FORMAT").unlink(missing_ok=True)
        segment_files(data)[0].write_bytes(content)
        with pytest.raises(DamagedError, match="FORMAT byte 0: the file is missing"):
            recovered(data)
        assert len(segment_files(data)) == 1


def history(directory):
    """The history that a start serves, and its cause."""
    found = recovered(directory)
    return found.history_id, found.history_cause


def test_a_copy_is_another_history(data, tmp_path):
    """Q8: a restored copy gets a new history id with its cause, and keeps it; so does the original.

    Restarts, also after one that died while it rewrote FORMAT, and a rename are no copy.
    """
    first = history(data)
    shutil.copytree(data, tmp_path / "copy")
    copy = history(tmp_path / "copy")

    assert (first[1], copy[1], copy[0] != first[0]) == ("", "copied", True)
    assert history(tmp_path / "copy") == copy
    for _ in range(2):
        (data / "FORMAT.new").write_bytes(b"half of it")
        assert history(data) == first
    assert history(data.rename(tmp_path / "elsewhere")) == first


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


@pytest.mark.parametrize("tool", [verify, repair, lambda directory: list(dump(directory))])
def test_tools_leave_other_directories_alone(tmp_path, tool):
    """A mistyped directory without a journal is neither called damaged nor made into one."""
    with pytest.raises(NotFoundError, match=f"no data directory {tmp_path / 'none'}"):
        tool(tmp_path / "none")
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotFoundError, match=f"{tmp_path} holds no journal"):
        tool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_every_new_directory_is_on_the_disk(tmp_path):
    """Q7: a power cut loses no new directory above the journal, nor the files in it."""
    data = tmp_path / "a" / "b" / "data"
    above = [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]

    def synced():
        disk = ListingDisk()
        recovered(data, disk=disk)
        return disk.synced

    assert synced()[:3] == above
    # After a start that died before it had synced its directories; and of an existing journal.
    (data / "FORMAT").unlink()
    assert set(above) < set(synced())
    assert set(synced()) == {data}


def test_a_format_of_other_bytes_is_shown(data):
    """Q7: a dump shows the FORMAT, damaged or not."""
    recovered(data)
    (data / "FORMAT").write_bytes(b'{"format": \xff\xfe}')
    assert next(dump(data)) == r'FORMAT {"format": \xff\xfe}'
