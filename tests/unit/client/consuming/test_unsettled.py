"""Settlements and their coalescing, against a model of the broker: C2, C3, C11, C15, C16."""

import pytest

from ackq import errors, limits
from ackq.client.consuming import unsettled as module
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.unsettled import LAZY_S, Unsettled
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


def test_settlements_in_order_leave_as_one():
    """C3: settlements of single messages in order are sent as one `multiple`."""
    unsettled = having(100)
    futures = [settle(unsettled, tag) for tag in range(1, 100)]
    (request,) = sent(unsettled)
    assert (request.delivery_tag, request.multiple) == (99, True)
    answer(unsettled, request, 99)
    assert [each.result(0) for each in futures] == [1] * 99


def test_what_did_not_arrive_is_kept():
    """C3: a `multiple` does not cover a tag that has not arrived yet."""
    unsettled = having(1)
    unsettled.unread.add(3, 4)
    unsettled.hand_over([Range(3, 4)])
    unsettled.settle([Range(1, 1)], ACCEPT, None)
    unsettled.settle([Range(3, 4)], ACCEPT, None)
    requests = [(each.delivery_tag, each.multiple) for each in sent(unsettled, missing=2)]
    assert requests == [(1, False), (3, False), (4, False)]


def test_runs_go_to_a_broker_that_takes_them():
    """C16: any number of messages are one settlement of runs, even with one kept."""
    unsettled = having(1000, settle_runs=True)
    futures = [settle(unsettled, tag) for tag in range(3, 1001, 2)]
    (request,) = sent(unsettled)
    assert list(request.first_tag) == list(range(3, 1001, 2))
    assert set(request.rows) == {1}
    answer(unsettled, request, len(futures))
    assert {each.result(0) for each in futures} == {1}


def test_runs_are_bounded(monkeypatch):
    """I6: one settlement names no more runs than the protocol allows."""
    monkeypatch.setattr(limits, "MAX_SETTLE_RUNS", 10)
    unsettled = having(100, settle_runs=True)
    for tag in range(2, 101, 2):
        settle(unsettled, tag)
    requests = sent(unsettled)
    assert [len(each.first_tag) for each in requests] == [10] * 5


def test_neighbours_are_one_run():
    """C16: neighbouring tags are one run, in whatever order they were settled."""
    unsettled = having(10, settle_runs=True)
    for tag in (9, 5, 7, 6, 8):
        settle(unsettled, tag)
    (request,) = sent(unsettled)
    assert (list(request.first_tag), list(request.rows)) == ([5], [5])


@pytest.mark.parametrize("tags", [(7,), (2, 3, 4), (1, 1)], ids=["unknown", "settled", "twice"])
def test_an_unknown_tag_is_refused(tags):
    """C2: a tag never received, settled before, or named twice in one call is refused."""
    unsettled = having(6)
    settle(unsettled, 3)
    with pytest.raises(errors.UnknownDeliveryTagError, match="unknown delivery tag"):
        settle(unsettled, *tags)


def test_an_unknown_tag_in_a_run_is_named():
    """C2: the error names the lowest unknown tag of a run."""
    unsettled = having(6)
    settle(unsettled, 4)
    with pytest.raises(errors.UnknownDeliveryTagError) as caught:
        unsettled.settle([Range(2, 6)], ACCEPT, None)
    assert caught.value.fields == {"delivery_tag": "4"}


def test_up_to_nothing_is_refused():
    """C2, C3: settling up to a tag that is no longer outstanding fails, as in RabbitMQ."""
    unsettled = having(3)
    unsettled.settle_up_to(2, ACCEPT, None)
    with pytest.raises(errors.UnknownDeliveryTagError, match="tag 2"):
        unsettled.settle_up_to(2, ACCEPT, None)


