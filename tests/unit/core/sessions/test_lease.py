"""Limits of a lease (K5, K6), its chunks (S1) and its queues (S10); rows: `test_model`."""

import pytest

from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US, labels


@pytest.mark.parametrize(
    ("limits", "wait_us", "end_tag"),
    [
        ({"max_bytes": 1}, 0, 1),  # one message, whatever its size
        ({"max_bytes": 155}, 0, 10),
        ({"max_bytes": 450}, 0, 13),  # a part of a block counts by its share
        ({"max_messages": 7, "max_bytes": 30}, 0, 3),
        ({"max_messages": 2, "max_bytes": 60}, 0, 2),
        ({"min_messages": 15, "max_messages": 4}, 0, 4),
        ({"min_messages": 16}, 365 * DAY_US, 0),
        ({"min_messages": 16, "max_delay_ms": 1000}, 900_000, 0),
        ({"min_messages": 16, "max_delay_ms": 1000}, 1_000_000, 15),
        ({"min_messages": 100, "horizon": 1 << 40}, 0, 15),  # a horizon ignores the minimum
        ({"horizon": 1}, 0, 0),
        ({"horizon": 4}, 0, 10),
    ],
)
def test_limits_of_a_lease(harness, reader, limits, wait_us, end_tag):
    """K5, K6, S4: ten messages of 10 bytes, then five of 100, under each limit."""
    harness.publish_to("q", 5, row_bytes=100)
    harness.now_us += wait_us
    assert reader.advance(0, **limits).end_tag == end_tag
    assert reader.advance(0, horizon=1).end_tag == end_tag


def test_chunks_follow_blocks(harness, monkeypatch):
    """S1: a lease is cut along blocks into chunks of about the target, which cover it."""
    monkeypatch.setattr("ackq.limits.LEASE_CHUNK_TARGET_BYTES", 50)
    harness.declare("q")
    for count in (3, 3, 3, 9, 1):
        harness.publish_to("q", count, row_bytes=10)
    reply = harness.open("q").advance(0, max_messages=18)
    assert reply.chunks == (c.Chunk(3, 30), c.Chunk(9, 60), c.Chunk(18, 90))
    monkeypatch.setattr("ackq.limits.MAX_LEASE_CHUNKS", 3)
    assert harness.open("q", session="t").advance(0).chunks == (c.Chunk(1, 10),)


def test_several_queues_share_a_lease(harness):
    """S10: queues share equally, the rest goes to longer queues, and the turn rotates."""
    harness.declare("a", "b", "c")
    harness.publish(["a"] * 8 + ["b"] * 2 + ["c"] * 8)
    reader = harness.open("a", "b", "c")
    assert reader.advance(0, max_messages=9).end_tag == 9
    ready = [views.ready_total(harness.core.state, name) for name in ("s", "unknown")]
    assert ready == [9, 0]
    assert [piece.queue for piece in reader.pieces(0, 9)] == ["a", "b", "c"]
    assert reader.fetch(0, 9) == [*labels(1, 3), *labels(9, 10), *labels(11, 14)]
    assert reader.advance(9, max_messages=2).end_tag == 11
    assert reader.fetch(9, 11) == ["m15", "m4"]


def test_rows_put_back_by_the_run_do_not_keep_it_alive(harness, reader):
    """K5: messages requeued or committed after the horizon wait for the next run."""
    reader.advance(0, max_messages=4)
    horizon = harness.core.sequence
    harness.do(c.ReleaseSession("s"))
    second = harness.open("q")
    assert second.advance(0, horizon=horizon).end_tag == 6
    assert second.fetch(0, 6) == labels(5, 10)
    assert second.advance(6, horizon=horizon).end_tag == 6
    stage = harness.stage("w", 1, ["q"], name="late")
    horizon = harness.core.sequence
    harness.commit("w", 1, stage)
    assert second.advance(6, horizon=horizon).end_tag == 10
    assert second.advance(10, horizon=horizon).end_tag == 10
    assert second.advance(10, horizon=harness.core.sequence).end_tag == 11
