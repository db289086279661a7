"""Sessions: one lease, read as often as one likes, accepted by a start that proves its batch."""

from dataclasses import replace

import pytest

from ackq.errors import (
    AlreadyHeldError,
    CheckpointMismatchError,
    FencedError,
    InvalidArgumentError,
    LeaseHeldError,
    LimitError,
    QueueNotFoundError,
    SessionNotFoundError,
)
from ackq_broker.core import commands as c
from tests.unit.core.harness import ALICE, BOB, DAY_US, Harness, Reader, labels


@pytest.fixture
def reader(harness: Harness) -> Reader:
    """A session on a queue of ten messages, opened and not advanced yet."""
    harness.declare("q")
    harness.publish_to("q", 10)
    return harness.open("q")


# --- S1, S2: the lease ---


def test_tags_begin_at_one_and_go_on(reader: Reader) -> None:
    """S1: a session's tags count from 1, across leases."""
    assert reader.advance(0, max_messages=4).end_tag == 4
    assert reader.advance(4, max_messages=4).end_tag == 8
    assert reader.fetch(4, 8) == labels(5, 8)


def test_at_most_one_lease(harness: Harness, reader: Reader) -> None:
    """S1: the next lease is made only when the one before is accepted, in the same record."""
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
    """S1, S2, Q7: its mapping is on disk; delivery counts stay as first delivered."""
    reader.advance(0, max_messages=6)
    before = reader.pieces(0, 6)
    harness.restart()
    assert reader.pieces(0, 6) == before
    assert reader.advance(0).end_tag == 6


@pytest.mark.parametrize(("after", "last"), [(3, 9), (5, 9), (9, 8), (1, 3), (3, 6)])
def test_a_fetch_outside_the_lease_is_refused(reader: Reader, after: int, last: int) -> None:
    """S2: only the outstanding and the kept lease can be read, and the refusal names the first."""
    reader.advance(0, max_messages=2)
    reader.advance(2, max_messages=2)
    reader.advance(4, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match=r"outstanding lease \(4, 8\]"):
        reader.fetch(after, last)


def test_a_fetch_is_a_pure_read(harness: Harness, reader: Reader) -> None:
    """I3: it changes nothing; that it came is noted beside it, for operators and settle calls."""
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


# --- S3: holders ---


def test_the_same_token_keeps_its_epoch(reader: Reader) -> None:
    """S3: a call repeated by the same process is no new attach."""
    assert reader.advance(0).epoch == 1
    assert reader.advance(0, incumbent_live=True).epoch == 1
    assert reader.info().attaches == 1


def test_a_live_holder_is_named(reader: Reader) -> None:
    """S3, K10: another process is refused while the holder lives, and learns who it is."""
    reader.advance(0)
    with pytest.raises(AlreadyHeldError, match=r"host-a, pid 11 \(app-a\), since 2023-11-14T") as e:
        reader.advance(0, holder=BOB, incumbent_live=True)
    assert e.value.fields["holder_host"] == "host-a"
    assert e.value.fields["holder_pid"] == "11"
    with pytest.raises(AlreadyHeldError):
        reader.attach(0, 10, holder=BOB, incumbent_live=True)
    with pytest.raises(AlreadyHeldError):
        reader.harness.open("q", holder=BOB, incumbent_live=True)


def test_a_new_holder_fences_the_old_one(reader: Reader) -> None:
    """S3: the epoch rises, and every call of the older one is refused, naming the new holder."""
    reader.advance(0, max_messages=4)
    assert reader.advance(0, holder=BOB).epoch == 2
    assert reader.fetch(0, 4) == labels(1, 4)
    with pytest.raises(FencedError, match="host-b, pid 22") as caught:
        reader.pieces(0, 4, epoch=1)
    assert caught.value.fields["current_epoch"] == "2"
    core, incarnation = reader.harness.core, reader.command.incarnation
    core.check_holder("s", incarnation, 2, BOB.token)
    for epoch, token in ((1, ALICE.token), (2, ALICE.token)):
        with pytest.raises(FencedError, match="host-b"):
            core.check_holder("s", incarnation, epoch, token)


