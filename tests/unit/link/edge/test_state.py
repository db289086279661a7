"""The state machine of a link, without threads or a broker: rules L5, L8, L10, L20, L25, L27."""

import pytest

from ackq import limits
from ackq.client.connection.duplex import Finish, Wait
from ackq.client.ranges import Range
from ackq.errors import ClosedError, FencedError, HistoryChangedError, InternalError, QueueFullError
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.deliveries import Columns, Proof, parts
from ackq_link.edge.state import LinkState, SendHeartbeat, SendPart, SendSubscribe
from tests.fakes.blocks import batch

BEAT_S = limits.HEARTBEAT_SEND_MS / 1000


class World:
    """A link state that has subscribed, with the recorded results of its calls."""

    def __init__(self):
        self.state = LinkState()
        self.results = {}
        self.subscriptions = []
        self.proof = Proof()
        self.open()
        self.subscribe(1)

    def open(self, epoch=1, history="h", **more):
        self.state.on_opened(pb.LinkOpened(incarnation="i", epoch=epoch, history=history, **more))
        assert isinstance(self.next(), SendHeartbeat | SendSubscribe)

    def subscribe(self, number):
        self.state.subscribe(lambda: self.proof, self.subscriptions.append)
        assert isinstance(self.next(), SendSubscribe)
        self.state.on_subscribed(number)

    def next(self, now=0.0):
        return self.state.next_action(now)

    def add(self, first, rows):
        def complete():
            return lambda result: self.results.__setitem__(first, result)

        beside = Columns(bytes(16 * rows), bytes(8 * rows), None, None)
        self.state.add(parts(first, batch(body=[b"b"] * rows), beside, "q", complete))

    def stored(self, first, *runs, **more):
        """Answers runs of (rows, first position, permitted)."""
        names = ("rows", "first_position", "permitted")
        lists = dict(zip(names, zip(*runs, strict=True), strict=True))
        lists["matched"] = [0] * len(runs)
        self.state.on_stored(pb.LinkStored(first_number=first, **lists | more), 0.0)

    def refuse(self, *numbers, now=0.0, refused="queue_full", reason="It is full."):
        for first in numbers:
            full = pb.LinkStored(first_number=first, refused=refused, reason=reason)
            self.state.on_stored(full, now)

    def permit(self, *ranges, rejected=()):
        first, last = zip(*ranges, strict=True)
        answer = pb.LinkPermits(first_number=first, last_number=last, rejected=rejected)
        self.state.on_permits(answer)

    def sent(self, now=0.0):
        """The first numbers of all frames that are sent now."""
        found = []
        while isinstance(action := self.next(now), SendPart):
            found.append(action.part.numbers.first)
        return found


@pytest.fixture
def world():
    return World()


def test_what_follows_a_refusal_waits_for_it(world):
    """L8, L20: later frames are refused too, and resent in order after a doubling wait."""
    for number in (1, 2, 3):
        world.add(number, 1)
    assert world.sent() == [1, 2, 3]
    world.refuse(1, now=1.0)
    assert isinstance(world.state.refusal, QueueFullError)
    assert world.sent(1.0) == []  # the refusals of these frames are in flight
    world.refuse(2, 3, now=1.0)
    assert world.next(1.0) == Wait(1.1)
    world.add(4, 1)
    assert world.sent(1.1) == [1, 2, 3, 4]
    world.stored(1, (1, 10, 0))
    assert world.state.refusal is None
    world.refuse(2, 3, 4, now=2.0)
    assert world.sent(2.1) == [2, 3, 4]
    world.refuse(2, 3, 4, now=3.0)
    assert world.next(3.1) == Wait(3.2)
    assert set(world.results) == {1}


@pytest.mark.parametrize("cut", [False, True])
def test_a_subscription_that_another_overtakes(world, cut):
    """L17: the answer to the request of the earlier one is not that of the later one."""
    world.state.subscribe(Proof, world.subscriptions.append)
    assert isinstance(world.next(), SendSubscribe)
    if cut:
        world.state.on_disconnect()
    world.state.subscribe(Proof, world.subscriptions.append)
    if cut:
        world.open()
    else:
        assert isinstance(world.next(), SendSubscribe)
        world.state.on_subscribed(2)
        assert not world.state.may_store
    world.state.on_subscribed(3)
    assert (world.state.subscription, world.subscriptions) == (3, [1, 3])


def test_the_edge_ends_a_subscription(world):
    """Q8, L1, L27: after lost messages the broker ends it, and waiting calls fail.

    Another history or epoch, that is a restored broker or another process, ends the link.
    """
    world.add(1, 1)
    world.sent()
    world.state.on_disconnect()
    world.open(subscription=0)
    assert world.results[1] is world.state.ended
    assert not world.state.may_store
    world.state.subscribe(Proof, world.subscriptions.append)
    assert world.state.ended is None
    with pytest.raises(HistoryChangedError, match="was h"):
        world.open(history="g")
    with pytest.raises(FencedError, match="cut off"):
        world.open(epoch=2)


