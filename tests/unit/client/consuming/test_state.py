"""The next action of a channel's state machine, with time passed in: C2, C5, C8-C11."""

import pytest

from ackq import errors, limits
from ackq.client.connection.duplex import Finish, Lost, Send, Wait
from ackq.client.consuming.inbox import Content
from ackq.client.consuming.state import ChannelSettings, ChannelState
from ackq.client.ranges import Range
from ackq.outcomes import ACCEPT, Outcome
from ackq.v1 import consuming_pb2 as pb
from tests.fakes import scripted_channel as fake

SEND_S = limits.HEARTBEAT_SEND_MS / 1000
LOST_S = limits.HEARTBEAT_MS / 1000


def channel(*, opened=True, **fields):
    settings = {
        "window_messages": 10,
        "transport_ack_percent": 60,
        "transport_ack_delay_s": 1.0,
    } | fields
    state = ChannelState(ChannelSettings(**settings))
    state.on_frame(0.0)
    if opened:
        assert state.on_opened(pb.ChannelOpened(outcomes=fake.ALL), 0.0)
    return state


@pytest.fixture
def state():
    return channel()


@pytest.fixture
def consumer(state):
    return subscribe(state)


def subscribe(state, queue="orders", *, prefetch=0, outcomes=(), no_ack=False):
    chosen = frozenset({Outcome.ACCEPTED, *outcomes})
    return state.subscribe(queue, prefetch=prefetch, outcomes=chosen, no_ack=no_ack)


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


def bodies(state, inbox, limit=100):
    got = []
    while (taken := state.take(inbox, limit)) is not None:
        got += taken.content.batch(("body",), taken.row, taken.rows).column(0).to_pylist()
    return got


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window_messages", 0),
        ("window_messages", limits.MAX_CHANNEL_WINDOW_MESSAGES + 1),
        ("transport_ack_percent", 0),
        ("transport_ack_percent", 101),
        ("transport_ack_delay_s", -1.0),
    ],
)
def test_bad_settings_are_named(name, value):
    """I6: the error names a bad setting as its argument is called."""
    with pytest.raises(errors.InvalidArgumentError, match=name.removesuffix("_s")):
        channel(**{name: value})


def test_nothing_is_sent_before_the_open_is_answered():
    """No subscription is sent before the broker has announced what it supports."""
    state = channel(opened=False)
    state.announced = frozenset(Outcome)
    subscribe(state)
    assert requests(state) == ([], Wait(SEND_S))
    state.on_opened(pb.ChannelOpened(outcomes=fake.ALL), 0.0)
    assert kinds(state) == ["subscribe"]


def test_a_subscription_says_what_it_will_use(state):
    """C5: declares the application's outcomes, and RELEASED for the client's own use."""
    subscribe(state, prefetch=7, outcomes=[Outcome.REJECTED])
    ((request,), _) = requests(state)
    assert request.subscribe == pb.Subscribe(
        consumer="1",
        queue="orders",
        prefetch=7,
        outcomes=[pb.OUTCOME_REJECTED, pb.OUTCOME_RELEASED],
    )


def test_an_outcome_the_broker_lacks_is_refused():
    """C5: an unsupported outcome is refused before anything is sent."""
    state = channel(opened=False)
    state.on_opened(pb.ChannelOpened(outcomes=[pb.OUTCOME_ACCEPTED, pb.OUTCOME_RELEASED]), 0.0)
    with pytest.raises(errors.InvalidOperationError, match="does not support the outcome failed"):
        subscribe(state, outcomes=[Outcome.FAILED])
    assert kinds(state) == []


def test_messages_are_handed_over_in_order(state, consumer):
    """C1: tags grow by one, and the application gets messages in tag order."""
    deliver(state, 1, 3)
    deliver(state, 4, 5)
    first = state.take(consumer, 2)
    assert (first.rows, first.runs) == (2, [(1, 2)])
    assert bodies(state, consumer) == [b"3", b"4", b"5"]
    assert len(state.unsettled.unacked) == 5


def test_a_frame_that_comes_again_is_dropped(state, consumer):
    """C11: a repeated frame is dropped by tag, whole or in part."""
    deliver(state, 1, 3)
    assert deliver(state, 1, 3) is None
    deliver(state, 2, 5)
    assert bodies(state, consumer) == [b"1", b"2", b"3", b"4", b"5"]


