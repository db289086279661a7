"""The end of the lease accepted last (K2), kept for a batch whose commit entry is lost."""

import pytest

from ackq.errors import CheckpointMismatchError, SessionNotFoundError
from ackq_broker.core import commands as c
from tests.unit.core.harness import DAY_US, Harness, Reader


def test_a_kept_lease_takes_no_room(harness: Harness) -> None:
    """K2, Q3: accepted messages do not count towards a queue's bounds."""
    harness.declare_filled("q", 3, max_length=3, max_bytes=30, overflow="reject-publish")
    reader = harness.lease("q")
    assert list(harness.publish_to("q", 1).confirmed) == []
    reader.advance(3)
    assert list(harness.publish_to("q", 4).confirmed) == [5, 6, 7]


@pytest.mark.parametrize("how", ["accept", "release", "replace", "retention"])
def test_a_kept_lease_ends(harness: Harness, reader: Reader, how: str) -> None:
    """K2, S9: a kept lease ends with the next accept, with its session, or after a week."""
    reader.advance(0)
    reader.advance(10)
    harness.publish_to("q", 1)
    assert harness.core.drain_dead_blocks() == []
    if how == "accept":
        reader.advance(10)
        reader.advance(11)
    elif how == "release":
        harness.do(c.ReleaseSession("s"))
    elif how == "replace":
        harness.open("q")
    else:
        harness.now_us += 7 * DAY_US - 10
        assert harness.decide(c.Housekeep(frozenset({"s"}))).records == ()
        harness.now_us += 20
        harness.do(c.Housekeep(frozenset({"s"})))
    assert harness.core.drain_dead_blocks() == [1]
    with pytest.raises((CheckpointMismatchError, SessionNotFoundError)):
        reader.fetch(0, 10)
