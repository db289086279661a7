"""Operators and a lease (S8): its tags are rejected or released."""

from __future__ import annotations

from typing import Any

import pytest

from ackq.errors import (
    AlreadyHeldError,
    FencedError,
    InvalidArgumentError,
    PreconditionFailedError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import BOB, Harness, Reader

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


@pytest.mark.parametrize(
    ("outcome", "ranges", "options", "error", "told"),
    [
        (Outcome.ACCEPTED, [(3, 3)], {}, InvalidArgumentError, "accepted"),
        (REJECTED, [(9, 9), (1, 3)], {}, UnknownDeliveryTagError, r"tag 1 .* \(2, 8\]"),
        (REJECTED, [(4, 12)], {}, UnknownDeliveryTagError, r"tag 9 .* \(2, 8\]"),
        (REJECTED, [(20, 21), (11, 12)], {}, UnknownDeliveryTagError, "tag 11 "),
        (REJECTED, [(3, 3)], {"incarnation": "f" * 32}, PreconditionFailedError, "opened again"),
        (REJECTED, [(3, 3)], {"incumbent_live": True}, AlreadyHeldError, "host-a.*--fence"),
    ],
)
@pytest.mark.usefixtures("reader")
def test_what_an_operator_may_not_settle(
    harness: Harness,
    outcome: Outcome,
    ranges: list[tuple[int, int]],
    options: dict[str, Any],
    error: type[Exception],
    told: str,
) -> None:
    """S8, S9: other outcomes, tags outside the lease or of another incarnation, a live query's."""
    with pytest.raises(error, match=told):
        settle(harness, *ranges, outcome=outcome, **options)


def test_the_holder_of_a_settled_lease_is_fenced(harness: Harness, reader: Reader) -> None:
    """S3, S8: its batch has changed, so each of its calls is refused, and another one goes on."""
    settle(harness, (4, 4), incumbent_live=True, fence=True)
    for call in (
        lambda: reader.fetch(2, 8),
        lambda: reader.advance(2),
        lambda: reader.attach(2, 8),
        lambda: harness.open("q", takeover=True),
    ):
        with pytest.raises(FencedError):
            call()
    assert reader.advance(2, holder=BOB).epoch == 3
