"""Operators and a lease (S8): its tags are listed, rejected or released."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from ackq.errors import (
    AlreadyHeldError,
    FencedError,
    InvalidArgumentError,
    PreconditionFailedError,
    SessionNotFoundError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, BOB, Harness, Reader, group, labels

REJECTED, RELEASED = Outcome.REJECTED, Outcome.RELEASED


@pytest.fixture
def reader(harness: Harness) -> Reader:
    """A query that holds the tags 3 to 8 of ten messages."""
    harness.declare("dead")
    harness.declare_filled("q", 10, dead_letter_queue="dead")
    reader = harness.lease("q", max_messages=2)
    reader.advance(2, max_messages=6)
    reader.note()
    return reader


def settle(harness: Harness, *ranges: tuple[int, int], **options: object) -> c.SettledLease:
    """Settles tags of the lease as an operator; rejects them by default."""
    outcome = options.pop("outcome", REJECTED)
    reply: c.SettledLease = harness.do(c.SettleLease("s", outcome, ranges, **options))  # type: ignore[arg-type]
    return reply


def tags(reader: Reader, pieces: list[c.Piece]) -> list[int]:
    """The tags of pieces."""
    return [row[0] for row in reader.harness.rows(pieces)]


def test_tags_of_an_incarnation_that_is_over_are_refused(harness: Harness, reader: Reader) -> None:
    """S8, S9: a session that was opened again has the same tags for other messages."""
    before = reader.command.incarnation
    assert settle(harness, (4, 4), incarnation=before).settled == 1
    harness.do(c.ReleaseSession("s"))
    anew = harness.open("q", holder=BOB, open_and_lease=True)
    with pytest.raises(PreconditionFailedError, match=f"not {before}, and its tags belong to"):
        settle(harness, (1, 1), incarnation=before)
    assert settle(harness, (1, 1), incarnation=anew.command.incarnation).settled == 1


def test_tags_are_rejected_between_two_epochs(harness: Harness, reader: Reader) -> None:
    """S8: rejected tags become holes and dead letters with their batch, and the epoch rises."""
    records = len(harness.log)
    assert settle(harness, (4, 5), (8, 8), reason="poison") == c.SettledLease(3, 3, 2)
    assert len(harness.log) == records + 1
    (piece,) = views.browse(harness.core.state, "dead")
    assert piece.origin is not None
    assert (piece.origin.reason, piece.origin.session, piece.origin.batch_id) == ("poison", "s", 7)
    assert harness.browse("dead") == ["m4", "m5", "m8"]
    info = reader.info()
    assert (info.leased, info.holes_by_reason, info.holder) == (3, (("settled", 3),), None)
    harness.restart()
    reply = reader.advance(2, holder=BOB)
    assert (reply.epoch, reply.end_tag) == (3, 8)
    assert tags(reader, reader.pieces(2, 8)) == [3, 6, 7]
    reader.advance(8, holder=BOB)
    assert tags(reader, reader.pieces(2, 8)) == [3, 6, 7]
    assert harness.info("q").accepted == 2 + 3


def test_tags_are_released_at_once(harness: Harness, reader: Reader) -> None:
    """S8: released messages return to their old places; the session may lease them again."""
    assert settle(harness, (3, 4), outcome=RELEASED) == c.SettledLease(2, 0, 2)
    assert harness.browse("q") == labels(3, 10)
    assert harness.ready("q") == 4
    reader.advance(8, holder=BOB, max_messages=1)
    assert reader.fetch(8, 9) == ["m3"]


def test_a_live_holder_is_ended_first(harness: Harness, reader: Reader) -> None:
    """S8: refused, naming the holder, unless fenced; then its calls are refused, by token too."""
    with pytest.raises(AlreadyHeldError, match=r"host-a, pid 11.*--fence"):
        settle(harness, (4, 4), incumbent_live=True)
    stage = reader.stage("a", group(RELEASED, 5))
    settle(harness, (4, 4), incumbent_live=True, fence=True)
    for call in (
        lambda: reader.fetch(2, 8),
        lambda: reader.commit(stage),
        lambda: views.check_holder(
            harness.core.state, "s", reader.command.incarnation, 1, ALICE.token
        ),
    ):
        with pytest.raises(FencedError, match="an operator ended its reader"):
            call()
    for again in (
        lambda: reader.advance(8),
        lambda: reader.advance(2),
        lambda: reader.attach(2, 8),
        lambda: harness.open("q", takeover=True),
    ):
        with pytest.raises(FencedError, match="its batch has changed"):
            again()
    assert reader.advance(2, holder=BOB).epoch == 3


def test_several_settlements_before_the_next_attach(harness: Harness, reader: Reader) -> None:
    """S8: each raises the epoch; a tag that is a hole is accepted, and not counted."""
    settle(harness, (4, 4))
    assert settle(harness, (3, 5)) == c.SettledLease(2, 2, 3)
    assert settle(harness, (3, 3)) == c.SettledLease(0, 0, 4)
    assert reader.info().holes_by_reason == (("settled", 3),)
    with pytest.raises(FencedError):
        reader.advance(2)


def test_a_lease_of_settled_tags_alone(harness: Harness, reader: Reader) -> None:
    """S8: such a lease is an empty batch, which the checkpoint passes like any other."""
    settle(harness, (3, 8))
    reader.command = replace(reader.command, holder=BOB)
    assert (reader.advance(2).end_tag, reader.fetch(2, 8)) == (8, [])
    assert reader.advance(8, max_messages=1).end_tag == 9


@pytest.mark.parametrize(
    ("ranges", "lowest"), [(((9, 9), (1, 3)), 1), (((4, 12),), 9), (((20, 21), (11, 12)), 11)]
)
def test_tags_outside_of_the_lease(
    harness: Harness, reader: Reader, ranges: tuple[tuple[int, int], ...], lowest: int
) -> None:
    """S8: no tag is settled; the error names the lowest such tag and the lease."""
    assert reader.info().leased == 6
    with pytest.raises(UnknownDeliveryTagError, match=rf"tag {lowest} .* \(2, 8\]"):
        settle(harness, *ranges)


def test_a_session_that_holds_nothing(harness: Harness, reader: Reader) -> None:
    """S8: without a lease no tag can be settled or listed."""
    reader.advance(8, min_messages=99)
    with pytest.raises(UnknownDeliveryTagError, match="end at 8, all accepted"):
        settle(harness, (9, 9))
    assert views.lease_pieces(harness.core.state, "s") == []


def test_other_outcomes_are_the_query_s(harness: Harness, reader: Reader) -> None:
    """S8: an operator cannot accept a message; only a checkpoint proves that."""
    assert reader.info().leased == 6
    for outcome in (Outcome.ACCEPTED, Outcome.FAILED):
        with pytest.raises(InvalidArgumentError, match=outcome.value):
            settle(harness, (3, 3), outcome=outcome)


def test_rejecting_without_a_dead_letter_queue_needs_discard(harness: Harness) -> None:
    """S6, S8: refused unless `discard` is set; then the messages are dropped and counted."""
    harness.declare_filled("q", 3)
    harness.open("q").advance(0)
    with pytest.raises(PreconditionFailedError, match="1 message of queue 'q'"):
        settle(harness, (2, 2))
    assert settle(harness, (2, 2), discard=True) == c.SettledLease(1, 0, 2, 1)
    assert harness.info("q").dropped == 1


def test_committed_outcomes_of_other_tags_stay(harness: Harness, reader: Reader) -> None:
    """S6, S8: a query's outcome for a tag that an operator settled has no effect."""
    reader.say(group(REJECTED, 3, 4))
    settle(harness, (4, 4), outcome=RELEASED)
    assert reader.info().settled == 1
    reader.advance(8, holder=BOB)
    assert harness.browse("dead") == ["m3"]


