"""Configures the memory allocator to keep freed memory of a frame for the next frame.

By default the C library returns blocks of a frame's size to the system when they are freed. The
next frame then gets new memory page by page, which costs more than copying the frame.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from ackq import limits

# Parameters of glibc's mallopt(3); setting one ends the automatic choice of both.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
# Memory to keep: enough for the data of a stage in flight, and for a group of the journal.
_KEPT_BYTES: Final = 64 * limits.MIB
# Larger blocks are returned at once: a frame with a message near the limit is rare.
_LARGE_BYTES: Final = 8 * limits.MIB


@functools.cache
def keep_freed() -> None:
    """Keeps freed memory of this process for its next frames; has no effect without glibc.

    Each heap from which threads allocate keeps up to `_KEPT_BYTES` of free memory at its end.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
