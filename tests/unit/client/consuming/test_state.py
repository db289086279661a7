"""The next action of a channel's state machine, with time passed in: C2, C5, C8-C11.

The simulation runs it in any order of deliveries, settlements and cuts (tests/crash/simulation).
"""

from itertools import count

import pytest

from ackq import errors, limits
from ackq.client.connection.duplex import Finish, Lost, Send, Wait
from ackq.client.consuming.inbox import Content
from ackq.client.consuming.state import ChannelSettings, ChannelState
from ackq.client.ranges import Range
from ackq.outcomes import ACCEPT, Disposition, Outcome
from ackq.v1 import consuming_pb2 as pb
from tests.fakes import scripted_channel as fake
from tests.unit.client.consuming.scripts import SettlementModel
from tests.unit.client.test_condition import interrupted

SEND_S = limits.HEARTBEAT_SEND_MS / 1000
LOST_S = limits.HEARTBEAT_MS / 1000


OPENED = pb.ChannelOpened(outcomes=fake.ALL)
REJECT = Disposition(Outcome.REJECTED)
RESUMED = pb.ChannelOpened(outcomes=fake.ALL, resumed=True)


@pytest.fixture
def state():
    made = ChannelState(ChannelSettings(10, transport_ack_percent=60, transport_ack_delay_s=1.0))
    made.on_frame(0.0)
    assert made.on_opened(OPENED, 0.0)
    return made


@pytest.fixture
def consumer(state):
    return subscribe(state)


def subscribe(state, *, prefetch=0):
    outcomes = frozenset({Outcome.ACCEPTED})
    return state.subscribe("orders", prefetch=prefetch, outcomes=outcomes, no_ack=False)


def deliver(state, first, last, *, now=0.0, consumer="1", get_number=0):
    made = fake.numbered(first, last, consumer=consumer, get_number=get_number)
    delivery = made.header.delivery
    return state.on_delivery(delivery, Content(delivery.runs, made.block), now)


def requests(state, now=0.0):
    """All requests that the state sends now, and the action that follows them."""
    made = []
    while isinstance(action := state.next_action(now), Send):
        made.append(action.request)
    return made, action


def kinds(state, now=0.0):
    return [each.WhichOneof("kind") for each in requests(state, now)[0]]


def test_rows_of_a_frame_that_are_news_keep_their_tags(state, consumer):
    """C11: new rows around a row that is a duplicate keep their tags."""
    deliver(state, 3, 3)
    deliver(state, 1, 5)
    taken = []
    while (one := state.take(consumer, 1)) is not None:
        taken.append((one.runs[0].first, one.content.value("body", one.row)))
    assert taken == [(3, b"3"), (1, b"1"), (2, b"2"), (4, b"4"), (5, b"5")]


def test_the_sender_is_woken_when_there_is_something_to_say(state):
    """C11: the sender wakes for a due transport ack, not for each message."""
    subscribe(state)
    requests(state)
    deliver(state, 1, 1)
    assert state.wakes_sender()  # it needs the time at which the ack is due
    assert requests(state)[1] == Wait(1.0)
    deliver(state, 2, 5)
    assert not state.wakes_sender()
    deliver(state, 6, 6)
    assert state.wakes_sender()
    assert not state.wakes_sender()  # the ack is on its way


def test_an_idle_channel_gives_signs_of_life(state):
    """C12: one heartbeat per interval. What the client overslept is not the broker's silence."""
    assert requests(state) == ([], Wait(SEND_S))
    assert kinds(state, SEND_S) == ["heartbeat"]
    state.on_frame(SEND_S)
    assert requests(state, SEND_S)[1] == Wait(2 * SEND_S)
    assert kinds(state, 100 + SEND_S) == ["heartbeat"]
    assert kinds(state, 100 + 2 * SEND_S) == ["heartbeat"]
    assert isinstance(requests(state, 100 + LOST_S)[1], Lost)


def test_acks_come_before_settlements_but_for_those_that_a_cut_repeats(state, consumer):
    """C11, C15: a due ack reopens the window, so it is first.

    After a cut it must not look as if the answers had arrived.
    """
    requests(state)
    deliver(state, 1, 6)
    state.take(consumer, 2)
    state.unsettled.settle([Range(1, 1)], ACCEPT, None)
    assert kinds(state) == ["transport_ack", "settle"]
    state.on_disconnect(1.0)
    state.on_opened(RESUMED, 1.0)
    deliver(state, 7, 7, now=1.0)
    state.unsettled.settle([Range(2, 2)], ACCEPT, None)
    assert kinds(state, 1.0) == ["settle", "transport_ack", "settle"]