def test_lazily_accepted_messages_leave_late_and_together():
    """C10: DUPS_OK accepts are sent together after a delay."""
    unsettled = having(10)
    unsettled.accept_lazily([Range(1, 1)], 5.0)
    unsettled.accept_lazily([Range(2, 2)], 5.5)
    assert unsettled.wake_at == 5.0 + LAZY_S
    assert sent(unsettled, now=5.9) == []
    (request,) = sent(unsettled, now=6.0)
    assert (request.delivery_tag, request.multiple) == (2, True)


def test_enough_lazily_accepted_messages_leave_at_once():
    """C10: DUPS_OK accepts are sent before they use up a prefetch."""
    unsettled = having(10, lazy_limit=3)
    for tag in (1, 2, 3):
        assert unsettled.wake_at != 0
        unsettled.accept_lazily([Range(tag, tag)], 5.0)
    assert unsettled.wake_at == 0


def test_the_unanswered_have_a_bound(monkeypatch):
    """C11: unanswered settlements are bounded, as the broker's reply cache is."""
    monkeypatch.setattr(module, "_UNANSWERED", 2)
    unsettled = having(6)
    for tag in (2, 4, 6):
        settle(unsettled, tag)
    first, second = sent(unsettled)
    assert unsettled.wake_at is None
    answer(unsettled, first, 1)
    assert unsettled.wake_at == 0
    (third,) = sent(unsettled)
    assert [each.delivery_tag for each in (first, second, third)] == [2, 4, 6]


def test_behind_a_few_unanswered_ones_settlements_are_collected(monkeypatch):
    """C15, C16: settlements made while answers are outstanding are sent as one `Settle`."""
    monkeypatch.setattr(module, "_PIPELINED", 2)
    unsettled = having(9)
    first, _ = [settle(unsettled, tag) and sent(unsettled) for tag in (1, 2)]
    for tag in range(3, 9):
        settle(unsettled, tag)
    assert (sent(unsettled), unsettled.wake_at) == ([], None)
    answer(unsettled, first[0], 1)
    (collected,) = sent(unsettled)
    assert (collected.delivery_tag, collected.multiple) == (8, True)


def test_an_answer_that_comes_twice_counts_once():
    """C15: a settlement answered twice after a reconnect is resolved once."""
    unsettled = having(2)
    settle(unsettled, 1)
    (request,) = sent(unsettled)
    assert unsettled.on_settled(request.number, 1) is not None
    assert unsettled.on_settled(request.number, 1) is None


def test_an_answer_of_another_count_is_told():
    """C15: an answer with another count is a mismatch: which messages were settled is unknown."""
    unsettled = having(2)
    settle(unsettled, 1, 2)
    (request,) = sent(unsettled)
    assert unsettled.on_settled(request.number, 1).mismatched


def test_a_call_that_left_in_parts_is_told_once():
    """C15: the future of a settlement sent in parts waits for its last message."""
    unsettled = having(6)
    future = settle(unsettled, 1, 3, 5)
    requests = sent(unsettled)
    assert len(requests) == 3
    for request in requests:
        assert not future.done()
        answer(unsettled, request, 1)
    assert future.result(0) == 3


def test_giving_up_finds_everything_once():
    """C15: each open settlement is drained once, with whether the broker may have seen it."""
    unsettled = having(20)
    settle(unsettled, 2, 4)
    assert unsettled.next_request(0.0, None).delivery_tag == 2
    settle(unsettled, 6)
    drained = [(settlement.messages, settlement.sent) for settlement in unsettled.drain()]
    assert drained == [(2, True), (1, False)]
    assert unsettled.idle
    assert unsettled.drain() == []


@pytest.mark.parametrize("wanted", [False, True], ids=["by the mode", "by the application"])
def test_what_is_settled_alike_is_one_entry(wanted):
    """C16: equal settlements share one entry; only requested futures cost an object each."""
    unsettled = having(100)
    for tag in range(1, 101):
        unsettled.settle([Range(tag, tag)], ACCEPT, Settlement() if wanted else None)
    (pending,) = unsettled._unsent.values()
    assert pending.runs == [[1, 100]]
