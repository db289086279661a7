"""Leases (S1, S2, K5, K6): their messages, fetches and limits."""

from dataclasses import replace

import pytest

from ackq.errors import (
    AlreadyHeldError,
    CheckpointMismatchError,
    SessionNotFoundError,
)
from ackq_broker.core import commands as c
from tests.unit.core.harness import BOB, DAY_US, Harness, Reader, labels


def test_tags_begin_at_one_and_go_on(reader: Reader) -> None:
    """S1: a session's tags count from 1, across leases."""
    assert reader.advance(0, max_messages=4).end_tag == 4
    assert reader.advance(4, max_messages=4).end_tag == 8
    assert reader.fetch(4, 8) == labels(5, 8)


def test_at_most_one_lease(harness: Harness, reader: Reader) -> None:
    """S1: the next lease is made only when the previous one is accepted, in the same record."""
    reader.advance(0, max_messages=4)
    decision = harness.decide(replace(reader.command, start_tag=4, max_messages=4))
    assert len(decision.records) == 1
    assert (reader.info().floor_tag, reader.info().end_tag) == (4, 8)
    assert harness.unacked("q") == 4


def test_a_lease_can_be_read_in_any_parts(reader: Reader) -> None:
    """S2: sub-ranges, in any order and repeatedly, give the same rows."""
    reader.advance(0)
    whole = reader.fetch(0, 10)
    assert whole == labels(1, 10)
    assert reader.fetch(7, 10) + reader.fetch(0, 3) + reader.fetch(3, 7) == (
        labels(8, 10) + labels(1, 3) + labels(4, 7)
    )
    assert reader.fetch(0, 10) == whole
    assert reader.fetch(5, 5) == []


def test_a_lease_survives_a_restart(harness: Harness, reader: Reader) -> None:
    """S1, S2, Q7: the mapping is on disk; delivery counts stay as first delivered."""
    reader.advance(0, max_messages=6)
    before = reader.pieces(0, 6)
    harness.restart()
    assert reader.pieces(0, 6) == before
    assert reader.advance(0).end_tag == 6


@pytest.mark.parametrize(("after", "last"), [(3, 9), (5, 9), (9, 8), (1, 3), (3, 6)])
def test_a_fetch_outside_the_lease_is_refused(reader: Reader, after: int, last: int) -> None:
    """S2: only the outstanding and the kept lease can be read; the refusal names the first."""
    reader.advance(0, max_messages=2)
    reader.advance(2, max_messages=2)
    reader.advance(4, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match=r"outstanding lease \(4, 8\]"):
        reader.fetch(after, last)


def test_a_fetch_is_a_pure_read(harness: Harness, reader: Reader) -> None:
    """I3: a fetch changes no state; a note of it is kept for operators and settle calls."""
    reader.advance(0)
    before = harness.core.snapshot()
    reader.fetch(0, 10)
    assert harness.core.snapshot() == before
    reader.note()
    assert (reader.info().fetch, reader.info().run_id) == (c.FetchLabel("query", 7, "label"), "run")


def test_a_leased_message_is_not_leased_again(harness: Harness, reader: Reader) -> None:
    """S1: two sessions on a queue share its messages."""
    other = harness.open("q", session="other", holder=BOB)
    reader.advance(0, max_messages=6)
    assert other.advance(0).end_tag == 4
    assert other.fetch(0, 4) == labels(7, 10)


# --- K6: limits and chunks ---


def test_one_message_is_leased_whatever_its_size(reader: Reader) -> None:
    """S4: a byte limit below one message leases one."""
    assert reader.advance(0, max_bytes=1).end_tag == 1


def test_a_byte_limit_cuts_pro_rata(harness: Harness, reader: Reader) -> None:
    """K6: whole blocks count by their bytes, a part of a block by its share."""
    harness.publish_to("q", 10, row_bytes=100)
    assert reader.advance(0, max_bytes=55).end_tag == 5
    assert reader.advance(5, max_bytes=50 + 350).end_tag == 5 + 5 + 3


def test_both_limits_hold(reader: Reader) -> None:
    """K6: the narrower limit decides."""
    assert reader.advance(0, max_messages=7, max_bytes=30).end_tag == 3
    assert reader.advance(3, max_messages=2, max_bytes=60).end_tag == 5


