"""The next action of a channel's state machine, with time passed in: C2, C5, C8-C11."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq import errors, limits
from ackq.client.connection.duplex import Finish, Lost, Send, Wait
from ackq.client.consuming.inbox import Content
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.state import ChannelSettings, ChannelState, Subscription
from ackq.client.outcomes import When
from ackq.client.ranges import Range
from ackq.outcomes import ACCEPT, RELEASE, Outcome
from ackq.v1 import consuming_pb2 as pb
from tests.fakes import scripted_channel as fake
from tests.unit.client.consuming.settlement_model import SettlementModel

SEND_S = limits.HEARTBEAT_SEND_MS / 1000
LOST_S = limits.HEARTBEAT_MS / 1000


OPENED = pb.ChannelOpened(outcomes=fake.ALL)
RESUMED = pb.ChannelOpened(outcomes=fake.ALL, resumed=True)


def channel(*, opened=True):
    settings = ChannelSettings(
        window_messages=10, transport_ack_percent=60, transport_ack_delay_s=1.0
    )
    state = ChannelState(settings)
    state.on_frame(0.0)
    if opened:
        assert state.on_opened(OPENED, 0.0)
    return state


@pytest.fixture
def state():
    return channel()


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


class Application:
    """A channel in any order of its events, and a broker that repeats what a cut may have lost."""

    def __init__(self, *, settle_runs):
        self.opened = pb.ChannelOpened(outcomes=fake.ALL, settle_runs=settle_runs, resumed=True)
        self.state = channel(opened=False)
        self.state.on_opened(self.opened, 0.0)
        self.inboxes = [subscribe(self.state)]
        self.now = 0.0
        self.handed_over = set()
        self.wanted = {}  # the outcome that each message must get
        self.model = SettlementModel()
        self.delivered = 0
        self.owners = {}  # the inbox of each message
        self.gone, self.pulled = set(), set()  # consumers and pulls that the broker has answered
        self.frames = []  # the broker's, without a transport ack, each with its last tag
        self.to_broker, self.to_client = deque(), deque()

    def deliver(self, count):
        inbox = self.inboxes[count % len(self.inboxes)]
        if isinstance(inbox, Subscription) and inbox.request.consumer not in self.gone:
            self._deliver(inbox, count, consumer=inbox.request.consumer)

    def _deliver(self, inbox, count, **address):
        first, self.delivered = self.delivered + 1, self.delivered + count
        tags = range(first, self.delivered + 1)
        self.model.open.update(tags)
        self.owners.update(dict.fromkeys(tags, inbox))
        frame = fake.numbered(first, self.delivered, **address)
        self.frames.append((self.delivered, frame))
        self.to_client.append(frame)

    def take(self, count):
        for inbox in self.inboxes:
            if not inbox.closed and (taken := self.state.take(inbox, count)) is not None:
                tags = [tag for run in taken.runs for tag in range(run.first, run.last + 1)]
                batch = taken.content.batch(("body",), taken.row, taken.rows)
                assert batch.column(0).to_pylist() == [b"%d" % tag for tag in tags]
                assert {self.owners[tag] for tag in tags} == {inbox}
                assert not self.handed_over & set(tags)
                self.handed_over.update(tags)

    def _pick(self, at):
        tags = [tag for tag in range(1, self.delivered + 1) if tag in self.state.unsettled.unacked]
        return tags[at % len(tags)] if tags else None

    def _settle(self, at, disposition):
        if (tag := self._pick(at)) is not None:
            self.state.unsettled.settle([Range(tag, tag)], disposition, Settlement())
            self.wanted[tag] = disposition.outcome

    def accept(self, at):
        self._settle(at, ACCEPT)

    def release(self, at):
        self._settle(at, RELEASE)

    def accept_lazily(self, at):
        if (tag := self._pick(at)) is not None:
            self.state.accept([Range(tag, tag)], When.LAZILY, self.now)
            self.wanted[tag] = Outcome.ACCEPTED

    def accept_up_to(self, at):
        if (tag := self._pick(at)) is not None:
            mine = [each for each in range(1, tag + 1) if each in self.state.unsettled.unacked]
            self.state.unsettled.settle_up_to(tag, ACCEPT, Settlement())
            self.wanted.update(dict.fromkeys(mine, Outcome.ACCEPTED))

    def subscribe(self, _):
        self.inboxes.append(subscribe(self.state))

    def pull(self, messages):
        self.inboxes.append(self.state.pull("orders", messages, no_ack=False))

    def close(self, at):
        inbox = self.inboxes[at % len(self.inboxes)]
        if isinstance(inbox, Subscription):
            self.state.unsubscribe(inbox)
        elif not inbox.closed:
            self.state.cancel_pull(inbox)

    def send(self, _=0):
        self.to_broker.extend(requests(self.state, self.now)[0])

    def handle(self, _=0):
        """The broker handles a request."""
        if not self.to_broker:
            return
        request = self.to_broker.popleft()
        kind = request.WhichOneof("kind")
        if kind == "settle":
            self.to_client.append(fake.settled(request, self.model.settle(request.settle)))
        elif kind == "transport_ack":
            acked = request.transport_ack.delivery_tag
            self.frames = [each for each in self.frames if each[0] > acked]
        elif kind == "unsubscribe":
            self.gone.add(request.unsubscribe.consumer)
        elif kind == "get":
            number = request.get.number
            if number not in self.pulled:
                self.pulled.add(number)
                pull = next(each for each in self.inboxes if each.request == request.get)
                self._deliver(pull, min(2, request.get.messages), get_number=number)
            self.to_client.append(fake.get_empty(number))

    def receive(self, _=0):
        if self.to_client:
            frame = self.to_client.popleft()
            header, kind = frame.header, frame.header.WhichOneof("kind")
            if kind == "delivery":
                content = Content(header.delivery.runs, frame.block)
                self.state.on_delivery(header.delivery, content, self.now)
            elif kind == "get_empty":
                self.state.on_get_empty(header.get_empty.number)
            else:
                settlement = self.state.on_settled(header.settled)
                assert settlement is None or not settlement.mismatched

    def cut(self, handled):
        for _ in range(handled):
            self.handle()
        self.to_broker.clear()
        self.state.on_disconnect(self.now)
        assert self.state.on_opened(self.opened, self.now)
        self.to_client = deque(frame for _, frame in self.frames)

    def finish(self):
        self._settle_down()
        while any(inbox.rows for inbox in self.inboxes if not inbox.closed):
            self.take(100)
        while self.state.unsettled.unacked:
            self.accept(0)
        self._settle_down()

    def _settle_down(self):
        self.send()
        while self.to_broker or self.to_client or not self.state.unsettled.idle:
            self.now += 1.0
            self.state.on_frame(self.now)
            self.send()
            self.handle()
            self.receive()


STEPS = (
    *("deliver", "take", "accept", "release", "accept_lazily", "accept_up_to"),
    *("subscribe", "pull", "close", "send", "handle", "receive", "cut"),
)


@pytest.mark.parametrize("settle_runs", [False, True])
@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 6)), max_size=50))
def test_each_message_is_handed_over_once_and_settled_as_asked(settle_runs, steps):
    """C1-C4, C9, C11, C15: despite cuts and repeats each message comes once, to its consumer.

    What a closed consumer or pull did not read is released.
    """
    application = Application(settle_runs=settle_runs)
    for step, argument in steps:
        getattr(application, step)(argument)
    application.finish()
    unread = set(application.owners) - application.handed_over
    assert all(application.owners[tag].closed for tag in unread)
    released = dict.fromkeys(unread, Outcome.RELEASED)
    assert application.model.outcomes == application.wanted | released
    assert application.model.open == set()