def test_repetitions_end_a_subscription(world):
    """L6: the refusal `closed` fails all deliveries; then repetitions are stored for an hour."""
    for first in (1, 2):
        world.add(first, 1)
    assert world.next().repeats_end
    world.sent()
    world.add(3, 1)
    world.refuse(1, 2, refused="closed", reason="Again.")
    assert [str(world.results[first]) for first in (1, 2, 3)] == ["Again."] * 3
    assert world.state.ended is world.results[1]
    assert world.sent() == []
    world.subscribe(2)
    assert world.state.ended is None
    for first, now in ((1, 3_599.0), (2, 3_600.0)):
        world.next(now)
        world.add(first, 1)
        assert world.next(now).repeats_end == (first == 2)


def test_permits_keep_their_order_and_come_once(world):
    """L10: permits repeated by a new stream or a repeated answer count once."""
    for first in (1, 4):
        world.add(first, 3)
    world.sent()
    world.stored(1, (1, 7, 1), (2, 3, 0))
    world.permit((3, 3), (2, 2))
    assert world.state.take_permits()[0] == [Range(1, 1), Range(3, 3), Range(2, 2)]
    world.state.on_disconnect()
    world.open(subscription=1, next_number=7)
    # Permits of an unanswered delivery may come before its answer.
    world.permit((1, 1), (3, 3), (2, 2), (4, 5))
    assert world.state.take_permits()[0] == [Range(4, 5)]
    world.next(50.0)
    assert world.sent(50.0) == [4]
    world.stored(4, (3, 20, 1))
    assert world.state.take_permits()[0] == [Range(6, 6)]
    assert world.results[4].permitted == 3


def test_permits_have_an_outcome(world):
    """L28: answers and permits carry outcomes; ranges of two outcomes are never joined."""
    world.add(1, 6)
    world.sent()
    world.stored(1, (2, 1, 1), (1, 3, 1), (3, 4, 0), matched=[0, 1, 0], rejected=[0, 1, 0])
    assert [run.rejected for run in world.results[1].runs] == [False, True, False]
    world.permit((4, 4), (5, 6), rejected=[1, 0])
    ranges = [Range(1, 2), Range(3, 4), Range(5, 6)]
    assert world.state.take_permits() == (ranges, [False, True, False])
    assert world.state.take_permits() == ([], [])


def test_heartbeats_say_what_is_proven(world):
    """L10: heartbeats carry the proof even without deliveries, but none before subscribing."""
    world.proof = Proof(4, 4)
    assert world.next(BEAT_S) == SendHeartbeat(1, Proof(4, 4), None)
    assert world.next(BEAT_S) == Wait(2 * BEAT_S)
    world.state.subscribe(lambda: Proof(9, 9), lambda _: None)
    world.next(BEAT_S)
    assert world.next(2 * BEAT_S) == SendHeartbeat(0, Proof(), None)


def test_the_state_of_the_link(world):
    """L18, L25: the broker's report of the link's state is kept until the next subscription."""
    world.state.on_state(pb.LinkState(paused=True, held=4, missing=3))
    assert (world.state.paused, world.state.held, world.state.missing) == (True, 4, 3)
    world.state.subscribe(Proof, lambda _: None)
    assert (world.state.held, world.state.missing) == (0, 0)


def test_the_end_of_a_link(world):
    """L1: waiting calls get the error, and nothing more is sent."""
    world.add(1, 1)
    world.state.subscribe(Proof, world.subscriptions.append)
    error = FencedError("Another one runs it.")
    world.state.fail(error)
    assert world.subscriptions[-1] is error
    assert world.next() == Finish()
    assert world.state.done


NO_RUN = dict.fromkeys(("rows", "first_position", "matched", "permitted"), ())


@pytest.mark.parametrize(
    ("first", "rows", "more"), [(2, 1, {}), (1, 1, {"permitted": []}), (1, 2, {}), (1, 1, NO_RUN)]
)
def test_an_answer_that_is_none(world, first, rows, more):
    """I6: an answer that does not fit the deliveries is an error, not an acknowledgement.

    The deliveries stay open until the next call or the end, and then fail.
    """
    world.add(1, 1)
    world.sent()
    with pytest.raises(InternalError):
        world.stored(first, (rows, 1, 0), **more)
    assert (world.state.permits, world.results) == ([], {})
    error = ClosedError("closed")
    world.state.fail(error)
    assert world.results == {1: error}


def test_permits_that_are_none(world):
    """I6: malformed permits are an error; permits for undelivered numbers are ignored."""
    world.add(1, 1)
    for answer in ({}, {"last_number": [1], "rejected": [1, 1]}):
        with pytest.raises(InternalError):
            world.state.on_permits(pb.LinkPermits(first_number=[1], **answer))
    world.permit((2, 2**63), (0, 0))
    assert world.state.permits == []
