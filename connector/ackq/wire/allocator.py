"""The memory of frames: what one frame was read into is there for the next.

By default the C library gives blocks of a frame's size back to the system when they are freed. The
next frame then takes new ones page by page, which costs more than a copy of it.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from ackq import limits

# Parameters of glibc's mallopt(3); setting one ends the automatic choice of both.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
# What is kept: as much as a stage has under way, and the group that the journal writes.
_KEPT_BYTES: Final = 64 * limits.MIB
# Larger blocks go back at once: a frame with a message near the limit is rare.
_LARGE_BYTES: Final = 8 * limits.MIB


@functools.cache
def keep_freed() -> None:
    """Keeps freed memory of this process for its next frames; without effect elsewhere than glibc.

    Of each part of the heap that threads allocate from, what is free at its end is kept up to
    `_KEPT_BYTES`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
