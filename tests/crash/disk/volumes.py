"""Real file systems that fill up, whose disk fails, and whose power is cut.

A `Volume` is an ext4 in a file, by a loop device. Its power is cut by ext4's own ioctl for that:
from one instant on nothing reaches the device, not even pages of the page cache. A sync that is
under way at that instant may report success although its data is lost (one in seven of a loop of
`pwrite` and `fdatasync` on Linux 6.18); at a real power loss no process sees that. So the process
that writes either dies at the same instant, or has no sync under way.

The device fails by becoming shorter than its file system: blocks after its end cannot be read or
written, and the kernel reports lost writes at the sync, as for a dying disk.

(A file system with less room for the file than it needs would fail as well, but the loop driver
takes a short write for a whole one: that disk would lie.)

Faults that need device-mapper (`dm-flakey`, `dm-log-writes`) are left to `tests.fakes.disk`: few
machines that run tests have it.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

MIB = 1 << 20
# EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32); without a flush of ext4's own journal.
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, struct.pack("I", 2)
# FIBMAP: maps a block of a file to a block of the device.
_FIBMAP = 1
# struct loop_info64 of <linux/loop.h>: `lo_sizelimit` at byte 32.
_LOOP_SET_STATUS64, _LOOP_GET_STATUS64, _STATUS_BYTES = 0x4C04, 0x4C05, 232
_SIZE_LIMIT, _SIZE_LIMIT_AT = struct.Struct("=Q"), 32
_PROGRAMS = ("mount", "umount", "losetup", "mkfs.ext4")


def run(*command):
    """Runs a command that must succeed; returns its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout.strip()


def drop_cache(path):
    """Drops a file from the page cache, so that its next read comes from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def mount_tmpfs(folder, size_bytes):
    """Mounts a tmpfs; the caller unmounts it."""
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", folder)


@contextmanager
def tmpfs(folder, size_bytes):
    """A mounted tmpfs."""
    mount_tmpfs(folder, size_bytes)
    try:
        yield folder
    finally:
        run("umount", folder)


class Volume:
    """A mounted ext4; a context manager.

    Attributes:
        mount_point: Where it is mounted, the directory `data` in its folder.

    Args:
        folder: Folder for its files.
        size_bytes: Size of the file system.
    """

    def __init__(self, folder, size_bytes=256 * MIB):
        self.mount_point = Path(folder) / "data"
        self._memory = Path(folder) / "memory"
        self._image = self._memory / "image"
        self._size_bytes = size_bytes
        self._device = None

    def __enter__(self):
        self.mount_point.mkdir(parents=True)
        mount_tmpfs(self._memory, 2 * self._size_bytes)
        try:
            self._image.touch()
            os.truncate(self._image, self._size_bytes)
            self._device = run("losetup", "--find", "--show", self._image)
            run("mkfs.ext4", "-q", "-m", "0", self._device)
            self._mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if os.path.ismount(self.mount_point):
            run("umount", self.mount_point)
        if self._device is not None:
            run("losetup", "--detach", self._device)
        run("umount", self._memory)

    def cut_power(self, pid):
        """Cuts the power of disk and process: the process never sees another call return.

        Args:
            pid: The process that uses the volume.
        """
        os.kill(pid, signal.SIGKILL)
        self._shut_down()

    def vanish(self, pid):
        """Lets nothing reach the device while no call of a process is under way.

        From then on its calls fail with EIO.

        Args:
            pid: The process that uses the volume; it stops for a moment.
        """
        os.kill(pid, signal.SIGSTOP)
        try:
            while not _is_stopped(pid):
                pass
            self._shut_down()
        finally:
            os.kill(pid, signal.SIGCONT)

    def _shut_down(self):
        fd = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(fd)

    def mount_again(self):
        """Mounts again, as after a start of the machine: no process may have a file of it open."""
        run("umount", self.mount_point)
        self._mount()

    def is_open_in(self, pid):
        """Whether a process has a file of it open; False for one that has ended."""
        with suppress(OSError):
            for each in Path(f"/proc/{pid}/fd").iterdir():
                if each.readlink().is_relative_to(self.mount_point):
                    return True
        return False

    def fail(self, path):
        """Makes the device fail for this file, and for everything after its begin.

        Pages of the file that are in memory stay readable.
        """
        self._end_at(self._begin_of(path))

    def work_again(self):
        """Makes the whole device work again."""
        self._end_at(0)

    def _begin_of(self, path):
        """The byte of the device at which a file begins."""
        with path.open("rb") as file:
            block = bytearray(struct.pack("I", 0))
            fcntl.ioctl(file.fileno(), _FIBMAP, block)
            return struct.unpack("I", block)[0] * os.fstatvfs(file.fileno()).f_bsize

    def _end_at(self, size_bytes):
        """Sets the end of the device; 0: the end of its file."""
        fd = os.open(self._device, os.O_RDWR)
        try:
            status = bytearray(_STATUS_BYTES)
            fcntl.ioctl(fd, _LOOP_GET_STATUS64, status)
            _SIZE_LIMIT.pack_into(status, _SIZE_LIMIT_AT, size_bytes)
            fcntl.ioctl(fd, _LOOP_SET_STATUS64, status)
        finally:
            os.close(fd)

    def _mount(self):
        run("mount", self._device, self.mount_point)


def _is_stopped(pid):
    """Whether no thread of a process runs or is in a system call."""
    states = set()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # The thread has ended.
            states.add(path.read_text().rpartition(") ")[2][0])
    return states <= set("TZX")


def require(folder):
    """Skips a test where nothing can be mounted; fails it in the gate, where mounts must work."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        _missing(f"not installed: {', '.join(missing)}")
    try:
        with tmpfs(folder / "tmpfs", MIB), Volume(folder / "volume", 16 * MIB):
            pass
    except (AssertionError, OSError) as error:
        _missing(f"no tmpfs, or no ext4 in a loop device, can be mounted here: {error}")


def _missing(why):
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
