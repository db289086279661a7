"""The state machine of a publisher in confirm mode, without threads: rules P2, P3, P9, P10, P14."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq import errors, limits
from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Finish, Wait
from ackq.client.publishing import requests
from ackq.client.publishing.confirm_state import ConfirmState, PublishSettings
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.client.publishing.receipts import MessageReceipt
from ackq.client.publishing.requests import Close, Probe, SendRows
from ackq.client.publishing.unconfirmed import Destination, PublishFrame, Unconfirmed
from ackq.client.ranges import Range
from ackq.wire import block

ORDERS = Destination("", mandatory=False)
GATHER_S = limits.PUBLISH_GATHER_MS / 1000


def make_state(*, opened=True, **changes):
    options = {
        "persistent": True,
        "window_messages": 1000,
        "window_bytes": 1_000_000,
        "linger_s": 1.0,
        "ack_timeout_s": 100.0,
    }
    state = ConfirmState(PublishSettings(**(options | changes)))
    if opened:
        state.on_opened()
    return state


@pytest.fixture
def state():
    return make_state()


def row(body):
    return encoding.Row(body, "q", None, None, None, None, None, None, None)


def add(state, now=0.0, count=1, destination=ORDERS):
    return [
        state.append(destination, row(b"%d" % i), 2, ConfirmationFuture(), now)
        for i in range(count)
    ]


def frame(count):
    rows = [row(b"%d" % i) for i in range(count)]
    content = encoding.encode_rows(rows, persistent=True)
    return PublishFrame(
        ORDERS, content, count, len(content), MessageReceipt([ConfirmationFuture() for _ in rows])
    )


def sent(action):
    assert isinstance(action, SendRows)
    return tuple(action.part.numbers)


def test_nothing_goes_before_the_stream_is_open():
    """P10: no message is sent before the broker has answered the open, so none is in doubt."""
    state = make_state(opened=False)
    add(state)
    assert state.next_action(50.0) == Wait(None)
    state.on_opened()
    assert sent(state.next_action(50.0)) == (1, 1)


def test_idle_publisher_waits_one_linger(state):
    """A single message waits for others, but not longer than the linger."""
    add(state, now=10.0)
    assert state.next_action(10.5) == Wait(11.0)
    assert sent(state.next_action(11.0)) == (1, 1)


def test_what_comes_while_nothing_is_in_flight_goes_at_once():
    """A message is sent at once, without the linger, while no frame is in flight."""
    state = make_state(linger_s=limits.PUBLISH_LINGER_MS / 1000)
    add(state, now=10.0)
    assert sent(state.next_action(10.0)) == (1, 1)


def test_answers_clock_the_next_frame():
    """With frames in flight, messages gather until an answer or the gather time."""
    state = make_state(linger_s=0.0)
    state.append_frame(frame(1))
    assert sent(state.next_action(0.0)) == (1, 1)
    add(state, now=1.0, count=5)
    assert state.next_action(1.0) == Wait(1.0 + GATHER_S)
    state.on_confirm(1, 1, multiple=True)
    assert sent(state.next_action(1.01)) == (2, 6)
    add(state, now=2.0)
    assert sent(state.next_action(2.0 + GATHER_S)) == (7, 7)


def test_urgent_messages_gather_behind_two_frames(state):
    """P11: with two frames in flight urgent messages gather, so no queue of tiny frames forms."""
    urgent = Destination("", mandatory=False, ack_immediately=True)
    for number in (1, 2):
        add(state, destination=urgent)
        assert sent(state.next_action(0.0)) == (number, number)
    add(state, count=5, destination=urgent)
    assert state.next_action(0.0) == Wait(1.0)
    state.on_confirm(1, 1, multiple=True)
    assert sent(state.next_action(0.0)) == (3, 7)


def test_sender_is_woken_twice_per_frame():
    """O(1) wake-ups per frame: for the first message, and when the frame is full."""
    woken = add(make_state(), count=10_001)
    assert [at for at, wake in enumerate(woken) if wake] == [0, 9_999, 10_000]


def test_window_counts_until_the_answer():
    """P14: a message leaves the window with its answer, a frame's bytes with the last one."""
    state = make_state(window_messages=3)
    state.append_frame(frame(3))
    assert not state.window.admits(1, 1)
    state.next_action(0.0)
    state.on_confirm(2, 2, multiple=False)
    assert state.window.messages == 2
    assert state.window.admits(1, 1)
    state.on_nack(1, 1)
    state.on_confirm(3, 3, multiple=True)
    assert (state.window.messages, state.window.bytes) == (0, 0)


