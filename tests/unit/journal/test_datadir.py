"""Who may open a data directory, of which format, and which history it is."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from ackq.errors import DamagedError, InUseError, NotFoundError, UnsupportedError
from ackq_broker.journal import verify
from ackq_broker.journal.datadir import segment_name
from tests.unit.journal.support import opened, recovered, segment_files


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def test_a_directory_in_use_is_refused(data):
    """Two brokers on one directory would destroy it: the second is told who has it."""
    with opened(data) as running:
        running.append(b"one")
        with pytest.raises(InUseError) as caught:
            recovered(data)
        with pytest.raises(InUseError):
            verify(data)
    assert caught.value.fields == {"directory": str(data), "pid": str(os.getpid())}
    assert f"{data} is in use by process {os.getpid()}" in caught.value.message

    assert recovered(data).records == [(1, b"one")]


def test_the_lock_dies_with_its_process(data):
    """A lock is of a process, not a file that a crash leaves behind."""
    program = (
        "import sys, pathlib\n"
        "from ackq_broker.journal import Journal\n"
        "journal = Journal.open(pathlib.Path(sys.argv[1]), on_synced=print, on_failure=print)\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(InUseError, match=f"process {process.pid}"):
            recovered(data)
        process.kill()
        process.wait()

    assert recovered(data).created is False


def test_a_newer_format_is_refused(data):
    """A directory of a newer program is left alone."""
    recovered(data)
    path = data / "FORMAT"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({"format": 2, "new": "fields"}))

    with pytest.raises(UnsupportedError, match=f"{data} has journal format 2") as caught:
        recovered(data)
    assert caught.value.fields["format"] == "2"
    path.write_text(json.dumps(meta))
    assert recovered(data).created is False


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', "\x00\x00", '{"format": "x"}', "[1]"])
def test_an_unreadable_format_is_refused(data, text):
    """A FORMAT that does not say what it should is not guessed at."""
    recovered(data)
    (data / "FORMAT").write_text(text)

    with pytest.raises(DamagedError, match="FORMAT cannot be read"):
        recovered(data)


def test_a_missing_format_is_refused(data):
    """A directory with records and without FORMAT is not taken for a new one."""
    with opened(data) as running:
        running.append(b"one")
    (data / "FORMAT").unlink()

    with pytest.raises(DamagedError, match="FORMAT byte 0: the file is missing"):
        recovered(data)
    assert len(segment_files(data)) == 1


def test_a_start_that_died_before_format_begins_anew(data):
    """FORMAT comes last when a journal is made: without it and without records, nothing was served
    yet.
    """
    recovered(data)
    (data / "FORMAT").unlink()
    assert recovered(data).created

    (data / "FORMAT").unlink()
    (data / segment_name(1)).write_bytes(b"not a segment")
    with pytest.raises(DamagedError):
        recovered(data)


def test_a_copy_is_another_history(data, tmp_path):
    """Q8: a journal restored from a copy gets a new history id, and keeps it; the original keeps
    its own.
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


def test_a_moved_directory_is_the_same_history(data, tmp_path):
    """A rename is not a copy."""
    before = recovered(data).history_id
    data.rename(tmp_path / "elsewhere")

    assert recovered(tmp_path / "elsewhere").history_id == before


def test_tools_make_no_directories(data):
    """A mistyped directory is an error, not a new journal."""
    with pytest.raises(NotFoundError, match=f"no data directory {data}"):
        verify(data)
    assert not data.exists()
