"""The state machine of a publisher in confirm mode, without threads: rules P2, P9, P10, P11, P14.

The simulation runs it in any order of answers, losses and cuts (tests/crash/simulation).
"""

import pytest

from ackq import errors, limits
from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Wait
from ackq.client.publishing import requests
from ackq.client.publishing.confirm_state import ConfirmState, PublishSettings
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.client.publishing.receipts import MessageReceipt
from ackq.client.publishing.requests import Probe, SendRows
from ackq.client.publishing.unconfirmed import Destination, PublishFrame, Unconfirmed
from ackq.client.ranges import Range

ORDERS = Destination("", mandatory=False)
GATHER_S = limits.PUBLISH_GATHER_MS / 1000


def make_state(*, linger_s=0.0, ack_timeout_s=5.0):
    window = {"persistent": True, "window_messages": 100_000, "window_bytes": 1_000_000}
    times = {"linger_s": linger_s, "ack_timeout_s": ack_timeout_s}
    state = ConfirmState(PublishSettings(**window, **times))
    state.on_opened()
    return state


def row(body):
    return encoding.Row(body, "q", None, None, None, None, None, None, None)


def add(state, now=0.0, count=1, destination=ORDERS):
    return [
        state.append(destination, row(b"%d" % i), 2, ConfirmationFuture(), now)
        for i in range(count)
    ]


def frame(count):
    rows = [row(b"%d" % number) for number in range(count)]
    content = encoding.encode_rows(rows, persistent=True)
    return PublishFrame(
        ORDERS, content, count, len(content), MessageReceipt([ConfirmationFuture() for _ in rows])
    )


def sent(action):
    assert isinstance(action, SendRows)
    return tuple(action.part.numbers)


def test_single_messages_wait_for_others():
    """P11: not longer than the linger; urgent ones go at once, but behind two frames they gather.

    So no queue of tiny frames forms.
    """
    state = make_state(linger_s=1.0)
    add(state, now=10.0)
    assert state.next_action(10.5) == Wait(11.0)
    assert sent(state.next_action(11.0)) == (1, 1)
    urgent = Destination("", mandatory=False, ack_immediately=True)
    add(state, now=11.0, destination=urgent)
    assert sent(state.next_action(11.0)) == (2, 2)
    add(state, now=11.0, count=5, destination=urgent)
    assert state.next_action(11.0) == Wait(12.0)
    state.on_confirm(1, 1, multiple=True)
    assert sent(state.next_action(11.0)) == (3, 7)


def test_answers_clock_the_next_frame():
    """With frames in flight, messages gather until an answer or the gather time."""
    state = make_state()
    state.append_frame(frame(1))
    assert sent(state.next_action(0.0)) == (1, 1)
    add(state, now=1.0, count=5)
    assert state.next_action(1.0) == Wait(1.0 + GATHER_S)
    state.on_confirm(1, 1, multiple=True)
    assert sent(state.next_action(1.01)) == (2, 6)
    add(state, now=2.0)
    assert sent(state.next_action(2.0 + GATHER_S)) == (7, 7)


def test_sender_is_woken_twice_per_frame():
    """O(1) wake-ups per frame: for the first message, and when the frame is full."""
    woken = add(make_state(linger_s=1.0), count=10_001)
    assert [at for at, wake in enumerate(woken) if wake] == [0, 9_999, 10_000]


def test_probes_name_what_is_late():
    """P10: and nothing else; each frame has its own timeout, also once an older is answered.

    P14: no probe is sent to a blocked broker; unblocking restarts the timers.
    """
    state = make_state()
    state.append_frame(frame(4))
    state.next_action(0.0)
    assert state.next_action(0.0) == Wait(5.0)
    state.append_frame(frame(2))
    state.next_action(3.0)
    state.on_confirm(2, 2, multiple=True)
    assert state.next_action(5.0) == Probe(Range(3, 4), 3)
    assert state.next_action(5.0) == Wait(10.0)
    assert state.next_action(10.0) == Probe(Range(3, 6), 3)
    state.append_frame(frame(1))
    state.next_action(12.0)
    state.on_confirm(6, 6, multiple=True)
    assert state.next_action(15.0) == Wait(17.0)
    state.on_blocked("disk")
    assert state.next_action(50.0) == Wait(None)
    state.on_unblocked()
    assert state.next_action(50.0) == Wait(55.0)
    assert state.next_action(55.0) == Probe(Range(7, 7), 7)


@pytest.mark.parametrize("fail", [False, True])
def test_told_frames_let_go_of_their_futures(fail):
    """P9: an answered frame that is still listed drops its futures."""
    state = make_state()
    add(state)
    state.next_action(0.0)
    (answered,) = state.on_confirm(1, 1, multiple=False)
    receipt = answered.frame.receipt
    (future,) = receipt._futures
    if fail:
        receipt.fail(1, answered.numbers, errors.QueueFullError("full"))
    else:
        receipt.confirm(1, answered.numbers, {})
    assert future.done()
    assert receipt._futures == []


@pytest.mark.parametrize("ack_timeout_s", [2.0, float("inf")])
def test_answered_frames_are_not_kept(ack_timeout_s):
    """I6: a publisher that pauses between its messages keeps the records of a few frames."""
    state = make_state(ack_timeout_s=ack_timeout_s)
    for number in range(1, 1_001):
        add(state, now=3.0 * number)
        sent(state.next_action(3.0 * number))
        state.on_confirm(number, number, multiple=False)
        assert state.next_action(3.0 * number + 1.0) == Wait(None)
    assert len(state.unconfirmed._flights._flights) < 200


def test_frame_answered_on_its_way_out_is_not_sent():
    """P10: the sender encodes without the lock, and an answer may free the rows meanwhile."""
    state = make_state()
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


class Counted(list):
    """A list that counts the elements that are read or moved."""

    work = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        Counted.work += len(found) if isinstance(at, slice) else 1
        return found

    def __delitem__(self, at):
        Counted.work += len(self)
        super().__delitem__(at)


def work_of_each(messages):
    """Elements touched per message: every other one is confirmed singly from the last."""
    unconfirmed = Unconfirmed()
    unconfirmed._frames, unconfirmed._firsts = Counted(), Counted()
    frames = [frame(1) for _ in range(messages)]
    for each in frames:
        unconfirmed.add(each)
        unconfirmed.next_part(0.0)
    Counted.work = 0
    for number in range(messages, 0, -2):
        unconfirmed.answer(number, number)
    assert {each.content for each in frames[1::2]} == {b""}
    assert unconfirmed.overdue(0.0) == (1, messages)
    unconfirmed.answer(1, messages)
    assert unconfirmed._frames == []
    return Counted.work / messages


def test_an_answer_costs_the_same_at_any_depth():
    """P9: an answer touches as many frames with 20,000 unconfirmed as with 500.

    It frees the content of its frame, even behind an older frame without an answer.
    """
    assert 0 < work_of_each(20_000) < 3 * work_of_each(500)