def test_window_in_bytes():
    """P14: bytes bound the window too, but one message always passes."""
    state = make_state(window_bytes=10)
    assert state.window.admits(1, 1000)
    state.append(ORDERS, row(b"x"), 8, ConfirmationFuture(), 0.0)
    assert state.window.admits(1, 2)
    assert not state.window.admits(1, 3)


def test_blocked_broker_gets_nothing():
    """P14: a blocked broker gets neither data nor probes; unblocking restarts the timers."""
    state = make_state(ack_timeout_s=5.0)
    state.append_frame(frame(1))
    state.next_action(0.0)
    state.append_frame(frame(1))
    state.on_blocked("disk")
    assert state.next_action(50.0) == Wait(None)
    state.on_unblocked()
    assert sent(state.next_action(50.0)) == (2, 2)
    assert state.next_action(50.0) == Wait(55.0)


def test_probe_covers_what_is_late_and_nothing_else():
    """P10: a probe names the late numbers only; later frames have their own timeout."""
    state = make_state(ack_timeout_s=5.0)
    state.append_frame(frame(4))
    state.next_action(0.0)
    assert state.next_action(0.0) == Wait(5.0)
    state.append_frame(frame(2))
    state.next_action(3.0)
    state.on_confirm(2, 2, multiple=True)
    assert state.next_action(5.0) == Probe(Range(3, 4), 3)
    assert state.next_action(5.0) == Wait(10.0)
    assert state.next_action(10.0) == Probe(Range(3, 6), 3)


def test_timer_follows_the_oldest_frame():
    """P10: a younger frame does not inherit the timer of an answered frame."""
    state = make_state(ack_timeout_s=5.0)
    state.append_frame(frame(1))
    state.next_action(0.0)
    state.next_action(0.0)
    state.append_frame(frame(1))
    state.next_action(3.0)
    state.on_confirm(1, 1, multiple=True)
    assert state.next_action(5.0) == Wait(8.0)
    assert state.next_action(8.0) == Probe(Range(2, 2), 2)


def test_probed_numbers_go_again_unless_answered_meanwhile(state):
    """P10: only numbers that the broker never saw are sent again."""
    state.append_frame(frame(3))
    state.append_frame(frame(3))
    state.next_action(0.0)
    state.next_action(0.0)
    state.on_confirm(2, 2, multiple=False)
    state.on_probed([Range(1, 2), Range(5, 6)])
    assert sent(state.next_action(1.0)) == (1, 1)
    assert sent(state.next_action(1.0)) == (5, 6)
    assert state.unconfirmed.in_flight == 2


def test_probe_does_not_double_what_is_in_line(state):
    """P10: a frame still waiting to be sent is missing at the broker, and is sent once."""
    state.append_frame(frame(2))
    state.next_action(0.0)
    state.append_frame(frame(2))
    state.on_probed([Range(1, 4)])
    assert sent(state.next_action(1.0)) == (1, 2)
    assert sent(state.next_action(1.0)) == (3, 4)
    assert isinstance(state.next_action(1.0), Wait)


def test_cut_sends_the_unanswered_again_in_order(state):
    """P10: unanswered numbers are sent again in order, without the answered ones."""
    state.append_frame(frame(3))
    state.append_frame(frame(2))
    state.next_action(0.0)
    state.next_action(0.0)
    state.on_confirm(2, 2, multiple=False)
    state.on_disconnect()
    state.append_frame(frame(1))
    assert state.next_action(1.0) == Wait(None)
    state.on_opened()
    assert [sent(state.next_action(1.0)) for _ in range(4)] == [(1, 1), (3, 3), (4, 5), (6, 6)]