def test_rows_of_a_frame_that_are_news_keep_their_tags(state, consumer):
    """C11: new rows around a row that is a duplicate keep their tags."""
    deliver(state, 3, 3)
    deliver(state, 1, 5)
    taken = []
    while (one := state.take(consumer, 1)) is not None:
        taken.append((one.runs[0].first, one.content.value("body", one.row)))
    assert taken == [(3, b"3"), (1, b"1"), (2, b"2"), (4, b"4"), (5, b"5")]


def test_each_consumer_gets_its_own(state):
    """C8: consumers of a channel share its tags, but not their messages."""
    first, second = subscribe(state), subscribe(state, "bills")
    deliver(state, 1, 2)
    deliver(state, 3, 3, consumer="2")
    assert bodies(state, second) == [b"3"]
    assert bodies(state, first) == [b"1", b"2"]


def test_messages_for_nobody_are_an_error(state):
    """A delivery for an unknown consumer is an internal error."""
    with pytest.raises(errors.InternalError, match="consumer '9'"):
        deliver(state, 1, 1, consumer="9")


def test_transport_acks_come_before_settlements(state, consumer):
    """C11: a due transport ack is sent before settlements, as it reopens the window."""
    requests(state)
    deliver(state, 1, 6)
    state.take(consumer, 1)
    state.unsettled.settle([Range(1, 1)], ACCEPT, None)
    sent, _ = requests(state)
    assert [each.WhichOneof("kind") for each in sent] == ["transport_ack", "settle"]
    assert sent[0].transport_ack.delivery_tag == 6


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


def test_a_sign_of_life_is_sent_when_nothing_else_is(state):
    """C12: an idle channel sends one heartbeat per interval, and no more."""
    assert requests(state) == ([], Wait(SEND_S))
    assert kinds(state, SEND_S) == ["heartbeat"]
    state.on_frame(SEND_S)
    assert requests(state, SEND_S)[1] == Wait(2 * SEND_S)


def test_the_broker_may_ask_for_more_signs_of_life():
    """C12: the interval is the `heartbeat_ms` of the answer to the open."""
    state = channel(opened=False)
    state.on_opened(pb.ChannelOpened(outcomes=fake.ALL, heartbeat_ms=500), 0.0)
    assert requests(state)[1] == Wait(0.5)


@pytest.mark.parametrize("opened", [True, False])
def test_a_silent_broker_is_lost(opened):
    """C12: a silent broker is lost, even if it never answered the open."""
    state = channel(opened=opened)
    assert isinstance(requests(state, LOST_S)[1], Lost)


def test_what_the_process_overslept_is_not_the_brokers_silence(state):
    """C12: time that the client itself slept does not count as the broker's silence."""
    assert requests(state) == ([], Wait(SEND_S))
    assert kinds(state, 100 + SEND_S) == ["heartbeat"]
    assert kinds(state, 100 + 2 * SEND_S) == ["heartbeat"]
    assert isinstance(requests(state, 100 + LOST_S)[1], Lost)


def test_what_was_overslept_before_a_frame_is_over(state):
    """C12: the broker's silence counts from its last frame, not from a later time."""
    requests(state)
    state.on_frame(100.0)
    assert kinds(state, 101.0) == ["heartbeat"]
    assert requests(state, 101.0 + SEND_S)[1] == Wait(101.0 + 2 * SEND_S)
    assert requests(state, 101.0 + 2 * SEND_S)[1] == Wait(101.0 + LOST_S)
    assert isinstance(requests(state, 101.0 + LOST_S)[1], Lost)


def test_a_process_that_oversleeps_the_answer_to_its_open():
    """C12: the client's own sleep does not count as silence before the channel is open either."""
    state = channel(opened=False)
    assert requests(state) == ([], Wait(SEND_S))
    assert requests(state, 100 + SEND_S) == ([], Wait(100 + 2 * SEND_S))
    assert requests(state, 100 + 2 * SEND_S) == ([], Wait(100 + LOST_S))
    assert isinstance(requests(state, 100 + LOST_S)[1], Lost)


def test_a_cut_channel_goes_on(state):
    """C11: unanswered requests are repeated; repeated deliveries are dropped by tag."""
    known, unknown = subscribe(state), subscribe(state, "bills")
    requests(state)
    deliver(state, 1, 2)
    state.on_disconnect(1.0)
    assert requests(state, 1.0) == ([], Wait(1.0 + SEND_S))
    assert state.on_opened(pb.ChannelOpened(outcomes=fake.ALL, resumed=True), 1.5)
    sent, _ = requests(state, 1.5)
    assert [each.subscribe.consumer for each in sent] == [unknown.request.consumer]
    deliver(state, 1, 3)
    assert bodies(state, known) == [b"1", b"2", b"3"]