def test_an_epoch_from_the_future_is_a_broker_of_the_past(reader: Reader) -> None:
    """S3: a reader that knows more than the broker is told so."""
    reader.advance(0)
    with pytest.raises(CheckpointMismatchError, match="older than the reader"):
        reader.pieces(0, 10, epoch=2)


def test_attaches_are_counted_per_lease(reader: Reader) -> None:
    """S8: each new holder of a lease counts; a new lease begins at one."""
    assert reader.advance(0, max_messages=4).attaches == 1
    assert reader.advance(0, holder=BOB).attaches == 2
    assert reader.attach(0, 4, holder=ALICE).attaches == 3
    assert reader.info().attaches == 3
    assert reader.advance(4, holder=BOB).attaches == 1


def test_the_service_learns_whom_a_call_would_meet(reader: Reader) -> None:
    """S3: incarnation and token, which the service keeps liveness by."""
    core, incarnation = reader.harness.core, reader.command.incarnation
    assert core.incumbent("s", "") == (incarnation, ALICE.token)
    assert core.incumbent("", incarnation) == (incarnation, ALICE.token)
    assert core.incumbent("s", "unknown") is None
    assert core.incumbent("unknown", "") is None
    assert core.holder_of("s") == ALICE.token
    assert core.holder_of("unknown") is None


# --- S4: advance ---


def test_an_outstanding_lease_is_given_again_whatever_the_limit(
    harness: Harness, reader: Reader
) -> None:
    """S4: start = floor with a lease outstanding: exactly that lease."""
    first = reader.advance(0, max_messages=4)
    harness.publish_to("q", 5)
    again = reader.advance(0, max_messages=1)
    assert (again.end_tag, again.chunks) == (first.end_tag, first.chunks)
    assert harness.decide(replace(reader.command, start_tag=0, max_bytes=1)).records == ()


def test_a_start_at_the_end_accepts(harness: Harness, reader: Reader) -> None:
    """S4: start = end > floor accepts the lease; its messages are gone, and one accept later their
    block.
    """
    reader.advance(0, max_messages=4)
    reader.advance(4, max_messages=4)
    assert harness.core.queues("q")[0].accepted == 4
    assert harness.browse("q") == labels(5, 10)
    reader.advance(8)
    reader.advance(10)
    assert harness.core.queues("q")[0].accepted == 10
    harness.publish_to("q", 1)
    reader.advance(10)
    assert harness.core.drain_dead_blocks() == []
    reader.advance(11)
    assert harness.core.drain_dead_blocks() == [1]


def test_an_accept_can_be_repeated(harness: Harness, reader: Reader) -> None:
    """S4: when its answer is lost, the same call is a success and gives the same lease."""
    reader.advance(0, max_messages=4)
    first = reader.advance(4, max_messages=3)
    again = reader.advance(4, max_messages=3)
    assert (again.end_tag, again.epoch) == (first.end_tag, first.epoch)
    assert harness.core.queues("q")[0].accepted == 4


def test_an_accept_of_the_last_batch_needs_no_new_data(harness: Harness, reader: Reader) -> None:
    """S4, K1: with nothing to lease the accept happens all the same."""
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
    with pytest.raises(CheckpointMismatchError, match="older than what was accepted") as caught:
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
    """S4: no batch ended there."""
    reader.advance(0, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match=r"lease is \(0, 4\]"):
        reader.advance(2)


def test_takeover_overrides_no_tag_check(reader: Reader) -> None:
    """S4: no option makes a wrong start acceptable."""
    reader.advance(0, max_messages=4)
    with pytest.raises(CheckpointMismatchError):
        reader.advance(9, takeover=True)


def test_one_message_is_leased_whatever_its_size(reader: Reader) -> None:
    """S4: a byte limit below one message leases one."""
    assert reader.advance(0, max_bytes=1).end_tag == 1


