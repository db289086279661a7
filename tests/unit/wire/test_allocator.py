"""Reuse of the memory into which frames are read."""

import resource
import sys

import pytest

from ackq.wire import allocator

PAGE_BYTES = 4096
FRAME_BYTES = 1_000_000


def faults():
    """Minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def hold_frames():
    """Allocates the memory of 20 frames, and frees it."""
    assert len([b"x" * FRAME_BYTES for _ in range(20)]) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_used_again():
    """P14: later frames take no new pages; by default each frame takes its own."""
    allocator.keep_freed()
    hold_frames()
    before = faults()
    for _ in range(10):
        hold_frames()
    assert faults() - before < 200 * FRAME_BYTES / PAGE_BYTES / 10