def test_after_a_cut_everything_that_stands_is_said_again(state):
    """C8, C9, C11: prefetch, unsubscribes and pulls are repeated; each may have been lost.

    A consumer that the broker has ended is not started again.
    """
    kept, closed, ended = subscribe(state), subscribe(state), subscribe(state)
    state.set_prefetch(None, 5)
    state.set_prefetch(kept, 3)
    state.unsubscribe(closed)
    state.on_cancelled(ended.request.consumer, errors.QueueNotFoundError("gone"))
    state.pull("orders", 4, no_ack=False)
    requests(state)
    state.on_disconnect(1.0)
    state.on_opened(RESUMED, 1.0)
    sent, _ = requests(state, 1.0)
    said = [each.WhichOneof("kind") for each in sent]
    assert said == ["prefetch", "subscribe", "prefetch", "unsubscribe", "get"]
    assert [each.prefetch.messages for each in sent if each.HasField("prefetch")] == [5, 3]
    assert sent[1].subscribe.consumer == kept.request.consumer
    assert sent[3].unsubscribe.consumer == closed.request.consumer


def test_a_pull_that_was_given_up_is_not_sent(state):
    """C9, C17: the broker would remove its messages, which nobody reads.

    One that was sent before a cut stays known, as its messages may still come.
    """
    sent = state.pull("orders", 4, no_ack=True)
    requests(state)
    state.on_disconnect(1.0)
    unsent = state.pull("orders", 4, no_ack=True)
    state.cancel_pull(sent)
    state.cancel_pull(unsent)
    assert state.inboxes == [sent]
    state.on_opened(RESUMED, 1.0)
    assert kinds(state, 1.0) == []
    deliver(state, 1, 2, get_number=1)
    state.on_disconnect(2.0)
    state.renew(OPENED, 2.0)
    assert kinds(state, 2.0) == []
    assert state.inboxes == []


def test_nothing_is_given_back_to_a_channel_that_ends(state):
    """C12: the channel's end requeues; a settlement after the half-close has no answer."""
    state.unsubscribe(subscribe(state))
    state.finishing = True
    assert isinstance(requests(state)[1], Finish)
    deliver(state, 1, 3)
    assert state.unsettled.idle
    assert isinstance(requests(state)[1], Finish)


def test_tags_that_are_settled_in_any_order_are_runs(state, consumer):
    """C16: neighbours are one run, also where the later one was settled first."""
    state.on_disconnect(0.0)
    state.on_opened(pb.ChannelOpened(outcomes=fake.ALL, resumed=True, settle_runs=True), 0.0)
    deliver(state, 1, 8)
    state.take(consumer, 8)
    for first, last in ((5, 6), (4, 4), (3, 3), (2, 2), (8, 8)):
        state.unsettled.settle([Range(first, last)], ACCEPT, None)
    (settle,) = [each.settle for each in requests(state)[0] if each.HasField("settle")]
    assert (settle.first_tag, settle.rows) == ([2, 8], [5, 1])


def test_no_multiple_passes_over_a_message_of_a_refused_settlement(state, consumer):
    """C2: runs with an unknown tag settle nothing, nor does what is sent after them."""
    deliver(state, 1, 10)
    state.take(consumer, 10)
    state.unsettled.settle([Range(2, 3), Range(5, 10)], ACCEPT, None)
    with pytest.raises(errors.UnknownDeliveryTagError, match="tag 5"):
        state.unsettled.settle([Range(1, 1), Range(4, 5)], REJECT, None)
    assert settled(state, 10).open == {1, 4}


@pytest.mark.parametrize("by", ["one", "runs", "up_to"])
def test_no_multiple_passes_over_a_message_of_an_interrupted_call(by):
    """C2, C10: Ctrl-C may come between any two calls of a handover and of a settlement."""
    for step in count(1):
        state = ChannelState(ChannelSettings(10, 60, 1.0))
        assert state.on_opened(OPENED, 0.0)
        consumer = subscribe(state)
        deliver(state, 1, 3)

        def hand_over_and_reject(state=state, consumer=consumer):
            tags = state.unsettled
            if by == "one":
                state.take_one(consumer)
                tags.settle_one(1, REJECT, None)
                return
            state.take(consumer, 1)
            if by == "runs":
                tags.settle([Range(1, 1)], REJECT, None)
            else:
                tags.settle_up_to(1, REJECT, None)

        came = interrupted(step, hand_over_and_reject, events=("call", "c_return"))
        state.take(consumer, 3)
        state.unsettled.settle([Range(2, 3)], ACCEPT, None)
        assert settled(state, 3).outcomes.get(1, Outcome.REJECTED) is Outcome.REJECTED, step
        if not came:
            break
    assert step > 10


def settled(state, last):
    """What the broker has done by all that the state sends now."""
    model = SettlementModel(last)
    for request in requests(state)[0]:
        if request.HasField("settle"):
            model.settle(request.settle)
    return model


def test_settling_up_to_nothing_is_refused(state, consumer):
    """C2, C3: settling up to a tag that is no longer outstanding fails, as in RabbitMQ."""
    deliver(state, 1, 3)
    state.take(consumer, 3)
    state.unsettled.settle_up_to(2, ACCEPT, None)
    with pytest.raises(errors.UnknownDeliveryTagError, match="tag 2"):
        state.unsettled.settle_up_to(2, ACCEPT, None)


def test_a_small_prefetch_makes_laziness_small(state):
    """C8, C10: lazily accepted messages must not use up the prefetch."""
    subscribe(state, prefetch=10)
    assert state.unsettled.lazy_limit == 5
    state.set_prefetch(None, 1)
    assert state.unsettled.lazy_limit == 1
