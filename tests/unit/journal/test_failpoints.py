"""Failpoints: each is reached, and a mistyped one is refused."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.journal import POINTS, kill_at
from tests.unit.journal.life import live_twice
from tests.unit.journal.notes import NotingDisk


def test_every_point_is_met_and_every_change_has_a_point(tmp_path):
    """Q7: a failpoint that no journal reaches, or a change without one, would not be tested."""
    met = []
    disk = NotingDisk(tmp_path / "notes")
    live_twice(tmp_path / "new" / "data", disk, failpoint=met.append)

    assert set(met) == set(POINTS)


@pytest.mark.parametrize(
    "text",
    ["", "nowhere", "before_write_segment:0", "before_write_segment:x", "after_sync_file:-1", ":1"],
)
def test_a_bad_failpoint_is_refused(text):
    """With a mistyped failpoint a crash test would never crash."""
    with pytest.raises(InvalidArgumentError, match="the points are before_make_directory_parent, "):
        kill_at(text)