def test_a_minimum_waits_for_more_or_for_its_time(harness: Harness, reader: Reader) -> None:
    """K6: fewer than the minimum are leased only once the oldest has waited long enough."""
    wish = {"min_messages": 11, "max_delay_ms": 1000}
    assert reader.advance(0, **wish).end_tag == 0
    harness.now_us += 1_000_000
    assert reader.advance(0, **wish).end_tag == 10


def test_a_minimum_that_is_there_is_leased(reader: Reader) -> None:
    """K6: the minimum counts eligible messages; the maximum still bounds the lease."""
    assert reader.advance(0, min_messages=10, max_messages=4).end_tag == 4


def test_a_minimum_without_delay_waits(harness: Harness, reader: Reader) -> None:
    """K6: without a maximum delay a minimum waits for ever."""
    harness.now_us += 365 * DAY_US
    assert reader.advance(0, min_messages=11).end_tag == 0


def test_a_minimum_does_not_apply_under_available_now(harness: Harness, reader: Reader) -> None:
    """K5: a call with a horizon ignores the minimum; under once no minimum is named."""
    horizon = harness.core.sequence
    assert reader.advance(0, min_messages=100, horizon=horizon).end_tag == 10


def test_a_minimum_applies_to_an_opening_that_leases(harness: Harness) -> None:
    """K6, K13: a reader that does not know its trigger leases in its first call."""
    harness.declare("one")
    harness.publish_to("one", 1)
    wish = {"min_messages": 2, "max_delay_ms": 60_000, "open_and_lease": True}
    reader = harness.open("one", session="waits", **wish)
    assert reader.reply.end_tag == 0
    harness.publish_to("one", 1)
    assert reader.advance(0, min_messages=2).end_tag == 2
    harness.publish_to("one", 1)
    assert harness.open("one", session="once", open_and_lease=True).reply.end_tag == 1