def test_part_of_a_frame_is_a_block_of_its_own(state):
    """P10: a frame is sliced, as a number below the lowest unanswered must not be resent."""
    state.append_frame(frame(4))
    state.next_action(0.0)
    state.on_confirm(2, 2, multiple=True)
    state.on_disconnect()
    state.on_opened()
    action = state.next_action(1.0)
    header, batch = block.decode(action.part.frame.block(action.part.numbers), validate=True)
    assert batch.column("body").to_pylist() == [b"2", b"3"]
    assert (header.routing_key, action.lowest_unanswered) == ("q", 3)


def test_return_is_news_once(state):
    """P7: a return repeated after a cut is reported once."""
    state.append_frame(frame(3))
    state.next_action(0.0)
    reason = errors.UnroutableError("no queue")
    assert state.on_return([2, 3], reason) == [2, 3]
    state.on_disconnect()
    assert state.on_return([2, 3], reason) == []
    state.on_opened()
    state.next_action(0.0)
    (answered,) = state.on_confirm(2, 2, multiple=True)
    assert state.take_returns(answered.numbers) == {2: reason}
    assert state.on_return([1], reason) == []


def test_a_return_before_a_cut_decides_nothing(state):
    """P7, P10: the broker routes the message again, and its confirm says where that led."""
    state.append_frame(frame(3))
    state.next_action(0.0)
    reason = errors.UnroutableError("no queue")
    assert state.on_return([1, 2], reason) == [1, 2]
    state.on_disconnect()
    state.on_opened()
    state.next_action(1.0)
    assert state.on_return([2, 3], reason) == [3]
    (answered,) = state.on_confirm(3, 3, multiple=True)
    assert state.take_returns(answered.numbers) == dict.fromkeys([2, 3], reason)


def test_finishing_publisher_ends_when_all_is_answered():
    """P10: close sends the draft at once, and `close` when every number is answered."""
    state = make_state(linger_s=100.0)
    add(state)
    state.finishing = True
    assert sent(state.next_action(0.0)) == (1, 1)
    assert isinstance(state.next_action(0.0), Wait)
    state.on_confirm(1, 1, multiple=True)
    assert state.next_action(0.0) == Close(2)
    assert state.next_action(0.0) == Finish()


def test_a_finishing_publisher_without_a_stream_says_nothing():
    """P10: without a stream none is opened for a close; the state is kept for its 7 days."""
    state = make_state()
    state.on_disconnect()
    state.finishing = True
    assert state.next_action(0.0) == Finish()


def test_answer_to_an_unsent_number_is_an_error(state):
    """P3: the broker cannot answer a number that was not sent."""
    state.append_frame(frame(2))
    with pytest.raises(errors.InternalError, match="number 1, but only 0 were sent"):
        state.on_confirm(1, 1, multiple=True)


def test_answered_frames_are_let_go():
    """P9: answered frames free their content, even after an older unanswered frame."""
    unconfirmed = Unconfirmed()
    frames = [frame(1) for _ in range(500)]
    for each in frames:
        unconfirmed.add(each)
        unconfirmed.next_part(0.0)
    unconfirmed.answer(2, 500)
    assert {each.content for each in frames[1:]} == {b""}
    unconfirmed.answer(1, 1)
    assert unconfirmed._frames == []


@pytest.mark.parametrize("fail", [False, True])
def test_told_frames_let_go_of_their_futures(fail):
    """P9: an answered frame that is still listed drops its futures."""
    state = make_state(linger_s=0.0)
    state.append(ORDERS, row(b"a"), 2, future := ConfirmationFuture(), 0.0)
    state.next_action(0.0)
    (answered,) = state.on_confirm(1, 1, multiple=False)
    if fail:
        answered.frame.receipt.fail(1, answered.numbers, errors.QueueFullError("full"))
    else:
        answered.frame.receipt.confirm(1, answered.numbers, {})
    assert future.done()
    assert answered.frame.receipt._futures == []


