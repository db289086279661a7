"""How long a link holds deliveries, and what rejects them, by what is known of their queue."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq_link import hold_policy
from ackq_link.adapter import QueueLimits
from ackq_link.hold_policy import HoldRules, OnMaxHold, OnReject


def holding(rules=None, **limits):
    made = hold_policy.HoldPolicy(rules or HoldRules())
    made.limits = QueueLimits(**limits)
    return made


def test_a_limit_without_a_dead_letter_exchange():
    """L14: refused, with the command that gives the queue one; other queues are linked."""
    limits = {"delivery_limit": 3, "dead_letters": False}
    with pytest.raises(PreconditionFailedError, match="set_policy -p / X") as raised:
        holding(**limits, remedy="set_policy -p / X").check_start("orders", "q")
    assert "accept-limit=true" in str(raised.value)
    assert "at its delivery 4" in str(raised.value)
    holding(HoldRules(accept_limit=True), **limits).check_start("orders", "q")
    for change in ({"dead_letters": True}, {"dead_letters": None}, {"delivery_limit": 0}):
        holding(**limits | change).check_start("orders", "q")


def test_the_longest_hold():
    """L15: 80 % of the consumer timeout, or 20 minutes if that is unknown."""
    bounds = (None, None, 1200), (100, None, 80), (0, None, float("inf")), (100, 7, 7)
    for timeout_s, most_s, expected in bounds:
        assert holding(HoldRules(most_s), consumer_timeout_s=timeout_s).max_hold_s == expected


@pytest.mark.parametrize(
    ("limits", "deliveries", "expected"),
    [
        ({}, 50, OnMaxHold.RENEW),
        ({"delivery_limit": 20}, 9, OnMaxHold.RENEW),
        ({"delivery_limit": 20}, 10, OnMaxHold.STORE),
        ({"delivery_limit": 20, "requeue_counts": False}, 10, OnMaxHold.RENEW),
    ],
)
def test_what_happens_then(limits, deliveries, expected):
    """L15: store if a renewal counts as a delivery and half the limit is used, else renew."""
    made = holding(**limits)
    made.saw([0, deliveries, 1])
    assert made.at_max_hold is expected
    assert holding(HoldRules(on_max_hold=OnMaxHold.FAIL), **limits).at_max_hold is OnMaxHold.FAIL


def test_the_last_two_lives_are_spared():
    """L16: messages with two or fewer deliveries left are acknowledged when stored."""
    for limit in (1, 2):
        assert holding(delivery_limit=limit).spares_all
        assert holding(delivery_limit=limit).at_once(2, []) == [True, True]
    made = holding(delivery_limit=5)
    assert made.at_once(3, []) is None
    assert made.at_once(3, [0, 2, 1]) is None
    assert made.at_once(3, [0, 3, 4]) == [False, True, True]
    assert holding().at_once(3, [9, 9, 9]) is None
    assert holding(delivery_limit=0).at_once(3, [9, 9, 9]) is None


def test_lives():
    """L16: the fewest attempts left of any message, reset by a new subscription."""
    made = holding(delivery_limit=6)
    assert (made.lives_left, made.half_spent) == (6, False)
    made.saw([1, 3])
    made.saw([2])
    assert (made.lives_left, made.half_spent) == (3, True)
    made.subscribed()
    assert (made.lives_left, made.half_spent) == (6, False)
    assert holding().lives_left is None


# --- rejections ---


def unsure(on_reject, **limits):
    return hold_policy.check_rejections("orders", "q", OnReject(on_reject), QueueLimits(**limits))


def test_where_rejections_go():
    """L28: nothing is asked where the message is kept, dead-lettered, or its loss accepted.

    Otherwise it is refused with all remedies; a warning names the option that finds it out.
    """
    for known in (None, False, True):
        assert unsure("here", dead_letters=known, rejected_again=bool(known)) == ""
        assert unsure("discard", dead_letters=known) == ""
    assert unsure("there", dead_letters=True) == ""
    assert "management" in unsure("there")
    with pytest.raises(PreconditionFailedError, match="'q' has no dead-letter exchange") as raised:
        unsure("there", dead_letters=False, remedy="set_policy dlx")
    for remedy in ("set_policy dlx", "on-reject=here", "on-reject=discard"):
        assert remedy in str(raised.value)
    for on_reject in ("there", "discard"):
        with pytest.raises(PreconditionFailedError, match="again and again"):
            unsure(on_reject, dead_letters=True, rejected_again=True)


@pytest.mark.parametrize(
    ("on_reject", "limits", "rejects"),
    [
        ("here", {"dead_letters": False}, False),
        ("here", {"dead_letters": True}, True),
        ("here", {"dead_letters": True, "rejected_again": True}, False),
        ("discard", {}, True),
        ("discard", {"rejected_again": True}, False),
    ],
)
def test_what_the_edge_cannot_take_is_rejected_where_that_ends_it(on_reject, limits, rejects):
    """L29: rejected if dead-lettered or discarded, and not redelivered."""
    assert hold_policy.rejects_unfit(OnReject(on_reject), QueueLimits(**limits)) is rejects
