"""Identity of a file, which its copies do not share: inode number and time of birth.

Invariant: the `identity` of a file stays the same for as long as the file exists, through renames,
restarts and other mount points, and no tool that copies files can give it to the copy.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final, NamedTuple

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
# struct statx of <linux/stat.h>: 256 bytes, the mask first, `stx_btime` at byte 80.
_STATX_BYTES: Final = 256
_MASK: Final = struct.Struct("=I")
_BTIME: Final = struct.Struct("=qI")
_BTIME_OFFSET: Final = 80


class Identity(NamedTuple):
    """The identity of a file.

    Attributes:
        inode: Inode number; a file system may give the number of a deleted file to a new one.
        born_ns: Time of creation, nanoseconds since the epoch; 0 where the kernel or the file
            system does not know it. No program can set it.
    """

    inode: int
    born_ns: int

    def is_of(self, other: Identity) -> bool:
        """Whether both identities belong to the same file.

        The time of creation decides where both have it: some network file systems assign a new
        number to a file at every mount.
        """
        if self.born_ns and other.born_ns:
            return self.born_ns == other.born_ns
        return self.inode == other.inode


def identity(fd: int) -> Identity:
    """The identity of an open file."""
    return Identity(os.fstat(fd).st_ino, _born_ns(fd))


def _born_ns(fd: int) -> int:
    """Time of creation by statx(2), which Python 3.11 has no function for; 0 when unknown."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return 0
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, found):
        return 0
    (mask,) = _MASK.unpack_from(found)
    if not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _BTIME.unpack_from(found, _BTIME_OFFSET)
    return int(seconds * 1_000_000_000 + nanoseconds)