def test_frame_answered_on_its_way_out_is_not_sent():
    """P10: the sender encodes without the lock, and an answer may free the rows meanwhile."""
    state = make_state(linger_s=0.0)
    add(state, count=2)
    state.next_action(0.0)
    state.on_probed([Range(1, 2)])
    again = state.next_action(0.0)
    assert sent(again) == (1, 2)
    state.on_confirm(1, 2, multiple=True)
    assert requests.encoded(again) == b""


def test_frame_answered_while_it_is_encoded_frees_its_rows():
    """P9: a block whose frame was answered during its encoding is not kept."""

    def encode():
        unconfirmed.drain()
        return b"block"

    unconfirmed = Unconfirmed()
    late = PublishFrame(ORDERS, encode, 1, 1, MessageReceipt([ConfirmationFuture()]))
    unconfirmed.add(late)
    part = unconfirmed.next_part(0.0)
    assert late.block(part.numbers) == b"block"
    assert late.content == b""


class Silent:
    """A receipt that ignores its answers."""

    def confirm(self, *_):
        pass

    def fail(self, *_):
        pass


def seconds_each(messages, rows):
    """CPU time per message: confirms every other one singly from the last, then the rest."""
    unconfirmed = Unconfirmed()
    for _ in range(messages // rows):
        unconfirmed.add(PublishFrame(ORDERS, b"block", rows, rows, Silent()))
    while unconfirmed.next_part(0.0) is not None:
        pass
    assert unconfirmed.overdue(-1.0) is None
    started = time.thread_time()
    for number in range(messages, 0, -2):
        unconfirmed.answer(number, number)
    assert unconfirmed.overdue(0.0) == (1, messages)
    unconfirmed.answer(1, messages)
    taken = time.thread_time() - started
    assert not unconfirmed
    return taken / messages


@pytest.mark.parametrize(("messages", "rows"), [(200_000, 1), (1_000_000, 10_000)])
def test_an_answer_costs_the_same_at_any_depth(messages, rows):
    """P9: O(1) per message with a million unconfirmed, in whatever shape confirms come.

    A single list of all unanswered numbers, cut at its head each time, takes 8 times as long.
    """
    few = min(seconds_each(10_000, rows) for _ in range(5))
    assert seconds_each(messages, rows) < 4 * few


STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 5)),
    st.tuples(st.just("send"), st.just(0)),
    st.tuples(st.just("confirm"), st.integers(1, 40)),
    st.tuples(st.just("multiple"), st.integers(1, 40)),
    st.tuples(st.just("nack"), st.integers(1, 40)),
    st.tuples(st.just("missing"), st.integers(1, 40)),
    st.tuples(st.just("cut"), st.just(0)),
)


@settings(max_examples=300)
@given(st.lists(STEP, max_size=60))
def test_every_number_is_answered_once_and_sent_until_then(steps):  # noqa: C901 - one case a step
    """P3, P9, P10: despite losses each number gets one answer, and is not sent after it."""
    unconfirmed = Unconfirmed()
    added = seen = 0
    answered: set[int] = set()

    def answer(first, last):
        for _, numbers, _ in unconfirmed.answer(first, last):
            span = set(range(numbers.first, numbers.last + 1))
            assert not span & answered
            answered.update(span)

    for step, value in steps:
        if step == "add":
            unconfirmed.add(frame(value))
            added += value
        elif step == "send":
            part = unconfirmed.next_part(0.0)
            if part is not None:
                span = set(range(part.numbers.first, part.numbers.last + 1))
                assert not span & answered
                assert min(span) >= unconfirmed.lowest_unanswered
                seen = max(seen, part.numbers.last)
        elif step == "missing":
            unconfirmed.resend([Range(value, value + 2)])
        elif step == "cut":
            unconfirmed.on_disconnect()
        elif value <= seen:
            answer(1 if step == "multiple" else value, value)
    while (part := unconfirmed.next_part(0.0)) is not None:
        answer(*part.numbers)
    # A sent frame that is neither answered nor queued would wait for its probe.
    unconfirmed.on_disconnect()
    while (part := unconfirmed.next_part(0.0)) is not None:
        answer(*part.numbers)
    assert answered == set(range(1, added + 1))
    assert unconfirmed.in_flight == 0
    assert not unconfirmed
