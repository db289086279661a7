"""Consumers that outlive broker channels: kill -9, restarts and cuts (C10, C12, C15, C17)."""

import sys
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


def is_empty(admin, queue):
    """Whether the broker answers and the queue is empty."""
    with suppress(errors.BrokerUnavailableError):
        return left(admin, queue) == (0, 0)
    return False


@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
def test_callbacks_lose_nothing(broker, admin, orders, mode):
    """C10, C17: callbacks handle each message over two kills, and the queue is empty then."""
    publish(broker.endpoint, orders, MESSAGES)
    came, kills = Counter(), []

    def kill():
        broker.kill()
        broker.restart()

    def call_back(message):
        came[int(message.body)] += 1
        if came.total() >= (40, 150, sys.maxsize)[len(kills)]:
            kills.append(thread.submit(kill))

    with ThreadPoolExecutor(1) as thread, Channel(broker.endpoint) as channel:
        channel.consume(orders, call_back, mode=mode, prefetch=20)
        eventually("two kills", lambda: len(kills), equals(2))
        for each in kills:
            each.result(SOON_S)
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
