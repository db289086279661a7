"""Consumers that outlive broker channels: kill -9, restarts and cuts (C10, C12, C15, C17)."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ackq import errors
from ackq.client import AsyncChannel, Channel
from tests.eventually import equals, eventually
from tests.unit.client.threads import SOON_S, client_threads
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


def read_on(consumer):
    """Receives until nothing is left; messages already received come until the end is known."""
    while consumer.receive(SOON_S) is not None:
        pass


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


def test_what_was_accepted_and_answered_never_comes_again(broker, admin, relay, orders, disaster):
    """C15, C17: an accepted message whose answer came is not redelivered, and none is lost."""
    publish(broker.endpoint, orders, MESSAGES)
    told, gone, came = [], set(), Counter()
    trouble = Disaster(disaster, 3)
    with Channel(relay.endpoint, on_reconnect=told.append) as channel:
        consumer = channel.consume(orders, mode="client", prefetch=40)
        while len(gone) < MESSAGES:
            message = consumer.receive(0.1)
            if message is None:
                if is_empty(admin, orders):
                    break  # the other accepts have unknown outcomes, and took effect
                continue
            number = int(message.body)
            assert number not in gone, "it was accepted, and the broker said so"
            came[number] += 1
            if came.total() % 80 == 40:
                trouble.may_strike()
            try:
                message.accept().result(SOON_S)
            except (errors.StaleDeliveryTagError, errors.OutcomeUnknownError):
                pass
            else:
                gone.add(number)
        trouble.over()
        eventually("the renewals", lambda: len(told), equals(3))
    assert set(came) == set(range(MESSAGES))
    assert left(admin, orders) == (0, 0)
    assert all(each.redelivered <= 40 for each in told)
    assert client_threads() == []


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


def test_an_asynchronous_consumer_goes_on(broker, admin, relay, orders, disaster):
    """C17: an asynchronous consumer goes on over kills and cuts like the blocking one."""
    publish(broker.endpoint, orders, MESSAGES)
    came = Counter()
    trouble = Disaster(disaster, 2)

    async def main():
        async with AsyncChannel(relay.endpoint) as channel:
            consumer = await channel.consume(orders, mode="client", prefetch=20)
            while set(came) != set(range(MESSAGES)) or not is_empty(admin, orders):
                message = await consumer.receive(0.1)
                if message is None:
                    continue
                came[int(message.body)] += 1
                if came.total() in {40, 150}:
                    trouble.may_strike()
                with suppress(errors.StaleDeliveryTagError, errors.OutcomeUnknownError):
                    await message.accept()

    asyncio.run(main())
    trouble.over()


def test_a_receive_that_waits_gets_what_comes_later(broker, admin, relay, orders, disaster):
    """C17: a waiting `receive` survives a kill or cut, and gets a message published later."""
    got = []
    heard = threading.Event()
    with Channel(relay.endpoint, on_reconnect=lambda _: heard.set()) as channel:
        consumer = channel.consume(orders)
        waiting = threading.Thread(target=lambda: got.append(consumer.receive(SOON_S).body))
        waiting.start()
        eventually("the consumer", lambda: admin.queue(orders).consumers == 1)
        disaster()
        assert heard.wait(SOON_S)
        publish(broker.endpoint, orders, 1)
        waiting.join(SOON_S)
    assert got == [b"0"]
    assert left(admin, orders) == (0, 0)


@pytest.mark.parametrize("lost", ["the request", "the answer"])
def test_an_accept_in_flight_has_an_unknown_outcome(broker, admin, relay, orders, lost):
    """C15, C17: an accept in flight has an unknown outcome; without effect it is redelivered."""
    publish(broker.endpoint, orders, 2)
    with Channel(relay.endpoint) as channel:
        consumer = channel.consume(orders, mode="client")
        first, second = (consumer.receive(SOON_S) for _ in range(2))
        relay.hold("to_broker" if lost == "the request" else "to_client")
        accepted = first.accept()
        if lost == "the answer":
            eventually("the accept", lambda: admin.queue(orders).accepted == 1)
        else:
            eventually("the accept's sending", lambda: channel._state.unsettled._sent)
        broker.kill()
        relay.cut()
        relay.release()
        broker.restart()
        relay.heal()
        with pytest.raises(
            errors.OutcomeUnknownError, match="If it did not, its messages are delivered again"
        ):
            accepted.result(SOON_S)
        again = [consumer.receive(SOON_S)]
        if lost == "the request":
            again.append(consumer.receive(SOON_S))
        assert [each.body for each in again] == ([b"0", b"1"] if lost == "the request" else [b"1"])
        assert all(each.redelivered for each in again)
        with pytest.raises(errors.StaleDeliveryTagError, match="delivered again"):
            second.accept().result(SOON_S)
        channel.acknowledge(again[-1]).result(SOON_S)
    assert left(admin, orders) == (0, 0)


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


def test_a_broker_that_stays_away_is_told(broker, admin, orders, caplog):
    """C17: a broker that stays away ends the channel after the timeout, for every consumer."""
    publish(broker.endpoint, orders, 2)
    with Channel(broker.endpoint, reconnect_timeout_ms=2_000) as channel:
        called = channel.consume(orders, lambda _: None)
        consumer = channel.consume(orders, mode="client")
        eventually("both consumers", lambda: admin.queue(orders).consumers == 2)
        broker.kill()
        with pytest.raises(errors.ClosedError, match=r"cut for longer than 2 s .*refused"):
            read_on(consumer)
        with pytest.raises(errors.ClosedError, match="Open a new channel"):
            called.join(SOON_S)
        with pytest.raises(errors.ClosedError):
            channel.consume(orders)
    assert any("has ended" in each.getMessage() for each in caplog.records)
    broker.restart()


def test_a_channel_that_is_not_renewed_ends_with_its_tags(broker, relay, orders, disaster):
    """C11, C12, C17: a channel without reconnect ends with an error that says what was requeued."""
    publish(broker.endpoint, orders, 5)
    with Channel(relay.endpoint, reconnect_timeout_ms=0) as channel:
        consumer = channel.consume(orders, mode="client")
        consumer.receive(SOON_S).accept().result(SOON_S)
        message = consumer.receive(SOON_S)
        disaster()
        with pytest.raises(errors.ClosedError, match=r"delivered again \(messages: 4\)"):
            read_on(consumer)
        with pytest.raises(errors.ClosedError, match="tags are void"):
            message.accept()
    with Channel(broker.endpoint) as channel:
        assert [each.body for each in channel.get(orders, 9)] == [b"1", b"2", b"3", b"4"]


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