def test_a_detached_lease_is_settled_as_far_as_it_is_ready(
    harness: Harness, reader: Reader
) -> None:
    """S5, S8: messages taken by others are not rejected; released tags are leased no longer."""
    reader.detach()
    harness.deliver("k", "q", 1)
    assert settle(harness, (3, 4)) == c.SettledLease(1, 1, 3)
    assert harness.browse("dead") == ["m4"]
    assert tags(reader, views.lease_pieces(harness.core.state, "s")) == [5, 6, 7, 8]
    assert settle(harness, (5, 5), outcome=RELEASED) == c.SettledLease(1, 0, 4)
    assert harness.ready("q") == 6
    reader.advance(2)
    assert tags(reader, reader.pieces(2, 8)) == [6, 7, 8]
    assert reader.info().holes_by_reason == (("settled", 2), ("taken", 1))


def test_what_is_released_to_a_deleted_queue_counts_as_dropped(
    harness: Harness, reader: Reader
) -> None:
    """Q4, S5, S8: settlements and releases count so; a rejection finds its dead-letter queue."""
    harness.declare_filled("r", 2)
    reader.advance(8, queues=("q", "r"))
    assert reader.info().leased == 4
    harness.do(c.DeleteQueue("q", force=True))
    assert settle(harness, (9, 9), (11, 11), outcome=RELEASED) == c.SettledLease(2, 0, 2, 1)
    assert (harness.ready("r"), reader.info().leased) == (1, 2)
    assert harness.do(c.ReleaseSession("s")) == c.Released(1, 1)
    assert (harness.ready("r"), harness.browse("dead")) == (2, [])


