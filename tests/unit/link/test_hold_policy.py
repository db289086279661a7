"""How long a link holds deliveries, by the known limits of the remote queue."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import QueueLimits
from ackq_link.hold_policy import HoldPolicy, HoldRules, OnMaxHold


def holding(rules=None, **limits):
    made = HoldPolicy(rules or HoldRules())
    made.limits = QueueLimits(**limits)
    return made


def test_a_limit_without_a_dead_letter_exchange():
    """L14: refused, with the command that gives the queue a dead-letter exchange."""
    with pytest.raises(PreconditionFailedError, match="set_policy -p / X") as raised:
        holding(
            delivery_limit=3, dead_letters=False, remedy="rabbitmqctl set_policy -p / X"
        ).check_start("orders", "q")
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
    made = holding(delivery_limit=5)
    assert made.at_once(3, []) is None
    assert made.at_once(3, [0, 2, 1]) is None
    assert made.at_once(3, [0, 3, 4]) == [False, True, True]
    assert holding().at_once(3, [9, 9, 9]) is None
    assert holding(delivery_limit=0).at_once(3, [9, 9, 9]) is None


@pytest.mark.parametrize("limit", [1, 2])
def test_limits_that_leave_no_life(limit):
    """L16: with a delivery limit of 1 or 2 every message is acknowledged when stored."""
    made = holding(delivery_limit=limit)
    assert made.spares_all
    assert made.at_once(2, []) == [True, True]


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
