"""Settlements and their coalescing, against a model of the broker: C2, C3, C11, C15, C16."""

import pytest

from ackq import errors
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.unsettled import Unsettled
from ackq.client.ranges import Range
from ackq.outcomes import ACCEPT


def having(last, *, settle_runs=False, **fields):
    """Settlements of an application that was given the messages 1..last."""
    unsettled = Unsettled()
    unsettled.settle_runs = settle_runs
    unsettled.unread.add(1, last)
    unsettled.hand_over([Range(1, last)])
    for name, value in fields.items():
        setattr(unsettled, name, value)
    return unsettled


def settle(unsettled, *tags, disposition=ACCEPT):
    future = Settlement()
    unsettled.settle([Range(tag, tag) for tag in tags], disposition, future)
    return future


def sent(unsettled, now=0.0, missing=None):
    """All settlements that are sent now."""
    requests = []
    while (request := unsettled.next_repeat() or unsettled.next_request(now, missing)) is not None:
        requests.append(request)
    return requests


def answer(unsettled, request, messages):
    settlement = unsettled.on_settled(request.number, messages)
    if settlement is not None:
        settlement.resolve()


def test_runs_go_to_a_broker_that_takes_them():
    """C16: any number of messages are one settlement of runs, even with one kept."""
    unsettled = having(1000, settle_runs=True)
    futures = [settle(unsettled, tag) for tag in range(3, 1001, 2)]
    (request,) = sent(unsettled)
    assert list(request.first_tag) == list(range(3, 1001, 2))
    assert set(request.rows) == {1}
    answer(unsettled, request, len(futures))
    assert {each.result(0) for each in futures} == {1}


def test_up_to_nothing_is_refused():
    """C2, C3: settling up to a tag that is no longer outstanding fails, as in RabbitMQ."""
    unsettled = having(3)
    unsettled.settle_up_to(2, ACCEPT, None)
    with pytest.raises(errors.UnknownDeliveryTagError, match="tag 2"):
        unsettled.settle_up_to(2, ACCEPT, None)