def test_a_byte_limit_cuts_pro_rata(harness: Harness, reader: Reader) -> None:
    """K6: whole blocks by their bytes, part of a block by its share."""
    harness.publish_to("q", 10, row_bytes=100)
    assert reader.advance(0, max_bytes=55).end_tag == 5
    assert reader.advance(5, max_bytes=50 + 350).end_tag == 5 + 5 + 3


def test_both_limits_hold(reader: Reader) -> None:
    """K6: the narrower one decides."""
    assert reader.advance(0, max_messages=7, max_bytes=30).end_tag == 3
    assert reader.advance(3, max_messages=2, max_bytes=60).end_tag == 5


def test_a_minimum_waits_for_more_or_for_its_time(harness: Harness, reader: Reader) -> None:
    """K6: fewer than the minimum are leased only once the oldest has waited long enough."""
    wish = {"min_messages": 11, "max_delay_ms": 1000}
    assert reader.advance(0, **wish).end_tag == 0
    harness.now_us += 1_000_000
    assert reader.advance(0, **wish).end_tag == 10


def test_a_minimum_that_is_there_is_leased(reader: Reader) -> None:
    """K6: the minimum counts what is eligible, the maximum still bounds the lease."""
    assert reader.advance(0, min_messages=10, max_messages=4).end_tag == 4


def test_a_minimum_without_delay_waits(harness: Harness, reader: Reader) -> None:
    """K6: without a maximum delay, for ever."""
    harness.now_us += 365 * DAY_US
    assert reader.advance(0, min_messages=11).end_tag == 0


def test_a_minimum_does_not_apply_under_available_now(harness: Harness, reader: Reader) -> None:
    """K5: neither with a horizon nor when opening and leasing in one call."""
    horizon = harness.core.sequence
    assert reader.advance(0, min_messages=100, horizon=horizon).end_tag == 10
    harness.publish_to("q", 1)
    once = harness.open("q", session="once", min_messages=100, open_and_lease=True)
    assert once.reply.end_tag == 1


def test_chunks_follow_blocks(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: a lease can be cut along blocks into pieces of about the target; they cover it."""
    monkeypatch.setattr("ackq.limits.LEASE_CHUNK_TARGET_BYTES", 50)
    harness.declare("q")
    for count in (3, 3, 3, 9, 1):
        harness.publish_to("q", count, row_bytes=10)
    reply = harness.open("q").advance(0, max_messages=18)
    assert reply.chunks == (c.Chunk(3, 30), c.Chunk(9, 60), c.Chunk(18, 90))
    monkeypatch.setattr("ackq.limits.MAX_LEASE_CHUNKS", 3)
    assert harness.open("q", session="t").advance(0).chunks == (c.Chunk(1, 10),)


def test_the_number_of_chunks_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: a lease of very many blocks has larger chunks, not more."""
    monkeypatch.setattr("ackq.limits.LEASE_CHUNK_TARGET_BYTES", 1)
    monkeypatch.setattr("ackq.limits.MAX_LEASE_CHUNKS", 4)
    harness.declare("q")
    for _ in range(30):
        harness.publish_to("q", 1)
    reply = harness.open("q").advance(0)
    assert len(reply.chunks) <= 4
    assert reply.chunks[-1].last_tag == 30
    assert sum(chunk.payload_bytes for chunk in reply.chunks) == 300


def test_the_backlog_is_that_after_the_call(harness: Harness, reader: Reader) -> None:
    """S4: ready, unacked and the oldest message once accept and lease are done."""
    published_us = harness.now_us
    harness.publish_to("q", 2)
    published_us = harness.now_us
    reader.advance(0, max_messages=10)
    reply = reader.advance(10, max_messages=1)
    assert reply.backlog == c.Backlog(1, 1, published_us, 0)
    (queue,) = harness.core.queues("q")
    assert (queue.ready, queue.unacked) == (1, 1)
    assert harness.core.ready_total("s") == 1
    assert harness.core.ready_total("unknown") == 0


def test_a_replay_attaches_to_exactly_the_lease(harness: Harness, reader: Reader) -> None:
    """S2: it leases and accepts nothing, and gives the same chunks."""
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
        (0, 2, "older than what was accepted"),
        (3, 4, "older than what was accepted"),
        (2, 8, "older than what was accepted"),
        (4, 9, "broker is older than the checkpoint"),
        (4, 7, r"lease is \(4, 8\]"),
        (6, 8, r"lease is \(4, 8\]"),
    ],
)
def test_a_replay_of_other_tags_is_refused(
    reader: Reader, start: int, end: int, message: str
) -> None:
    """S2, S4: with the tags and the cause."""
    reader.advance(0, max_messages=2)
    reader.advance(2, max_messages=2)
    reader.advance(4, max_messages=4)
    with pytest.raises(CheckpointMismatchError, match=message):
        reader.attach(start, end)


