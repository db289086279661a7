"""The lease accepted last (K2), kept for a batch whose commit entry is lost."""

import pytest

from ackq.errors import (
    CheckpointMismatchError,
    FencedError,
    SessionNotFoundError,
)
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import BOB, DAY_US, Harness, Reader, labels


def test_the_lease_accepted_last_can_be_read_again(harness: Harness, reader: Reader) -> None:
    """K2: after the accept the same tags give the same rows, and the session continues."""
    chunks = reader.advance(0, max_messages=4).chunks
    before = reader.pieces(0, 4)
    reader.advance(4, max_messages=4)
    assert reader.attach(0, 4).chunks == chunks
    assert reader.pieces(0, 4) == before
    assert reader.fetch(1, 3) == labels(2, 3)
    assert reader.attach(4, 8).chunks == reader.reply.chunks
    assert reader.advance(4).end_tag == 8
    assert harness.unacked("q") == 4


def test_a_new_process_can_read_the_kept_lease(harness: Harness, reader: Reader) -> None:
    """K2, S3, Q7: it is read across a restart of the broker too, and under a new epoch."""
    reader.advance(0)
    reader.advance(10)
    harness.restart()
    assert reader.attach(0, 10, holder=BOB).epoch == 2
    assert harness.read(reader.pieces(0, 10, epoch=2)) == labels(1, 10)
    with pytest.raises(FencedError):
        reader.fetch(0, 10)


def test_a_kept_lease_is_in_no_count(harness: Harness, reader: Reader) -> None:
    """K1, K2: only its session still sees an accepted message."""
    reader.advance(0, max_messages=4)
    reader.advance(4, max_messages=2)
    (info,) = views.list_queues(harness.core.state, "q")
    assert (info.ready, info.unacked, info.payload_bytes) == (4, 2, 60)
    assert harness.browse("q") == labels(5, 10)
    assert views.plan_browse(harness.core.state, "q") == (c.BrowseChunk(1, 10, 6, 60),)
    assert harness.do(c.PurgeQueue("q")) == 4
    reader.advance(6)
    assert views.plan_browse(harness.core.state, "q") == ()
    assert harness.do(c.DeleteQueue("q", force=True)) == c.DeletedQueue(0, 0)
    assert reader.fetch(4, 6) == labels(5, 6)


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


def test_kept_transient_messages_become_holes(harness: Harness) -> None:
    """K2, Q7: a restart removes transient messages, and counts none of them twice."""
    harness.declare_filled("q", 2)
    harness.publish_to("q", 2, persistent=False)
    reader = harness.lease("q")
    reader.advance(4)
    assert harness.restart() == 0
    assert reader.fetch(0, 4) == labels(1, 2)
