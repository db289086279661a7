"""The histogram of sync times."""

import pytest

from ackq_broker.journal.write.group_commit import BOUNDS_S, SyncTimes
from tests.unit.journal.running_journal import block, block_bytes, opened


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (BOUNDS_S[0], 0), (BOUNDS_S[3], 3), (BOUNDS_S[3] * 1.01, 4), (60.0, len(BOUNDS_S))],
)
def test_each_sync_is_in_one_bucket(seconds, bucket):
    """M2: a bound is the longest time in its bucket."""
    times = SyncTimes()
    times.add(seconds)
    assert [at for at, count in enumerate(times.counts) if count] == [bucket]
    assert times.total_s == seconds


def test_a_journal_counts_each_sync_once(data):
    """M2: a group is one sync, however many records it has."""
    with opened(data) as running:
        before = sum(running.journal.sync_times.counts)
        running.append(b"one")
        running.append(b"two", b"three")
        assert sum(running.journal.sync_times.counts) == before + 2


def test_bytes_of_files_and_of_live_blocks(data):
    """M2: the size of the directory's files, and of the live blocks."""
    with opened(data) as running:
        assert running.journal.live_bytes() == 0
        running.append(block(1))
        running.append(block(2))
        assert running.journal.live_bytes() == len(block_bytes(1)) + len(block_bytes(2))
        assert 0 < running.journal.file_bytes() <= 1 << 20
