"""The bytes that may wait for disks of different rates."""

import pytest

from ackq import limits
from ackq_broker.journal.write.pace import Pace


def after(rate, groups=40, sync_s=0.001):
    """The pace of a disk of `rate` bytes a second, after groups as large as it allows."""
    pace = Pace()
    for _ in range(groups):
        pace.add(pace.group_bytes, sync_s + pace.group_bytes / rate)
    return pace


@pytest.mark.parametrize(
    ("rate", "waiting"),
    [
        (1e6, limits.MIN_UNSYNCED_BYTES),
        (20e6, 40e6),
        (100e6, 200e6),
        (500e6, limits.MAX_UNSYNCED_BYTES),
    ],
)
def test_two_seconds_of_the_disk_may_wait(rate, waiting):
    """P14: within the bounds, whatever the rate; a group is a quarter of the waiting bytes."""
    pace = after(rate)
    assert pace.waiting_bytes == pytest.approx(waiting, rel=0.05)
    assert pace.group_bytes == min(pace.waiting_bytes // 4, limits.MAX_GROUP_BYTES)


def test_a_fast_disk_is_found_out_by_little():
    """P14: a broker begins with the lowest bound, and a first burst is hardly held back."""
    pace, taken = Pace(), 0
    assert pace.waiting_bytes == limits.MIN_UNSYNCED_BYTES
    while pace.waiting_bytes < limits.MAX_UNSYNCED_BYTES:
        taken += pace.group_bytes
        pace.add(pace.group_bytes, 0.001 + pace.group_bytes / 300e6)
    assert taken < limits.MAX_UNSYNCED_BYTES


def test_small_groups_say_nothing_of_the_rate():
    """P14: single messages, and an empty group that closes the log, take as long as a sync."""
    pace = after(500e6)
    for size in (200, 0) * 500:
        pace.add(size, 0.01)
    assert pace.waiting_bytes == limits.MAX_UNSYNCED_BYTES


def test_a_disk_that_gets_slow_is_believed_soon():
    """P14: from 500 MB/s to 5: the first slow group, already in flight, is most of the wait."""
    pace = after(500e6)
    waiting = []
    for _ in range(3):
        pace.add(pace.group_bytes, pace.group_bytes / 5e6)
        waiting.append(pace.waiting_bytes)
    assert waiting[-1] < 2 * limits.MIN_UNSYNCED_BYTES < waiting[0] < 40 * limits.MIB
