"""Failpoints: each is met, and a mistyped one is refused."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.journal import POINTS, kill_at
from tests.unit.journal.life import live_twice
from tests.unit.journal.notes import NotingDisk


def test_every_point_is_met_and_every_change_has_a_point(tmp_path):
    """Q7: a point that no journal comes to would be tested by nothing, and a change of the disk
    without a point as well.
    """
    met = []
    disk = NotingDisk(tmp_path / "notes")
    live_twice(tmp_path / "new" / "data", disk, failpoint=met.append)

    assert set(met) == set(POINTS)


@pytest.mark.parametrize(
    "text",
    ["", "nowhere", "before_write_segment:0", "before_write_segment:x", "after_sync_file:-1", ":1"],
)
def test_a_bad_failpoint_is_refused(text):
    """A mistyped failpoint would make a crash test that never crashes."""
    with pytest.raises(InvalidArgumentError, match="the points are before_make_directory_parent, "):
        kill_at(text)
