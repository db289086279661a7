"""Which consumer gets the next messages, with consumers and queues that are plain counters."""

import asyncio
from collections import Counter

import pytest

from ackq import limits
from ackq_broker.service.consuming import dispatcher
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher


class Engine:
    """Queues as numbers of ready messages, of which `overdue` can no longer be delivered."""

    def __init__(self, **ready):
        self.core = self.state = self
        self.on_change = []
        self.queues = ready
        self.overdue = Counter()
        self.woken = set()

    def or_fail(self, work):
        return work

    def ready(self, queue):
        return self.queues[queue]

    def drain_woken(self):
        woken, self.woken = self.woken, set()
        return woken

    def note_consumers(self, queue, consumers, demand):
        """Does nothing: the core's use of these is tested with a core."""

    def publish(self, queue, messages):
        self.queues[queue] += messages
        self.woken.add(queue)
        self.written()

    def written(self):
        for notify in self.on_change:
            notify()


@pytest.fixture(autouse=True)
def counters(monkeypatch):
    """Replaces the views of the core with those of these counters."""
    monkeypatch.setattr(dispatcher, "views", Engine)


class QueueConsumer:
    """Takes up to `free` messages; `asked` counts the calls of `room`."""

    no_ack = False
    channel = "shared"

    def __init__(self, engine, name, free=limits.FRAME_TARGET_ROWS, queue="q", log=None):
        self.engine = engine
        self.name = name
        self.free = free
        self.queue = queue
        self.log = [] if log is None else log
        self.asked = 0
        self.parked = 0

    def room(self, beside=0):
        self.asked += 1
        return max(self.free - beside, 0)

    def deliver(self, messages):
        taken = min(messages, self.engine.queues[self.queue] - self.engine.overdue[self.queue])
        self.engine.queues[self.queue] -= taken
        self.free -= taken
        if taken:
            self.log.append((self.name, taken))
        return taken

    def park(self):
        self.parked += 1

    @property
    def got(self):
        return sum(taken for name, taken in self.log if name == self.name)


def setup(*, ready=0, takers=1, **fields):
    engine = Engine(q=ready)
    dispatcher = ConsumerDispatcher(engine, lambda: 0.0)
    log = []
    found = [QueueConsumer(engine, number, log=log, **fields) for number in range(takers)]
    for taker in found:
        dispatcher.add(taker)
    return engine, dispatcher, found, log


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_shares_are_equal():
    """C8: ready messages are divided equally among the waiting consumers."""
    engine, _, takers, log = setup(ready=1000, takers=4)
    await turns()
    assert [taker.got for taker in takers] == [250] * 4
    assert engine.queues["q"] == 0
    assert len(log) == 4


async def test_single_messages_go_round():
    """C8: messages that arrive one by one go to the consumers in turn."""
    engine, _, takers, log = setup(takers=3)
    for _ in range(9):
        engine.publish("q", 1)
        await turns(2)
    assert [name for name, _ in log] == [0, 1, 2] * 3
    assert sum(taker.asked for taker in takers) == 9


async def test_a_message_wakes_one_of_a_thousand():
    """C16: no thundering herd: a consumer without room is asked once, and then left alone."""
    engine, dispatcher, takers, _ = setup(takers=1000, free=0)
    takers[500].free = 100
    engine.publish("q", 1)
    await turns()
    before = sum(taker.asked for taker in takers)
    assert (takers[500].got, before <= 1000) == (1, True)
    for _ in range(50):
        engine.publish("q", 1)
        await turns(2)
    assert takers[500].got == 51
    assert sum(taker.asked for taker in takers) - before <= 600
    engine.publish("q", 49)
    engine.publish("q", 1)
    await turns()
    takers[7].free = 1
    dispatcher.offer(takers[7])
    await turns()
    assert (takers[7].got, engine.queues["q"]) == (1, 0)


async def test_queues_take_turns():
    """Fairness: a queue with a long backlog does not keep another queue waiting."""
    engine = Engine(long=1_000_000, short=2)
    dispatcher = ConsumerDispatcher(engine, lambda: 0.0)
    log = []
    for queue in ("long", "short"):
        dispatcher.add(QueueConsumer(engine, queue, 1 << 40, queue, log))
    await turns()
    assert [name for name, _ in log[:3]] == ["long", "short", "long"]
    assert engine.queues == {"long": 0, "short": 0}


async def test_a_turn_ends_so_that_others_have_theirs():
    """Fairness: a dispatcher turn ends on time, so the event loop is never blocked longer."""
    clock = iter(range(1000))
    engine = Engine(q=50 * limits.FRAME_TARGET_ROWS)
    dispatcher = ConsumerDispatcher(engine, lambda: float(next(clock)))
    taker = QueueConsumer(engine, "t", 1 << 40)
    dispatcher.add(taker)
    await turns(1)
    assert len(taker.log) == 1
    await turns(60)
    assert engine.queues["q"] == 0


async def test_overdue_messages_are_no_loop():
    """Q3: overdue ready messages go to no consumer, and cause no retries until the queue wakes."""
    engine, _, (taker,), _ = setup()
    engine.overdue["q"] = 3
    engine.publish("q", 3)
    await turns()
    asked = taker.asked
    engine.written()
    await turns()
    assert (taker.got, taker.asked) == (0, asked)
    engine.publish("q", 1)
    await turns()
    assert taker.got == 1


async def test_a_parked_consumer_is_served_in_its_turn():
    """C8, C11: a parked consumer whose channel has room again gets its share, then waits again."""
    engine, dispatcher, (one, other), log = setup(takers=2, free=0)
    engine.publish("q", 10)
    await turns()
    assert (one.parked, other.parked) == (1, 1)
    one.free = other.free = 100
    dispatcher.serve(one)
    dispatcher.serve(other)
    await turns()
    assert log[0] == (0, 10)
    engine.publish("q", 10)
    await turns()
    assert (one.got + other.got, other.got >= 4) == (20, True)