# --- K2: the lease accepted last, kept for a batch whose commit entry is lost ---


def test_the_lease_accepted_last_can_be_read_again(harness: Harness, reader: Reader) -> None:
    """K2: after the accept the same tags give the same rows, and then the session goes on."""
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
    """K2, S3, Q7: across a restart of the broker too, and under a new epoch."""
    reader.advance(0)
    reader.advance(10)
    harness.restart()
    assert reader.attach(0, 10, holder=BOB).epoch == 2
    assert harness.read(reader.pieces(0, 10, epoch=2)) == labels(1, 10)
    with pytest.raises(FencedError):
        reader.fetch(0, 10)


def test_a_kept_lease_is_in_no_count(harness: Harness, reader: Reader) -> None:
    """K1, K2: to all but its session an accepted message is gone."""
    reader.advance(0, max_messages=4)
    reader.advance(4, max_messages=2)
    (info,) = harness.core.queues("q")
    assert (info.ready, info.unacked, info.payload_bytes) == (4, 2, 60)
    assert harness.browse("q") == labels(5, 10)
    assert harness.core.plan_browse("q") == (c.BrowseChunk(1, 10, 6, 60),)
    assert harness.do(c.PurgeQueue("q")) == 4
    reader.advance(6)
    assert harness.core.plan_browse("q") == ()
    assert harness.do(c.DeleteQueue("q", force=True)) == c.DeletedQueue(0, 0)
    assert reader.fetch(4, 6) == labels(5, 6)


def test_a_kept_lease_takes_no_room(harness: Harness) -> None:
    """K2, Q3: a bounded queue has the room of what was accepted."""
    harness.declare("q", max_length=3, max_bytes=30, overflow="reject-publish")
    harness.publish_to("q", 3)
    reader = harness.open("q")
    reader.advance(0)
    assert list(harness.publish_to("q", 1).confirmed) == []
    reader.advance(3)
    assert list(harness.publish_to("q", 4).confirmed) == [5, 6, 7]


@pytest.mark.parametrize("how", ["accept", "release", "replace", "retention"])
def test_a_kept_lease_ends(harness: Harness, reader: Reader, how: str) -> None:
    """K2, S9: with the next accept, with its session, and at the latest after a week."""
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
    """K2, Q7: a restart takes them wherever they are, and counts none twice."""
    harness.declare("q")
    harness.publish_to("q", 2)
    harness.publish_to("q", 2, persistent=False)
    reader = harness.open("q")
    reader.advance(0)
    reader.advance(4)
    assert harness.restart() == 0
    assert reader.fetch(0, 4) == labels(1, 2)


# --- S7: what is leased stays; C7: counts ---


def test_a_leased_message_stays(harness: Harness, reader: Reader) -> None:
    """S7: not purged, and no housekeeping takes it, however long its owner is away."""
    reader.advance(0, max_messages=4)
    harness.do(c.PurgeQueue("q"))
    harness.now_us += 365 * DAY_US
    harness.do(c.Housekeep())
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
    """S1: delivery counts are as first delivered, whoever attaches."""
    reader.advance(0)
    before = reader.pieces(0, 10)
    reader.advance(0, holder=BOB)
    assert reader.pieces(0, 10) == before


