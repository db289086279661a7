"""Advance and attach (S2, S4): a start accepts, leases, or returns the same lease."""

from dataclasses import replace

import pytest

from ackq.errors import (
    CheckpointMismatchError,
)
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import BOB, Harness, Reader, labels


def test_an_outstanding_lease_is_given_again_whatever_the_limit(
    harness: Harness, reader: Reader
) -> None:
    """S4: a start = floor with a lease outstanding returns exactly that lease."""
    first = reader.advance(0, max_messages=4)
    harness.publish_to("q", 5)
    again = reader.advance(0, max_messages=1)
    assert (again.end_tag, again.chunks) == (first.end_tag, first.chunks)
    assert harness.decide(replace(reader.command, start_tag=0, max_bytes=1)).records == ()


def test_a_start_at_the_end_accepts(harness: Harness, reader: Reader) -> None:
    """S4: start = end > floor accepts the lease; one accept later its block is freed."""
    reader.advance(0, max_messages=4)
    reader.advance(4, max_messages=4)
    assert views.list_queues(harness.core.state, "q")[0].accepted == 4
    assert harness.browse("q") == labels(5, 10)
    reader.advance(8)
    reader.advance(10)
    assert views.list_queues(harness.core.state, "q")[0].accepted == 10
    harness.publish_to("q", 1)
    reader.advance(10)
    assert harness.core.drain_dead_blocks() == []
    reader.advance(11)
    assert harness.core.drain_dead_blocks() == [1]


def test_an_accept_can_be_repeated(harness: Harness, reader: Reader) -> None:
    """S4: when its answer is lost, the same call succeeds and returns the same lease."""
    reader.advance(0, max_messages=4)
    first = reader.advance(4, max_messages=3)
    again = reader.advance(4, max_messages=3)
    assert (again.end_tag, again.epoch) == (first.end_tag, first.epoch)
    assert views.list_queues(harness.core.state, "q")[0].accepted == 4


def test_an_accept_of_the_last_batch_needs_no_new_data(harness: Harness, reader: Reader) -> None:
    """S4, K1: an accept happens also when no message can be leased."""
    reader.advance(0)
    reply = reader.advance(10)
    assert reply.end_tag == 10
    assert reply.chunks == ()
    assert reply.backlog == c.Backlog(ready=0, unacked=0, oldest_us=0, redelivered=0)
    assert harness.decide(replace(reader.command, start_tag=10)).records == ()


def test_a_start_before_the_floor_is_an_old_checkpoint(reader: Reader) -> None:
    """S4: refused with the tags: the checkpoint is older than what was accepted."""
    reader.advance(0, max_messages=4)
    reader.advance(4, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match="older than the accepted batches") as caught:
        reader.advance(0)
    assert {k: caught.value.fields[k] for k in ("start_tag", "floor_tag", "end_tag")} == {
        "start_tag": "0",
        "floor_tag": "4",
        "end_tag": "8",
    }


def test_a_start_after_the_end_is_an_old_broker(reader: Reader) -> None:
    """S4: refused with the tags: the broker is older than the checkpoint."""
    reader.advance(0, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match="broker is older than the checkpoint"):
        reader.advance(9)


def test_a_start_inside_the_lease_is_refused(reader: Reader) -> None:
    """S4: no batch ended at this tag."""
    reader.advance(0, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match=r"lease is \(0, 4\]"):
        reader.advance(2)


def test_takeover_overrides_no_tag_check(reader: Reader) -> None:
    """S4: no option makes a wrong start acceptable."""
    reader.advance(0, max_messages=4)
    with pytest.raises(CheckpointMismatchError):
        reader.advance(9, takeover=True)


def test_the_backlog_is_that_after_the_call(harness: Harness, reader: Reader) -> None:
    """S4: it has the ready, unacked and oldest messages after accept and lease."""
    published_us = harness.now_us
    harness.publish_to("q", 2)
    published_us = harness.now_us
    reader.advance(0, max_messages=10)
    reply = reader.advance(10, max_messages=1)
    assert reply.backlog == c.Backlog(1, 1, published_us, 0)
    (queue,) = views.list_queues(harness.core.state, "q")
    assert (queue.ready, queue.unacked) == (1, 1)
    assert views.ready_total(harness.core.state, "s") == 1
    assert views.ready_total(harness.core.state, "unknown") == 0


def test_a_replay_attaches_to_exactly_the_lease(harness: Harness, reader: Reader) -> None:
    """S2: a replay leases and accepts no message, and returns the same chunks."""
    chunks = reader.advance(0, max_messages=4).chunks
    reply = reader.attach(0, 4, holder=BOB)
    assert (reply.epoch, reply.chunks) == (2, chunks)
    assert harness.unacked("q") == 4
    assert (
        harness.decide(
            c.Attach("s", reader.command.incarnation, BOB, 0, 4, incumbent_live=True)
        ).records
        == ()
    )


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (0, 2, "older than the accepted batches"),
        (3, 4, "older than the accepted batches"),
        (2, 8, "older than the accepted batches"),
        (4, 9, "broker is older than the checkpoint"),
        (4, 7, r"lease is \(4, 8\]"),
        (6, 8, r"lease is \(4, 8\]"),
    ],
)
def test_a_replay_of_other_tags_is_refused(
    reader: Reader, start: int, end: int, message: str
) -> None:
    """S2, S4: the refusal has the tags and the cause."""
    reader.advance(0, max_messages=2)
    reader.advance(2, max_messages=2)
    reader.advance(4, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match=message):
        reader.attach(start, end)
