"""Consumers that outlive broker channels: kill -9, restarts and cuts (C10, C12, C15, C17)."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ackq import errors
from ackq.client import Channel
from tests.eventually import equals, eventually
from tests.unit.client.threads import SOON_S
from tests.wire.consuming.test_client import left, publish

MESSAGES = 300


@pytest.fixture
def orders(admin):
    """Declares a queue `orders`, which the test fills; returns its name."""
    admin.declare_queue("orders")
    return "orders"


@pytest.fixture
def relay(broker, relay_to):
    return relay_to(broker.endpoint)


def is_empty(admin, queue):
    """Whether the broker answers and the queue is empty."""
    with suppress(errors.BrokerUnavailableError):
        return left(admin, queue) == (0, 0)
    return False


@pytest.fixture(params=["killed", "cut"])
def disaster(request, broker, admin, relay):
    """Kills the broker and starts it again, or cuts the network until the channel is closed."""

    def kill():
        broker.kill()
        broker.restart()

    def cut():
        relay.cut()
        eventually("the channel's end", lambda: admin.queue("orders").consumers == 0)
        relay.heal()

    return kill if request.param == "killed" else cut


class Disaster:
    """Strikes a number of times in a thread, each time after `may_strike`."""

    def __init__(self, strike, times):
        self._strike = strike
        self._times = times
        self._thread = ThreadPoolExecutor(1)
        self._strikes = []

    def may_strike(self):
        if len(self._strikes) < self._times:
            self._strikes.append(self._thread.submit(self._strike))

    def over(self):
        eventually("the last one", lambda: len(self._strikes), equals(self._times))
        for each in self._strikes:
            each.result(SOON_S)


@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
def test_callbacks_lose_nothing(broker, admin, relay, orders, disaster, mode):
    """C10, C17: callbacks handle each message over kills and cuts, and the queue is empty then."""
    publish(broker.endpoint, orders, MESSAGES)
    came = Counter()
    trouble = Disaster(disaster, 2)

    def call_back(message):
        came[int(message.body)] += 1
        if came.total() in {40, 150}:
            trouble.may_strike()

    with Channel(relay.endpoint) as channel:
        channel.consume(orders, call_back, mode=mode, prefetch=20)
        trouble.over()
        eventually("an empty queue", lambda: is_empty(admin, orders))
    assert set(came) == set(range(MESSAGES))


def test_a_queue_that_did_not_survive_ends_its_consumer_alone(broker, admin, orders):
    """C17, Q7: a non-durable queue lost in a restart ends its consumer alone, not the channel."""
    admin.declare_queue("passing", durable=False)
    publish(broker.endpoint, orders, 1)
    with Channel(broker.endpoint) as channel:
        durable = channel.consume(orders, mode="client")
        passing = channel.consume("passing")
        durable.receive(SOON_S)
        broker.kill()
        broker.restart()
        with pytest.raises(errors.QueueNotFoundError, match="passing"):
            passing.receive(SOON_S)
        message = durable.receive(SOON_S)
        assert (message.body, message.redelivered) == (b"0", True)
        assert message.accept().result(SOON_S) == 1


def test_renewal(ackq):
    """C17: a renewed channel's tags go on, unacked messages come again, and old tags are stale."""
    queue, connection = ackq.filled(b"a", b"b"), ackq.connect()
    with Channel(connection.relay.endpoint) as channel:
        consumer = channel.consume(queue, mode="client")
        old = [consumer.receive(SOON_S) for _ in range(2)]
        connection.relay.cut()
        ackq.wait_ready(queue, 2)
        connection.relay.heal()
        new = [consumer.receive(SOON_S) for _ in range(2)]
        assert [each.delivery_tag for each in (*old, *new)] == [1, 2, 3, 4]
        assert [(each.body, each.redelivered) for each in new] == [(b"a", True), (b"b", True)]
        with pytest.raises(errors.StaleDeliveryTagError):
            old[1].accept().result(SOON_S)
        assert channel.unacked == 2
        assert new[1].accept().result(SOON_S) == 1
    assert ackq.drain(queue) == [b"a"]