def test_release_needs_a_fence_while_the_holder_lives(harness: Harness, reader: Reader) -> None:
    """S8: an operator ends a running query only by saying so; then its incarnation is refused."""
    reader.advance(0)
    with pytest.raises(AlreadyHeldError, match="add --fence"):
        harness.do(c.ReleaseSession("s", incumbent_live=True))
    assert harness.do(c.ReleaseSession("s", fence=True, incumbent_live=True)) == c.Released(10, 0)
    for call in (lambda: reader.advance(0), lambda: reader.fetch(0, 10)):
        with pytest.raises(SessionNotFoundError, match="released by an operator"):
            call()
    with pytest.raises(SessionNotFoundError, match="ackq session list"):
        harness.do(c.ReleaseSession("s"))


# --- S9: openings ---


def test_an_opening_leases_nothing(reader: Reader) -> None:
    """S9: it answers tag 0, so that the checkpoint names the session before any lease."""
    assert reader.reply.end_tag == 0
    assert reader.info().leased == 0
    assert reader.info().proven is False


def test_once_opens_and_leases_in_one_call(harness: Harness) -> None:
    """S9: under Trigger.Once there is no second call."""
    harness.declare("q")
    harness.publish_to("q", 3)
    reader = harness.open("q", open_and_lease=True, max_messages=2)
    assert (reader.reply.end_tag, reader.reply.attaches) == (2, 1)
    assert reader.fetch(0, 2) == labels(1, 2)


def test_a_start_that_names_the_incarnation_proves_it(reader: Reader) -> None:
    """S9: the checkpoint is known to exist from then on."""
    reader.advance(0, max_messages=1)
    assert reader.info().proven is True


def test_a_replay_proves_it_too(harness: Harness) -> None:
    """S9: the tags of a replay come from a checkpoint as well."""
    harness.declare("q")
    harness.publish_to("q", 3)
    reader = harness.open("q", open_and_lease=True)
    reader.attach(0, 3)
    assert reader.info().proven is True


def test_an_unproven_incarnation_is_replaced_silently(harness: Harness, reader: Reader) -> None:
    """S9: a driver that died before its first checkpoint just starts again."""
    second = harness.open("q", holder=BOB)
    assert second.reply.warnings == ()
    with pytest.raises(SessionNotFoundError, match=f"replaced by incarnation {2:032x}"):
        reader.advance(0)


def test_an_opening_says_what_it_cannot_put_back(harness: Harness, reader: Reader) -> None:
    """Q4, S9: those of a deleted queue are not delivered again."""
    harness.declare("r")
    reader.advance(0, queues=("q", "r"), max_messages=4)
    harness.do(c.DeleteQueue("q", force=True))
    with pytest.raises(LeaseHeldError, match="4 messages"):
        harness.open("r", holder=BOB)
    (warning,) = harness.open("r", holder=BOB, takeover=True).reply.warnings
    assert "0 messages leased under its" in warning
    assert "; 4 of deleted queues were dropped." in warning


def test_an_unproven_lease_goes_back_and_into_the_new_lease(harness: Harness) -> None:
    """S9: an opening of Trigger.Once that is repeated leases the same messages again."""
    harness.declare("q")
    harness.publish_to("q", 3)
    harness.open("q", open_and_lease=True)
    again = harness.open("q", open_and_lease=True, holder=BOB)
    assert again.fetch(0, 3) == labels(1, 3)
    assert again.reply.backlog == c.Backlog(0, 3, again.reply.backlog.oldest_us, 3)
    assert "3 messages leased under its incarnation" in again.reply.warnings[0]
    assert again.pieces(0, 3)[0].runs == (c.Run(1, 3, 2),)


