"""Retention by a queue (S13), and its rewind (S14); beside sessions: `test_rewinds`."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core.columns import retained as module
from tests.unit.core.harness import Harness

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def accept(harness: Harness, count: int) -> list[str]:
    """Publishes messages, which a channel then accepts; returns their labels."""
    harness.publish_to("q", count)
    return harness.consume("q", Outcome.ACCEPTED, count)


def rewind(harness: Harness, from_us: int = 0, *, dry_run: bool = False) -> int:
    return harness.do(c.RewindQueue("q", from_us, dry_run)).messages


def pass_hours(harness: Harness, hours: float) -> None:
    harness.housekeep_after(int(hours * HOUR_MS * 1000))


@pytest.fixture(autouse=True)
def queue(harness: Harness) -> str:
    """A queue that retains for a day what channels accept."""
    harness.declare("q", retain_ms=DAY_MS)
    return "q"


def test_accepted_messages_stay_for_their_time(harness: Harness, queue: str) -> None:
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


def test_messages_come_again_once(harness: Harness, queue: str) -> None:
    """S14: before new messages, as redelivered, marked without a batch; and they do not expire."""
    old = accept(harness, 2)
    again = accept(harness, 2)
    harness.publish_to(queue, 1)
    assert rewind(harness, dry_run=True) == 4
    assert harness.ready(queue) == 1
    assert (rewind(harness), rewind(harness)) == (4, 0)
    harness.restart()
    rows = harness.deliver("c", queue)
    assert [label for _, label, _ in rows[:4]] == old + again
    assert [count for _, _, count in rows] == [2, 2, 2, 2, 1]
    harness.settle("c", Outcome.ACCEPTED, rows[0][0])
    harness.settle("c", Outcome.REJECTED, rows[1][0])
    assert (harness.info(queue).retained, rewind(harness)) == (1, 1)
    pieces = harness.do(c.Deliver(b"d", queue, 1)).pieces
    assert [piece.rewound for piece in pieces] == [1]


def test_a_time_to_go_back_to(harness: Harness) -> None:
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
    with pytest.raises(PreconditionFailedError, match=refusal):
        rewind(harness, since - 20 * HOUR_MS * 1000)
    assert rewind(harness, since) == 3


def test_a_queue_that_retains_nothing(harness: Harness) -> None:
    """S14: its rewind is refused, with the property to declare it with."""
    harness.declare_filled("plain", 1)
    harness.consume("plain", Outcome.ACCEPTED)
    with pytest.raises(PreconditionFailedError, match="Declare such a queue with retain_ms"):
        harness.do(c.RewindQueue("plain"))


def test_a_session_and_a_channel_retain_a_message(harness: Harness, queue: str) -> None:
    """S13, S14: it stays until neither does; a rewind of either makes it ready once."""
    harness.publish_to(queue, 1)
    reader = harness.open(queue, session="s", retain_ms=48 * HOUR_MS)
    reader.advance(0)
    reader.advance(1)
    assert harness.info(queue).retained == 0
    assert harness.do(c.RewindSession("s", c.Rewind())).messages == 1
    for rewinds in (lambda: rewind(harness), lambda: harness.do(c.RewindSession("s", c.Rewind()))):
        assert harness.consume(queue, Outcome.ACCEPTED) == ["m1"]
        assert harness.info(queue).retained == 1
        rewinds()
        assert (harness.ready(queue), harness.info(queue).retained) == (1, 0)
        assert rewind(harness) == 0
        harness.core.state.queues[1].check()
    assert harness.consume(queue, Outcome.ACCEPTED) == ["m1"]
    pass_hours(harness, 25)
    assert (harness.info(queue).retained, harness.core.drain_dead_blocks()) == (0, [])
    pass_hours(harness, 30)
    harness.do(c.ReleaseSession("s"))
    assert len(harness.core.drain_dead_blocks()) == 1


@pytest.mark.parametrize("end", [c.PurgeQueue("q"), c.GiveWay(1)])
def test_a_time_before_retention_ended(harness: Harness, end: c.Command) -> None:
    """S13, S14: it is refused after a purge or the end of a group; a later time is not."""
    accept(harness, 2)
    before = harness.now_us
    harness.do(end)
    since = harness.now_us
    accept(harness, 3)
    harness.restart()
    with pytest.raises(PreconditionFailedError, match="is no longer retained"):
        rewind(harness, before)
    assert rewind(harness, since) == 3


@pytest.mark.parametrize("end", ["purge", "deletion", "vanished blocks"])
def test_what_ends_retention(harness: Harness, queue: str, end: str) -> None:
    """S13, Q4, Q7: a purge, a deletion of the queue, or a loss of the blocks."""
    accept(harness, 3)
    ends = {
        "purge": c.PurgeQueue(queue),
        "deletion": c.DeleteQueue(queue),
        "vanished blocks": c.Start("second", "repaired", harness.core.state.blocks.live()),
    }
    reply = harness.do(ends[end])
    assert len(harness.core.drain_dead_blocks()) == 1
    if end == "deletion":
        assert not harness.core.state.queues
    else:
        assert (harness.info(queue).retained, rewind(harness)) == (0, 0)
        assert end != "purge" or reply == 0


def test_the_oldest_gives_way_first(harness: Harness, queue: str) -> None:
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


def test_retained_messages_are_in_few_groups(harness: Harness) -> None:
    """S13: one group for what is accepted in 1/512 of the retention, however often that is."""
    for _ in range(40):
        accept(harness, 1)
        harness.now_us += DAY_MS * 1000 // 512 // 4
    assert len(list(harness.core.state.queues[1].retained.groups())) == 10


def test_groups_of_many_bytes_are_divided(harness: Harness, queue, monkeypatch) -> None:
    """S13: a group has at most about 64 MiB, so that retention gives way in small steps."""
    monkeypatch.setattr(module, "_BYTES", 30)
    for _ in range(4):
        accept(harness, 2)
    harness.restart()
    accept(harness, 1)
    assert harness.do(c.GiveWay(1)) == (1, 40, ("queue 'q'",))
    assert harness.info(queue).retained == 5