def test_after_a_cut_settlements_are_asked_again_before_anything_is_acked(state, consumer):
    """C11, C15: an ack on the new stream must not look as if the answers had arrived."""
    deliver(state, 1, 6)
    state.take(consumer, 2)
    state.unsettled.settle([Range(1, 1)], ACCEPT, None)
    requests(state)
    state.on_disconnect(1.0)
    state.on_opened(pb.ChannelOpened(outcomes=fake.ALL, resumed=True), 1.0)
    deliver(state, 7, 7, now=1.0)
    state.unsettled.settle([Range(2, 2)], ACCEPT, None)
    sent, _ = requests(state, 1.0)
    assert [each.WhichOneof("kind") for each in sent] == ["settle", "transport_ack", "settle"]
    assert [each.settle.number for each in sent if each.HasField("settle")] == [1, 2]


def test_a_forgotten_channel_does_not_go_on(state):
    """C11: a channel that the broker has forgotten is not resumed; its tags are void."""
    state.on_disconnect(1.0)
    assert not state.on_opened(pb.ChannelOpened(outcomes=fake.ALL), 9.0)


def test_an_open_that_was_never_answered_is_repeated():
    """C11: an unanswered open is repeated; nothing was delivered, so nothing is lost."""
    state = channel(opened=False)
    state.on_disconnect(1.0)
    assert state.on_opened(pb.ChannelOpened(outcomes=fake.ALL), 9.0)


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
    state.on_opened(pb.ChannelOpened(outcomes=fake.ALL, resumed=True), 1.0)
    sent, _ = requests(state, 1.0)
    assert [each.WhichOneof("kind") for each in sent] == [
        "prefetch",
        "subscribe",
        "prefetch",
        "unsubscribe",
        "get",
    ]
    assert [each.prefetch.messages for each in sent if each.HasField("prefetch")] == [5, 3]
    assert sent[1].subscribe.consumer == kept.request.consumer
    assert sent[3].unsubscribe.consumer == closed.request.consumer


def test_what_a_closed_consumer_did_not_read_goes_back(state, consumer):
    """C4: unread messages and those still in flight to it are released."""
    deliver(state, 1, 3)
    state.take(consumer, 1)
    state.unsubscribe(consumer)
    deliver(state, 4, 4)
    sent, _ = requests(state)
    settles = [each.settle for each in sent if each.HasField("settle")]
    assert [(each.delivery_tag, each.outcome) for each in settles] == [
        (2, pb.OUTCOME_RELEASED),
        (3, pb.OUTCOME_RELEASED),
        (4, pb.OUTCOME_RELEASED),
    ]
    assert len(state.unsettled.unacked) == 1


def test_nothing_is_given_back_to_a_channel_that_ends(state):
    """C12: the channel's end requeues; a settlement after the half-close has no answer."""
    state.unsubscribe(subscribe(state))
    state.finishing = True
    assert isinstance(requests(state)[1], Finish)
    deliver(state, 1, 3)
    assert state.unsettled.idle
    assert isinstance(requests(state)[1], Finish)


def test_a_closed_consumer_without_acks_gives_nothing_back(state):
    """C10, NONE: the broker no longer has the messages, so none is released."""
    consumer = subscribe(state, no_ack=True)
    deliver(state, 1, 3)
    state.unsubscribe(consumer)
    deliver(state, 4, 4)
    assert kinds(state) == ["subscribe", "unsubscribe"]
    assert state.unsettled.idle


def test_without_released_a_closed_consumers_messages_stay():
    """C5: where the broker lacks RELEASED, the channel's end requeues the messages."""
    state = channel(opened=False)
    state.on_opened(pb.ChannelOpened(outcomes=[pb.OUTCOME_ACCEPTED]), 0.0)
    consumer = subscribe(state)
    deliver(state, 1, 2)
    other = subscribe(state)
    deliver(state, 3, 3, consumer="2")
    state.unsubscribe(consumer)
    state.take(other, 1)
    state.unsettled.settle([Range(3, 3)], ACCEPT, None)
    settles = [each.settle for each in requests(state)[0] if each.HasField("settle")]
    assert [(each.delivery_tag, each.multiple) for each in settles] == [(3, False)]


