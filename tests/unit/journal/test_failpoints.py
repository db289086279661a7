"""Failpoints: each is met, and a mistyped one is refused."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.journal import POINTS, kill_at
from tests.unit.journal.running_journal import TIMEOUT_S, opened


def test_every_point_is_met(tmp_path):
    """The list of points is what the journal calls, in that order at first sight."""
    met = []
    with opened(tmp_path / "data", failpoint=met.append) as running:
        running.append_blocks(1, 19)
        running.journal.free_blocks(range(1, 20))
        running.snapshot()
        journal = running.journal
        journal.back_up((b"state",), journal.sequence, tmp_path / "b").result(TIMEOUT_S)

    assert tuple(dict.fromkeys(met)) == POINTS


@pytest.mark.parametrize(
    "text", ["", "nowhere", "after_write:0", "after_write:x", "after_write:-1", ":1"]
)
def test_a_bad_failpoint_is_refused(text):
    """A mistyped failpoint would make a crash test that never crashes."""
    with pytest.raises(InvalidArgumentError, match="the points are before_write, after_write"):
        kill_at(text)
