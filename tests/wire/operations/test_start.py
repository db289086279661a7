"""A broker that cannot start prints one line with the cause and the remedy (O4)."""

import os
import shutil
import subprocess

import pytest

import ackq_broker
from tests.wire.operations.processes import ANYWHERE, command, environment, refused_start, run

UNSHARE = shutil.which("unshare")
SETPRIV = shutil.which("setpriv")


TWICE = (
    "The broker cannot listen on 127.0.0.1:15775: it is to listen on 127.0.0.1:15775, too, which"
    " takes the same port."
)


def refused(*arguments, before=()):
    """The line with which `serve` ends, with status 2, and without errno or traceback."""
    done = subprocess.run(
        [*before, *command("serve", "--listen", "127.0.0.1:0", *arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = [each for each in done.stderr.splitlines() if " WARNING " not in each]
    assert "Errno" not in line
    assert "Traceback" not in done.stderr
    return line.removeprefix("ackq-broker: ")


def test_a_file_in_place_of_the_directory(tmp_path):
    """O4: a file in place of the data directory, or of a folder above it, is refused."""
    file = tmp_path / "file"
    file.write_text("mine")
    told = f"{file} is a file, and a directory is needed: name another one"
    assert refused("--data", file) == told
    assert str(file) in refused("--data", file / "data")
    assert file.read_text() == "mine"


def test_a_directory_of_something_else(tmp_path):
    """O4: a directory with foreign files and no journal is refused and left unchanged."""
    names = [".git", "LOCK", "journal.seg"]
    for name in names:
        (tmp_path / name).write_text("mine")
    assert refused("--data", tmp_path) == (
        f"directory {tmp_path} is not a data directory, and holds '.git' and 1 more: name an"
        " empty directory, or one that does not exist yet"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_files_that_a_data_directory_may_have(tmp_path):
    """O4: `lost+found` is accepted; foreign files next to a journal are logged."""
    data = tmp_path / "data"
    (data / "lost+found").mkdir(parents=True)
    with ackq_broker.embedded(data) as broker:
        (data / "core.1234").write_text("a dump")
        (data / "damaged-1").mkdir()
        broker.restart()
        assert "holds 'core.1234', which is not a file of a broker" in broker.log_file.read_text()


@pytest.mark.skipif(not (SETPRIV and os.geteuid() == 0), reason="needs setpriv, and to be root")
def test_no_permission(tmp_path):
    """O4: missing permission is reported with the user and the directory."""
    tmp_path.chmod(0o500)
    bounded = [SETPRIV, "--bounding-set", "-dac_override,-dac_read_search"]
    assert refused("--data", tmp_path / "data", before=bounded) == (
        f"root has no permission for {tmp_path / 'data'}: grant that permission, or name"
        " another one"
    )
    (tmp_path / "made").mkdir(mode=0o500)
    assert "has no permission for" in refused("--data", tmp_path / "made", before=bounded)


@pytest.fixture
def mounted(tmp_path):
    """A function for a command prefix that mounts a 1 MiB file system, and its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = f"mount -t tmpfs -o size=1m none {folder}"
    if (
        not UNSHARE
        or subprocess.run([UNSHARE, "--mount", "sh", "-c", mount], check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")

    def then(more):
        return [UNSHARE, "--mount", "sh", "-c", f'{mount} && {more} && exec "$@"', "sh"]

    return then, folder


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("true", "the disk of {data} has no room for the 268435456 bytes or more that"),
        (
            "mkdir {folder}/data; dd if=/dev/zero of={folder}/full 2>/dev/null; true",
            "free some space, nothing is lost",
        ),
        ("mount -o remount,ro {folder}", "{data} is on a file system that is mounted read-only"),
    ],
    ids=["small", "full", "read-only"],
)
def test_a_disk_without_room(mounted, more, told):
    """O4: a full or read-only disk is reported, with the remedy, before a segment is allocated."""
    then, folder = mounted
    data = folder / "data"
    line = refused("--data", data, before=then(more.format(folder=folder)))
    assert told.format(data=data) in line


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--segment-size 1MiB", "--segment-size '1MiB' is not a size of 16777216 bytes or"),
        ("--segment-size 64MiB --reserve 128MiB", "a reserve of 134217728 bytes is less"),
        ("--listen 7411", "--listen '7411' is not"),
        ("--listen host:", "--listen 'host:' is not"),
        ("--listen 127.0.0.1:99999", "--listen '127.0.0.1:99999' is not"),
        ("--listen ::1:15775", "--listen '::1:15775' is not"),
        ("--http 0.0.0.0:0", "The broker does not listen on 0.0.0.0"),
        ("--listen 127.0.0.1:15775 --http 127.0.0.1:15775", f"{TWICE} Choose another --http."),
        ("--listen 127.0.0.1:15775 --listen 127.0.0.1:15775", f"{TWICE} Choose another --listen."),
    ],
)
def test_options_that_are_refused(tmp_path, options, told):
    """O4, I6, M1, A6: small sizes, and addresses that are none or that others reach."""
    line = refused_start(tmp_path / "data", *ANYWHERE, *options.split())
    assert line.startswith(f"ackq-broker: {told}")


def test_small_segments(tmp_path):
    """P8: a broker for a small volume uses small segments and a lower reserve, as do its tools."""
    data = tmp_path / "data"
    sizes = {"ACKQ_BROKER_SEGMENT_SIZE": "16MiB", "ACKQ_BROKER_RESERVE": "48MiB"}
    with ackq_broker.embedded(data, env=sizes) as broker:
        (segment,) = data.glob("journal-*.seg")
        assert segment.stat().st_size == 16 << 20
        broker.kill()
        assert run("accept-history", "--data", data)[0] == 0
        assert segment.stat().st_size <= 16 << 20
        broker.restart()
        assert segment.stat().st_size == 16 << 20