def test_closing_consumers_leaves_nothing_behind(state):
    """I6: a channel may open and close any number of consumers in bounded memory."""
    for _ in range(limits.MAX_CONSUMERS_PER_CHANNEL + 50):
        state.unsubscribe(subscribe(state))
        requests(state)
    assert state.inboxes == []
    assert len(state._closed) == limits.MAX_CONSUMERS_PER_CHANNEL


@pytest.mark.parametrize("found", [0, 2, 3])
def test_a_pull_is_complete_with_all_or_with_the_word(found, state):
    """C9: a pull is complete with all messages asked for, or with `GetEmpty`."""
    pull = state.pull("orders", 3, no_ack=False)
    if found:
        deliver(state, 1, found, get_number=1)
    assert pull.complete == (found == 3)
    if not pull.complete:
        assert state.on_get_empty(1) is pull
    assert pull.complete
    assert bodies(state, pull) == [b"%d" % tag for tag in range(1, found + 1)]
    assert state.inboxes == []


def test_what_comes_for_a_pull_that_was_given_up_goes_back(state):
    """C9: messages that arrive for a cancelled pull are released."""
    pull = state.pull("orders", 3, no_ack=False)
    deliver(state, 1, 1, get_number=1)
    state.cancel_pull(pull)
    deliver(state, 2, 2, get_number=1)
    state.on_get_empty(1)
    settles = [each.settle for each in requests(state)[0] if each.HasField("settle")]
    assert {each.outcome for each in settles} == {pb.OUTCOME_RELEASED}
    assert settles[-1].delivery_tag == 2
    assert state.inboxes == []


def test_a_small_prefetch_makes_laziness_small(state):
    """C8, C10: lazily accepted messages must not use up the prefetch."""
    subscribe(state, prefetch=10)
    assert state.unsettled.lazy_limit == 5
    state.set_prefetch(None, 1)
    assert state.unsettled.lazy_limit == 1


def test_the_stream_ends_when_all_is_answered(state, consumer):
    """C15: the last settlement is answered before the channel ends its stream."""
    deliver(state, 1, 1)
    state.take(consumer, 1)
    state.unsettled.settle([Range(1, 1)], ACCEPT, None)
    state.finishing = True
    sent, action = requests(state)
    assert isinstance(action, Wait)
    state.on_settled(pb.Settled(number=sent[-1].settle.number, settled=1))
    assert isinstance(requests(state)[1], Finish)


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_pull_that_nobody_took_yet_is_made_again(state, no_ack):
    """C9, C17: even a complete pull is repeated; without acks its messages are kept."""
    pull = state.pull("orders", 2, no_ack=no_ack)
    deliver(state, 1, 2, get_number=1)
    requests(state)
    state.on_disconnect(1.0)
    assert state.renew(pb.ChannelOpened(outcomes=fake.ALL), 2.0) == []
    assert pull.complete == no_ack
    assert kinds(state, 2.0) == ([] if no_ack else ["get"])
    if not no_ack:
        assert bodies(state, pull) == []
        deliver(state, 1, 2, get_number=1)
    assert bodies(state, pull) == [b"1", b"2"]
    assert state.inboxes == []


def test_what_is_acked_on_a_renewed_channel_has_the_brokers_tags(state, consumer):
    """C11, C17: transport acks name the broker's new tags, also after another cut."""
    deliver(state, 1, 5)
    requests(state)
    state.on_disconnect(1.0)
    state.renew(pb.ChannelOpened(outcomes=fake.ALL, settle_runs=True), 2.0)
    state.on_frame(2.0)
    assert kinds(state, 2.0) == ["subscribe"]
    assert kinds(state, 3.5) == []
    deliver(state, 1, 3, now=3.0)
    (ack,) = (each.transport_ack for each in requests(state, 4.0)[0])
    assert ack.delivery_tag == 3
    state.on_disconnect(4.0)
    state.on_frame(4.0)
    assert state.on_opened(pb.ChannelOpened(outcomes=fake.ALL, resumed=True), 4.0)
    (ack,) = (each.transport_ack for each in requests(state, 5.0)[0])
    assert ack.delivery_tag == 3
    assert [each.first for each in state.take(consumer, 9).runs] == [6]