@pytest.mark.parametrize("deleted", ["before", "after"])
def test_a_detached_lease_of_a_deleted_queue(
    harness: Harness, reader: Reader, deleted: str
) -> None:
    """Q4, S5, S8: messages deleted with their queue are not requeued, nor released again."""
    if deleted == "before":
        harness.do(c.DeleteQueue("q", force=True))
        assert reader.detach() == c.Released(0, 6)
        assert settle(harness, (3, 4), outcome=RELEASED) == c.SettledLease(0, 0, 3)
    else:
        assert reader.detach() == c.Released(6, 0)
        harness.do(c.DeleteQueue("q", force=True))
        assert settle(harness, (3, 4), outcome=RELEASED) == c.SettledLease(2, 0, 3, 2)
    assert harness.do(c.ReleaseSession("s")) == c.Released(0, 0)


def test_a_settlement_that_overflows_its_dead_letter_queue(harness: Harness) -> None:
    """Q3, S8: the oldest dead letters are dropped."""
    harness.declare("ring", max_length=2, overflow="drop-head")
    harness.declare_filled("q", 4, dead_letter_queue="ring")
    harness.open("q").advance(0)
    settle(harness, (1, 3))
    assert harness.browse("ring") == ["m2", "m3"]


def test_a_lease_is_listed_without_holding_it(harness: Harness, reader: Reader) -> None:
    """S8: the whole lease, a range, or a bounded number of tags; holes are left out."""
    pieces = partial(views.lease_pieces, harness.core.state)
    assert tags(reader, pieces("s")) == [3, 4, 5, 6, 7, 8]
    settle(harness, (4, 5))
    assert tags(reader, pieces("s")) == [3, 6, 7, 8]
    assert tags(reader, pieces("s", 5, 7)) == [6, 7]
    assert tags(reader, pieces("s", 4, 0, 2)) == [6, 7]
    assert tags(reader, pieces("s", 1, 99, 1)) == [3]
    assert pieces("s", 4, 5, 1) == pieces("s", 9, 99, 1) == pieces("s", 9) == []
    assert harness.read(pieces("s", 6, 6)) == ["m6"]
    with pytest.raises(SessionNotFoundError):
        pieces("t")
