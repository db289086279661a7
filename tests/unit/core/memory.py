"""Memory that Python does not count: what the C library has allocated, as for bitmaps."""

import ctypes

import pytest


class _Allocated(ctypes.Structure):
    """The C library's `struct mallinfo2`."""

    _fields_ = (
        ("others", ctypes.c_size_t * 7),
        ("used", ctypes.c_size_t),
        ("free", ctypes.c_size_t * 2),
    )


def allocated():
    """The bytes in use; skips the test where the C library does not say."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("the C library does not say what is allocated")
    mallinfo2.restype = _Allocated
    return mallinfo2().used