def test_a_proven_incarnation_without_lease_is_replaced_with_a_warning(
    harness: Harness, reader: Reader
) -> None:
    """S9: the old checkpoint is refused from then on, and the log says so."""
    reader.advance(0)
    reader.advance(10)
    second = harness.open("q", holder=BOB)
    (warning,) = second.reply.warnings
    assert reader.command.incarnation in warning
    with pytest.raises(SessionNotFoundError, match="new checkpoint"):
        reader.advance(10)


def test_a_proven_lease_is_not_abandoned(harness: Harness, reader: Reader) -> None:
    """S9: refused with the count and the remedies."""
    reader.advance(0, max_messages=4)
    with pytest.raises(LeaseHeldError, match="4 messages") as caught:
        harness.open("q", holder=BOB)
    assert "these rows may already have been processed" in str(caught.value)
    assert "`ackq session release s`" in str(caught.value)
    assert "takeover=true" in str(caught.value)


def test_a_lease_that_was_read_is_proven(harness: Harness) -> None:
    """S9: Trigger.Once calls once; its sink may have the rows when its checkpoint is deleted."""
    harness.declare("q")
    harness.publish_to("q", 3)
    reader = harness.open("q", open_and_lease=True)
    reader.note()
    with pytest.raises(LeaseHeldError, match="3 messages"):
        harness.open("q", holder=BOB)


def test_takeover_puts_a_proven_lease_back(harness: Harness, reader: Reader) -> None:
    """S9: the option says that the user accepts duplicates."""
    reader.advance(0, max_messages=4)
    second = harness.open("q", holder=BOB, takeover=True)
    assert harness.ready("q") == 10
    assert "4 messages" in second.reply.warnings[0]
    with pytest.raises(SessionNotFoundError, match="replaced"):
        reader.fetch(0, 4)


def test_takeover_does_not_end_a_live_query(harness: Harness, reader: Reader) -> None:
    """S3, K10: only an operator's fence does."""
    reader.advance(0)
    with pytest.raises(AlreadyHeldError, match="--fence"):
        harness.open("q", holder=BOB, takeover=True, incumbent_live=True)


def test_an_anonymous_session_gets_a_name(harness: Harness) -> None:
    """S9: made of its incarnation, so two of them never meet."""
    harness.declare("q")
    reader = harness.open("q", session="")
    assert reader.reply.session == "anonymous-00000000"
    assert reader.advance(0, session="").session == "anonymous-00000000"


def test_an_opening_is_told_who_holds_messages_of_its_queues(harness: Harness) -> None:
    """S9: the opening before, of a query without a name, may have been lost with its checkpoint."""
    harness.declare("q", "r", "apart")
    harness.publish(["q", "q", "q", "r", "apart"])
    harness.incarnations = 1 << 120  # the first digits are what names are made of
    lost = harness.open("q", "r", session="", holder=BOB, open_and_lease=True)
    since_us = harness.now_us
    harness.open("apart", session="apart", open_and_lease=True)
    harness.open("q", session="idle")
    harness.incarnations = 2 << 120
    reader = harness.open("q", session="", open_and_lease=True)
    assert (reader.reply.end_tag, reader.reply.warnings) == (0, ())
    held = c.LeasedElsewhere(lost.reply.session, 3, since_us)
    assert reader.reply.leased_elsewhere == (held,)
    assert reader.advance(0).leased_elsewhere == ()
    harness.do(c.ReleaseSession(lost.reply.session))
    assert reader.advance(0).end_tag == 3


def test_an_opening_names_no_tag(harness: Harness) -> None:
    """S9: a tag without an incarnation belongs to no session."""
    harness.declare("q")
    command = c.Advance("s", "", ALICE, ("q",), 5, new_incarnation="0" * 32)
    with pytest.raises(InvalidArgumentError, match="tag 5 and no incarnation"):
        harness.do(command)


