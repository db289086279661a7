"""Has the kernel begin to write a part of a file to the disk, without waiting for it."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

# SYNC_FILE_RANGE_WRITE alone: it waits for nothing, and leaves errors of the disk to the next sync.
_WRITE: Final = 2
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LOST: Final = (errno.EIO, errno.ENOSPC, errno.EDQUOT)

# Linux has it.
_sync_file_range = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def start_writeback(fd: int, begin: int, end: int) -> None:
    """Starts to write the whole pages from byte `begin` to byte `end` of a file to the disk.

    Only a sync proves that they are there. Does nothing where the system cannot start it.

    Raises:
        OSError: The disk failed, or is full.
    """
    begin -= begin % _PAGE_BYTES
    end -= end % _PAGE_BYTES
    if _sync_file_range is None or begin >= end:
        return
    if _sync_file_range(fd, begin, end - begin, _WRITE):
        number = ctypes.get_errno()
        if number in _LOST:
            raise OSError(number, os.strerror(number))
