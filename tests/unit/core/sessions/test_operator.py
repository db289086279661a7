"""Operators and a lease (S8): its tags are rejected or released, or the session ends."""

import pytest

from ackq import errors
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import REJECTED, RELEASED, refused


@pytest.fixture
def reader(harness):
    """A query that holds the tags 3 to 8 of ten messages."""
    harness.declare("dead")
    harness.declare_filled("q", 10, dead_letter_queue="dead")
    reader = harness.lease("q", max_messages=2)
    reader.advance(2, max_messages=6)
    reader.note()
    return reader


def settle(harness, *ranges, outcome=REJECTED, **options):
    """Settles tags of the lease as an operator."""
    return harness.do(c.SettleLease("s", outcome, ranges, **options))


def tags(reader, pieces):
    """The tags of pieces."""
    return [row[0] for row in reader.harness.rows(pieces)]


def test_a_detached_lease_is_settled_as_far_as_it_is_ready(harness, reader):
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
def test_a_detached_lease_of_a_deleted_queue(harness, reader, deleted):
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


ACCEPTS = {"outcome": Outcome.ACCEPTED}


@pytest.mark.parametrize(
    ("ranges", "options", "error", "told"),
    [
        ([(3, 3)], ACCEPTS, errors.InvalidArgumentError, "accepted"),
        ([(9, 9), (1, 3)], {}, errors.UnknownDeliveryTagError, r"tag 1 .* \(2, 8\]"),
        ([(4, 12)], {}, errors.UnknownDeliveryTagError, r"tag 9 .* \(2, 8\]"),
        ([(20, 21), (11, 12)], {}, errors.UnknownDeliveryTagError, "tag 11 "),
        ([(3, 3)], {"incarnation": "f" * 32}, errors.PreconditionFailedError, "opened again"),
        ([(3, 3)], {"incumbent_live": True}, errors.AlreadyHeldError, "host-a.*--fence"),
    ],
)
@pytest.mark.usefixtures("reader")
def test_what_an_operator_may_not_settle(harness, ranges, options, error, told):
    """S8, S9: other outcomes, tags outside the lease or of another incarnation, a live query's."""
    refused(error, told, settle, harness, *ranges, **options)