def test_unproven_sessions_without_owner_and_lease_are_removed_after_a_day(
    harness: Harness,
) -> None:
    """S9: live ones stay, proven ones stay, and so does one that holds a lease."""
    harness.declare("q")
    harness.publish_to("q", 1)
    gone = harness.open("q", session="gone")
    harness.open("q", session="live")
    harness.open("q", session="proven").advance(0)
    harness.publish_to("q", 1)
    harness.open("q", session="once", open_and_lease=True)
    harness.now_us += DAY_US - 100
    assert harness.decide(c.Housekeep()).records == ()
    harness.now_us += 200
    harness.do(c.Housekeep(frozenset({"live"})))
    assert [s.session for s in harness.core.sessions()] == ["live", "once", "proven"]
    with pytest.raises(SessionNotFoundError, match="no checkpoint came back"):
        gone.advance(0)


def test_the_memory_of_ended_incarnations_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: the oldest is forgotten and then merely unknown."""
    monkeypatch.setattr("ackq_broker.core.sessions.advance.MAX_ENDED", 1)
    harness.declare("q")
    first, second, _ = (harness.open("q") for _ in range(3))
    with pytest.raises(SessionNotFoundError, match="replaced"):
        second.advance(0)
    with pytest.raises(SessionNotFoundError, match="history history"):
        first.advance(0)


def test_the_number_of_sessions_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: replacing one is still possible at the limit."""
    monkeypatch.setattr("ackq.limits.MAX_SESSIONS", 1)
    harness.declare("q")
    harness.open("q")
    harness.open("q")
    with pytest.raises(LimitError, match="1 sessions"):
        harness.open("q", session="t")


# --- S10: names, queues, brokers ---


def test_another_session_name_is_refused(reader: Reader) -> None:
    """S10: naming both."""
    with pytest.raises(CheckpointMismatchError, match=r"session 's'.*names session 'mine'"):
        reader.advance(0, session="mine")


def test_another_broker_is_refused(reader: Reader) -> None:
    """S10: an incarnation this broker never knew, with its own identity."""
    with pytest.raises(SessionNotFoundError, match="another broker") as caught:
        reader.advance(0, incarnation="f" * 32)
    assert caught.value.fields["history"] == "history"


def test_more_queues_are_added(harness: Harness, reader: Reader) -> None:
    """S10: and read from the next lease on."""
    harness.declare("r")
    harness.publish_to("r", 2)
    reader.advance(0, max_messages=4)
    reader.advance(0, queues=("q", "r"))
    assert reader.info().queues == ("q", "r")
    assert reader.advance(4, queues=("q", "r")).end_tag == 12


def test_fewer_queues_are_refused_while_the_lease_holds_their_messages(
    harness: Harness, reader: Reader
) -> None:
    """S10: the refusal names the queue; once accepted, it can be left out."""
    harness.declare("r")
    harness.publish_to("r", 2)
    reader.advance(0, queues=("q", "r"))
    with pytest.raises(CheckpointMismatchError, match="2 messages of queue 'r'"):
        reader.advance(0)
    assert reader.advance(12).end_tag == 12
    assert reader.info().queues == ("q",)


def test_a_queue_without_leased_messages_can_be_left_out(harness: Harness, reader: Reader) -> None:
    """S10: nothing depends on it."""
    harness.declare("r")
    reader.advance(0, queues=("q", "r"))
    reader.advance(0)
    assert reader.info().queues == ("q",)
    harness.do(c.DeleteQueue("r"))


def test_a_deleted_queue_does_not_block_its_readers(harness: Harness, reader: Reader) -> None:
    """S10, Q4: after a forced delete the name cannot be given any more."""
    harness.declare("r")
    reader.advance(0, queues=("q", "r"))
    harness.do(c.DeleteQueue("q", force=True))
    assert reader.advance(0, queues=("r",)).end_tag == 10
    assert reader.info().queues == ("r",)


