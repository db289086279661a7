"""How long a link holds deliveries, and what rejects them, by what is known of their queue."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import QueueLimits
from ackq_link.hold_policy import (
    HoldPolicy,
    HoldRules,
    OnMaxHold,
    OnReject,
    check_rejections,
    rejects_unfit,
)


def holding(rules=None, **limits):
    made = HoldPolicy(rules or HoldRules())
    made.limits = QueueLimits(**limits)
    return made


def test_a_limit_without_a_dead_letter_exchange():
    """L14: refused, with the command that gives the queue a dead-letter exchange."""
    made = holding(delivery_limit=3, dead_letters=False, remedy="set_policy -p / X")
    with pytest.raises(PreconditionFailedError, match="set_policy -p / X") as raised:
        made.check_start("orders", "q")
    assert "accept-limit=true" in str(raised.value)
    assert "at its delivery 4" in str(raised.value)


@pytest.mark.parametrize(
    ("rules", "limits"),
    [
        (HoldRules(accept_limit=True), {"delivery_limit": 3, "dead_letters": False}),
        (HoldRules(), {"delivery_limit": 3, "dead_letters": True}),
        (HoldRules(), {"delivery_limit": 3}),
        (HoldRules(), {"delivery_limit": 0, "dead_letters": False}),
        (HoldRules(), {"dead_letters": False}),
    ],
)
def test_other_queues_are_linked(rules, limits):
    """L14: no limit, a dead-letter exchange, or unknown limits are accepted."""
    holding(rules, **limits).check_start("orders", "q")


@pytest.mark.parametrize(
    ("timeout_s", "max_hold_s", "expected"),
    [(None, None, 1200), (100, None, 80), (0, None, float("inf")), (100, 7, 7)],
)
def test_the_longest_hold(timeout_s, max_hold_s, expected):
    """L15: 80 % of the consumer timeout, or 20 minutes if that is unknown."""
    made = holding(HoldRules(max_hold_s), consumer_timeout_s=timeout_s)
    assert made.max_hold_s == expected


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
    return check_rejections("orders", "q", OnReject(on_reject), QueueLimits(**limits))


@pytest.mark.parametrize("known", [None, False, True])
def test_here_and_discard_ask_for_nothing(known):
    """L28: no warning where the message is kept, or its loss is accepted."""
    assert unsure("here", dead_letters=known, rejected_again=bool(known)) == ""
    assert unsure("discard", dead_letters=known) == ""
    assert unsure("there", dead_letters=True) == ""


def test_there_without_dead_letters():
    """L28: refused, with the command for it and both other values.

    Without knowledge a warning names the option `management`, which finds it out.
    """
    assert "management" in unsure("there")
    with pytest.raises(PreconditionFailedError, match="'q' has no dead-letter exchange") as raised:
        unsure("there", dead_letters=False, remedy="set_policy dlx")
    for remedy in ("set_policy dlx", "on-reject=here", "on-reject=discard"):
        assert remedy in str(raised.value)


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
