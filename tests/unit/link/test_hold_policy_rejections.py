"""Destination of rejected messages (L28), by what is known of the remote queue."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import QueueLimits
from ackq_link.hold_policy import OnReject, check_rejections, rejects_unfit

REMEDY = "rabbitmqctl set_policy dlx"


def unsure(on_reject, **limits):
    return check_rejections("orders", "q", OnReject(on_reject), QueueLimits(**limits))


@pytest.mark.parametrize("known", [None, False, True])
def test_here_asks_for_nothing(known):
    """L28: rejecting at the local broker never warns."""
    assert unsure("here", dead_letters=known, rejected_again=bool(known)) == ""


def test_there_with_dead_letters():
    """L28: with a remote dead-letter exchange there is no warning."""
    assert unsure("there", dead_letters=True) == ""


def test_there_without_dead_letters():
    """L28: refused, with the command for it and both other values."""
    with pytest.raises(PreconditionFailedError, match="'q' has no dead-letter exchange") as raised:
        unsure("there", dead_letters=False, remedy=REMEDY)
    for remedy in (REMEDY, "on-reject=here", "on-reject=discard"):
        assert remedy in str(raised.value)


def test_there_where_nothing_is_known():
    """L28: without knowledge a warning names the option `management`, which finds it out."""
    assert "management" in unsure("there")


@pytest.mark.parametrize("known", [None, False, True])
def test_discard_accepts_the_loss(known):
    """L28: `discard` accepts that the message may be lost, so there is no warning."""
    assert unsure("discard", dead_letters=known) == ""


@pytest.mark.parametrize("on_reject", ["there", "discard"])
def test_a_broker_that_delivers_again(on_reject):
    """L28: a broker that redelivers rejected messages is refused, as that never ends."""
    with pytest.raises(PreconditionFailedError, match="again and again"):
        unsure(on_reject, dead_letters=True, rejected_again=True)


@pytest.mark.parametrize(
    ("on_reject", "limits", "rejects"),
    [
        ("here", {}, False),
        ("here", {"dead_letters": False}, False),
        ("here", {"dead_letters": True}, True),
        ("here", {"dead_letters": True, "rejected_again": True}, False),
        ("there", {"dead_letters": None}, False),
        ("discard", {}, True),
        ("discard", {"rejected_again": True}, False),
    ],
)
def test_what_the_edge_cannot_take_is_rejected_where_that_ends_it(on_reject, limits, rejects):
    """L29: rejected if dead-lettered or discarded, and not redelivered."""
    assert rejects_unfit(OnReject(on_reject), QueueLimits(**limits)) is rejects