def test_chunks_follow_blocks(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: a lease is cut along blocks into chunks of about the target, which cover it."""
    monkeypatch.setattr("ackq.limits.LEASE_CHUNK_TARGET_BYTES", 50)
    harness.declare("q")
    for count in (3, 3, 3, 9, 1):
        harness.publish_to("q", count, row_bytes=10)
    reply = harness.open("q").advance(0, max_messages=18)
    assert reply.chunks == (c.Chunk(3, 30), c.Chunk(9, 60), c.Chunk(18, 90))
    monkeypatch.setattr("ackq.limits.MAX_LEASE_CHUNKS", 3)
    assert harness.open("q", session="t").advance(0).chunks == (c.Chunk(1, 10),)


def test_the_number_of_chunks_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: a lease of many blocks has larger chunks, not more."""
    monkeypatch.setattr("ackq.limits.LEASE_CHUNK_TARGET_BYTES", 1)
    monkeypatch.setattr("ackq.limits.MAX_LEASE_CHUNKS", 4)
    harness.declare("q")
    for _ in range(30):
        harness.publish_to("q", 1)
    reply = harness.open("q").advance(0)
    assert len(reply.chunks) <= 4
    assert reply.chunks[-1].last_tag == 30
    assert sum(chunk.payload_bytes for chunk in reply.chunks) == 300


def test_several_queues_share_a_lease(harness: Harness) -> None:
    """S10: queues share equally, the rest goes to longer queues, and the turn rotates."""
    harness.declare("a", "b", "c")
    harness.publish(["a"] * 8 + ["b"] * 2 + ["c"] * 8)
    reader = harness.open("a", "b", "c")
    assert reader.advance(0, max_messages=9).end_tag == 9
    assert [piece.queue for piece in reader.pieces(0, 9)] == ["a", "b", "c"]
    assert reader.fetch(0, 9) == [*labels(1, 3), *labels(9, 10), *labels(11, 14)]
    assert reader.advance(9, max_messages=2).end_tag == 11
    assert reader.fetch(9, 11) == ["m15", "m4"]


def test_a_byte_limit_is_shared_as_well(harness: Harness) -> None:
    """S10, K6: no queue takes the whole byte limit from the others."""
    harness.declare("a", "b")
    harness.publish_to("a", 10, row_bytes=10)
    harness.publish_to("b", 10, row_bytes=10)
    reader = harness.open("a", "b")
    assert reader.advance(0, max_bytes=60).end_tag == 6
    assert reader.fetch(0, 6) == [*labels(1, 3), *labels(11, 13)]


# --- K5: the horizon ---


def test_a_horizon_bounds_what_is_leased(harness: Harness, reader: Reader) -> None:
    """K5: only messages that became ready at or before the sequence of prepare are leased."""
    horizon = harness.core.sequence
    harness.publish_to("q", 5)
    assert reader.advance(0, horizon=horizon).end_tag == 10
    assert reader.advance(10, horizon=horizon).end_tag == 10
    assert harness.ready("q") == 5


def test_rows_put_back_by_the_run_do_not_keep_it_alive(harness: Harness, reader: Reader) -> None:
    """K5: a message that became ready again after the horizon waits for the next run."""
    reader.advance(0, max_messages=4)
    horizon = harness.core.sequence
    harness.do(c.ReleaseSession("s"))
    second = harness.open("q")
    assert second.advance(0, horizon=horizon).end_tag == 6
    assert second.fetch(0, 6) == labels(5, 10)
    assert second.advance(6, horizon=horizon).end_tag == 6
    assert second.advance(6, horizon=harness.core.sequence).end_tag == 10


def test_what_the_session_holds_is_inside_the_horizon(reader: Reader) -> None:
    """K5: an outstanding lease is returned again, however old the horizon."""
    reader.advance(0, max_messages=4)
    assert reader.advance(0, horizon=1).end_tag == 4


def test_a_horizon_before_everything_leases_nothing(reader: Reader) -> None:
    """K5: not even the one message that is always leased otherwise."""
    assert reader.advance(0, horizon=1).end_tag == 0


def test_a_horizon_after_a_commit_of_staged_rows(harness: Harness, reader: Reader) -> None:
    """K5: staged rows become ready at their commit, not when they were staged."""
    stage = harness.stage("w", 1, ["q"] * 2, name="late")
    horizon = harness.core.sequence
    harness.commit("w", 1, stage)
    assert reader.advance(0, horizon=horizon).end_tag == 10
    assert reader.advance(10, horizon=harness.core.sequence).end_tag == 12


# --- S7: leased messages stay; C7: counts ---


def test_a_leased_message_stays(harness: Harness, reader: Reader) -> None:
    """S7: no purge or housekeeping removes it, however long its owner is away."""
    reader.advance(0, max_messages=4)
    harness.do(c.PurgeQueue("q"))
    harness.housekeep_after(365 * DAY_US)
    harness.restart()
    assert reader.fetch(0, 4) == labels(1, 4)


def test_released_messages_come_back_in_place_and_redelivered(
    harness: Harness, reader: Reader
) -> None:
    """S5, C6, C7: at their old positions, with one delivery more each time."""
    reader.advance(0, max_messages=4)
    assert harness.do(c.ReleaseSession("s")) == c.Released(4, 0)
    assert harness.browse("q") == labels(1, 10)
    second = harness.open("q")
    reply = second.advance(0, max_messages=6)
    assert reply.backlog.redelivered == 4
    assert second.pieces(0, 6)[0].runs == (c.Run(1, 4, 2), c.Run(5, 2, 1))
    harness.do(c.ReleaseSession("s"))
    third = harness.open("q")
    assert third.advance(0).backlog.redelivered == 6
    assert third.pieces(0, 10)[0].runs == (c.Run(1, 4, 3), c.Run(5, 2, 2), c.Run(7, 4, 1))
    third.advance(10)
    assert harness.browse("q") == []


def test_a_replay_counts_no_delivery(reader: Reader) -> None:
    """S1: delivery counts stay as first delivered at each attach."""
    reader.advance(0)
    before = reader.pieces(0, 10)
    reader.advance(0, holder=BOB)
    assert reader.pieces(0, 10) == before


def test_release_needs_a_fence_while_the_holder_lives(harness: Harness, reader: Reader) -> None:
    """S8: an operator ends a running query only with --fence; its incarnation is refused then."""
    reader.advance(0)
    with pytest.raises(AlreadyHeldError, match="add --fence"):
        harness.do(c.ReleaseSession("s", incumbent_live=True))
    assert harness.do(c.ReleaseSession("s", fence=True, incumbent_live=True)) == c.Released(10, 0)
    for call in (lambda: reader.advance(0), lambda: reader.fetch(0, 10)):
        with pytest.raises(SessionNotFoundError, match="released by an operator"):
            call()
    with pytest.raises(SessionNotFoundError, match="ackq session list"):
        harness.do(c.ReleaseSession("s"))