def test_missing_and_absent_queues_are_refused(harness: Harness, reader: Reader) -> None:
    """S10: a queue must exist, and one must be named."""
    with pytest.raises(QueueNotFoundError, match="'gone'"):
        reader.advance(0, queues=("q", "gone"))
    with pytest.raises(InvalidArgumentError, match="names no queue"):
        harness.open()


def test_a_missing_queue_does_not_hide_that_a_batch_waits(harness: Harness, reader: Reader) -> None:
    """K1, S10: the refusal says what becomes of the checkpoint's batch, and how."""
    reader.advance(0)
    harness.do(c.DeleteQueue("q", force=True))
    with pytest.raises(QueueNotFoundError) as merely:
        reader.advance(0)
    assert "accepted" not in str(merely.value)
    with pytest.raises(QueueNotFoundError, match=r"'s' has, tags \(0, 10\], is not") as told:
        reader.advance(10)
    assert "`ackq queue declare q`" in str(told.value)
    assert (told.value.fields["queue"], reader.info().leased) == ("q", 10)
    harness.declare("q")
    harness.publish_to("q", 1)
    assert reader.advance(10).end_tag == 11
    assert reader.fetch(10, 11) == labels(11, 11)
    reader.advance(11)
    assert harness.core.drain_dead_blocks() == [1]


def test_other_sessions_on_the_queues_are_reported(harness: Harness, reader: Reader) -> None:
    """S10: so that the source can warn that its messages are shared."""
    harness.declare("r")
    harness.open("r", session="apart", holder=BOB)
    assert harness.open("q", session="t", holder=BOB).reply.other_sessions == ("s",)
    assert reader.advance(0).other_sessions == ("t",)


def test_several_queues_share_a_lease(harness: Harness) -> None:
    """S10: equal shares, the rest to those that have more, and the turn goes round."""
    harness.declare("a", "b", "c")
    harness.publish(["a"] * 8 + ["b"] * 2 + ["c"] * 8)
    reader = harness.open("a", "b", "c")
    assert reader.advance(0, max_messages=9).end_tag == 9
    assert [piece.queue for piece in reader.pieces(0, 9)] == ["a", "b", "c"]
    assert reader.fetch(0, 9) == [*labels(1, 3), *labels(9, 10), *labels(11, 14)]
    assert reader.advance(9, max_messages=2).end_tag == 11
    assert reader.fetch(9, 11) == ["m15", "m4"]


def test_a_byte_limit_is_shared_as_well(harness: Harness) -> None:
    """S10, K6: no queue takes the whole limit from the others."""
    harness.declare("a", "b")
    harness.publish_to("a", 10, row_bytes=10)
    harness.publish_to("b", 10, row_bytes=10)
    reader = harness.open("a", "b")
    assert reader.advance(0, max_bytes=60).end_tag == 6
    assert reader.fetch(0, 6) == [*labels(1, 3), *labels(11, 13)]


# --- K5: the horizon ---


def test_a_horizon_bounds_what_is_leased(harness: Harness, reader: Reader) -> None:
    """K5: only what became ready at or before the sequence of prepare."""
    horizon = harness.core.sequence
    harness.publish_to("q", 5)
    assert reader.advance(0, horizon=horizon).end_tag == 10
    assert reader.advance(10, horizon=horizon).end_tag == 10
    assert harness.ready("q") == 5


def test_rows_put_back_by_the_run_do_not_keep_it_alive(harness: Harness, reader: Reader) -> None:
    """K5: what became ready again after the horizon waits for the next run."""
    reader.advance(0, max_messages=4)
    horizon = harness.core.sequence
    harness.do(c.ReleaseSession("s"))
    second = harness.open("q")
    assert second.advance(0, horizon=horizon).end_tag == 6
    assert second.fetch(0, 6) == labels(5, 10)
    assert second.advance(6, horizon=horizon).end_tag == 6
    assert second.advance(6, horizon=harness.core.sequence).end_tag == 10


def test_what_the_session_holds_is_inside_the_horizon(reader: Reader) -> None:
    """K5: an outstanding lease is given again, however old the horizon."""
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
