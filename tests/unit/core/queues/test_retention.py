"""Retention by a queue (S13), and its rewind (S14); beside sessions: `SessionMachine`."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.harness import refused

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def accept(harness, count):
    """Publishes messages, which a channel then accepts; returns their labels."""
    harness.publish_to("q", count)
    return harness.consume("q", Outcome.ACCEPTED, count)


def rewind(harness, from_us=0, *, dry_run=False):
    return harness.do(c.RewindQueue("q", from_us, dry_run)).messages


def pass_hours(harness, hours):
    harness.housekeep_after(int(hours * HOUR_MS * 1000))


@pytest.fixture(autouse=True)
def queue(harness):
    """A queue that retains for a day what channels accept."""
    harness.declare("q", retain_ms=DAY_MS)
    return "q"


def test_accepted_messages_stay_for_their_time(harness, queue):
    """S13: in no other figure, with their blocks, and for at most 1/512 longer than a day."""
    accept(harness, 3)
    began = harness.now_us
    pass_hours(harness, 12)
    accept(harness, 2)
    harness.restart()
    info = harness.info(queue)
    assert (info.ready, info.unacked, info.payload_bytes, info.accepted) == (0, 0, 0, 5)
    assert (info.retained, info.retained_payload_bytes) == (5, 50)
    assert 0 <= info.retained_since_us - began <= DAY_MS * 1000 / 512
    assert harness.core.drain_dead_blocks() == []
    pass_hours(harness, 12 + 24 / 512)
    assert harness.info(queue).retained == 2
    assert len(harness.core.drain_dead_blocks()) == 1
    pass_hours(harness, 12)
    gone = {"retained": 0, "retained_payload_bytes": 0, "retained_since_us": 0}
    assert harness.info(queue) == info._replace(**gone)


def test_a_time_to_go_back_to(harness):
    """S14: messages accepted since a time; a time before the end of retention is refused."""
    accept(harness, 2)
    pass_hours(harness, 20)
    since = harness.now_us
    accept(harness, 3)
    assert rewind(harness, since, dry_run=True) == 3
    assert rewind(harness, since - 20 * HOUR_MS * 1000, dry_run=True) == 5
    pass_hours(harness, 10)
    harness.restart()
    refusal = r"accepted before 2.*Z is no longer retained"
    refused(PreconditionFailedError, refusal, rewind, harness, since - 20 * HOUR_MS * 1000)
    assert rewind(harness, since) == 3
    pieces = harness.do(c.Deliver(b"d", "q", 1)).pieces
    assert [piece.rewound for piece in pieces] == [1]  # in no batch


@pytest.mark.parametrize("end", [c.PurgeQueue("q"), c.GiveWay(1)])
def test_a_time_before_retention_ended(harness, end):
    """S13, S14: it is refused after a purge or the end of a group; a later time is not."""
    accept(harness, 2)
    before = harness.now_us
    harness.do(end)
    since = harness.now_us
    accept(harness, 3)
    harness.restart()
    refused(PreconditionFailedError, "is no longer retained", rewind, harness, before)
    assert rewind(harness, since) == 3


def test_the_oldest_gives_way_first(harness, queue):
    """S13: among sessions and queues by the time of acceptance, as much as is asked for."""
    harness.declare("r")
    reader = harness.open("r", session="s", retain_ms=DAY_MS)
    reader.advance(0)
    for batch in (1, 2, 3):
        accept(harness, 2)
        pass_hours(harness, 1)
        harness.publish_to("r", 1)
        reader.advance(batch - 1)
        reader.advance(batch)
        pass_hours(harness, 1)
    given = harness.do(c.GiveWay(31))
    assert given == (3, 50, ("session 's'", "queue 'q'"))
    harness.restart()
    assert harness.info(queue).retained == 2
    with pytest.raises(PreconditionFailedError, match="is no longer retained"):
        rewind(harness, harness.now_us - 5 * HOUR_MS * 1000)
    assert harness.do(c.GiveWay(10_000)) == (2, 30, ("session 's'", "queue 'q'"))
    assert harness.do(c.GiveWay(10_000)) == (0, 0, ())
