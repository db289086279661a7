"""Memory that frames are read into again and again."""

import resource
import sys

import pytest

from ackq.wire import allocator

PAGE_BYTES = 4096
FRAME_BYTES = 1_000_000


def faults():
    """Pages that this process has taken from the system."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def hold_frames():
    """Takes the memory of 20 frames, and frees it."""
    assert len([b"x" * FRAME_BYTES for _ in range(20)]) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_used_again():
    """P14: frames after the first take no new pages; by default each of them takes its own."""
    allocator.keep_freed()
    hold_frames()
    before = faults()
    for _ in range(10):
        hold_frames()
    assert faults() - before < 200 * FRAME_BYTES / PAGE_BYTES / 10
