"""Consumers against the reference broker: C2-C4, C6-C16, Q6."""

import asyncio

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client import (
    AcknowledgeMode,
    Admin,
    AsyncChannel,
    Channel,
    Publisher,
    close_channels,
)
from ackq_broker import embedded
from tests.unit.client.threads import SOON_S, client_threads
from tests.wire.in_process import broker_here


@pytest.fixture(scope="module")
def running():
    with embedded(sync=False) as broker:
        yield broker
        close_channels()


@pytest.fixture
def admin(running):
    return Admin(running.endpoint)


@pytest.fixture
def orders(admin, request):
    """A queue of the test's own, with a delivery limit, and its dead-letter queue."""
    name = request.node.name
    admin.declare_queue(f"{name}.dead")
    admin.declare_queue(name, delivery_limit=1, dead_letter_queue=f"{name}.dead")
    return name


@pytest.fixture
def channel(running):
    with Channel(running.endpoint) as opened:
        yield opened
    assert client_threads() == []


def publish(endpoint, queue, messages):
    table = pa.table({"body": [b"%d" % at for at in range(messages)]})
    with Publisher(endpoint, routing_key=queue) as out:
        out.publish_batch(table)


def bodies(messages):
    return [int(each.body) for each in messages]


def left(admin, queue):
    found = admin.queue(queue)
    return found.ready, found.unacked


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_each_mode_takes_everything_once(running, admin, channel, orders, mode):
    """C10: each mode delivers every message once, in order, and leaves none after settling.

    In CLIENT mode `acknowledge` accepts everything up to and including its message.
    """
    publish(running.endpoint, orders, 200)
    consumer = channel.consume(orders, mode=mode)
    messages = [consumer.receive(SOON_S) for _ in range(200)]
    if mode is AcknowledgeMode.CLIENT:
        assert left(admin, orders) == (0, 200)
        assert channel.acknowledge(messages[49]).result(SOON_S) == 50
        assert left(admin, orders) == (0, 150)
        channel.acknowledge(messages[-1])
    channel.flush(SOON_S)
    assert bodies(messages) == list(range(200))
    assert [each.delivery_tag for each in messages] == list(range(1, 201))
    assert left(admin, orders) == (0, 0)


def test_auto_has_accepted_when_it_returns(running, admin, channel, orders):
    """C10: in AUTO `receive` accepts a message before it returns it."""
    publish(running.endpoint, orders, 3)
    consumer = channel.consume(orders, prefetch=1)
    for taken in (1, 2, 3):
        consumer.receive(SOON_S)
        assert admin.queue(orders).accepted == taken


def test_outcomes(running, channel, orders):
    """C4, C13: each outcome has taken effect when its future is done."""
    publish(running.endpoint, orders, 4)
    declared = ["failed", "rejected", "released"]
    consumer = channel.consume(orders, mode="client", outcomes=declared)
    accepted, failed, rejected, released = (consumer.receive(SOON_S) for _ in range(4))
    assert accepted.accept().result(SOON_S) == 1
    assert rejected.reject("spoilt").result(SOON_S) == 1
    assert failed.fail("busy").result(SOON_S) == 1
    assert released.release().result(SOON_S) == 1
    again = [consumer.receive(SOON_S) for _ in range(2)]
    assert sorted(bodies(again)) == [1, 3]
    for message in again:
        message.fail("still busy")
    channel.flush(SOON_S)
    (dead, *_) = channel.get(f"{orders}.dead", 5)
    assert dead.body == b"2"
    assert dead.headers["ackq-dead-queue"] == orders
    assert dead.headers["ackq-dead-reason"]


def test_settling_twice_costs_the_channel(running, admin, orders):
    """C2: settling a tag twice closes the channel; unsettled messages are requeued."""
    publish(running.endpoint, orders, 3)
    with Channel(running.endpoint) as channel:
        consumer = channel.consume(orders, mode="client")
        first, *_ = [consumer.receive(SOON_S) for _ in range(3)]
        first.accept()
        with pytest.raises(errors.UnknownDeliveryTagError):
            first.accept()
    assert left(admin, orders) == (2, 0)


def test_a_queue_that_does_not_exist_is_told(running):
    """The first waiting call on a missing queue raises the error."""
    with Channel(running.endpoint) as channel:
        consumer = channel.consume("nowhere")
        with pytest.raises(errors.QueueNotFoundError, match="nowhere"):
            consumer.receive(SOON_S)
    with Channel(running.endpoint) as channel, pytest.raises(errors.QueueNotFoundError):
        channel.get("nowhere")


def test_a_deleted_queue_ends_its_consumer(running, admin, channel, orders):
    """A deleted queue ends its consumer alone; the channel goes on."""
    admin.declare_queue(f"{orders}.short")
    publish(running.endpoint, f"{orders}.short", 1)
    consumer = channel.consume(f"{orders}.short")
    consumer.receive(SOON_S)
    admin.delete_queue(f"{orders}.short", force=True)
    with pytest.raises(errors.AckqError, match=f"{orders}.short"):
        consumer.receive(SOON_S)
    publish(running.endpoint, orders, 1)
    assert channel.consume(orders).receive(SOON_S).body == b"0"


def test_prefetch_bounds_what_is_unsettled(running, channel, orders):
    """C8: prefetch bounds the unsettled messages of consumer and channel, and can be changed."""
    publish(running.endpoint, orders, 20)
    consumer = channel.consume(orders, mode="client", prefetch=5)
    messages = [consumer.receive(SOON_S) for _ in range(5)]
    assert consumer.receive(0.1) is None
    messages[0].accept()
    messages.append(consumer.receive(SOON_S))
    consumer.set_prefetch(8)
    messages += [consumer.receive(SOON_S) for _ in range(3)]
    assert consumer.receive(0.1) is None
    channel.set_prefetch(10)
    consumer.set_prefetch(0)
    messages += [consumer.receive(SOON_S) for _ in range(2)]
    assert consumer.receive(0.1) is None
    assert bodies(messages) == list(range(11))


@pytest.mark.parametrize("mode", ["auto", "dups_ok", "pre"])
def test_a_prefetch_of_one_does_not_stall(running, channel, orders, mode):
    """C8, C10: a prefetch of one does not stall, also when messages are accepted lazily."""
    publish(running.endpoint, orders, 30)
    consumer = channel.consume(orders, mode=mode, prefetch=1)
    assert bodies(consumer.receive(SOON_S) for _ in range(30)) == list(range(30))


@pytest.mark.parametrize("mode", ["client", "none"])
def test_a_slow_application_holds_the_broker_back(running, admin, orders, mode):
    """I6, C11: without prefetch, unread messages in the client's memory are bounded all the same.

    Transport acks reopen the small window, without any application ack.
    """
    publish(running.endpoint, orders, 500)
    with Channel(running.endpoint, window_messages=20, transport_ack_delay_ms=10) as small:
        consumer = small.consume(orders, mode=mode, prefetch=0)
        consumer.receive(SOON_S)
        with small._stream.lock:
            assert small._state._unread <= 60
        if mode == "client":
            assert admin.queue(orders).unacked <= 60
        assert bodies(consumer.receive(SOON_S) for _ in range(499)) == list(range(1, 500))
        assert left(admin, orders) == (0, 500 if mode == "client" else 0)


def test_batches_are_settled_in_any_part(running, admin, channel, orders):
    """C16: batches have the requested columns, and any rows of them can be settled."""
    publish(running.endpoint, orders, 100)
    names = ["delivery_tag", "body", "redelivered"]
    consumer = channel.consume(orders, mode="client", outcomes=["rejected"], columns=names)
    rows = 0
    while rows < 100:
        batch = consumer.receive_batch(40, SOON_S)
        assert batch.schema.names == names
        tags = batch.column("delivery_tag").to_pylist()
        bad = batch.filter(pa.array([tag % 10 == 0 for tag in tags]))
        good = batch.filter(pa.array([tag % 10 != 0 for tag in tags]))
        consumer.settle(bad, "rejected", reason="round number")
        consumer.settle(good)
        rows += batch.num_rows
    channel.flush(SOON_S)
    assert left(admin, orders) == (0, 0)
    assert left(admin, f"{orders}.dead") == (10, 0)


def test_settlements_behind_an_unsettled_message_go_together(running, admin, channel, orders):
    """C15, C16: settlements that wait for the sender go in one call, even with gaps in the tags."""
    publish(running.endpoint, orders, 1000)
    consumer = channel.consume(orders, mode="client", prefetch=0)
    messages = [consumer.receive(SOON_S) for _ in range(1000)]
    with channel._stream.lock:  # blocks the sender
        settlements = [each.accept() for each in messages[1::2]]
    assert [each.result(SOON_S) for each in settlements] == [1] * 500
    assert channel._state.unsettled._next_number == 2
    assert left(admin, orders) == (0, 500)


def test_messages_carry_what_was_published(running, channel, orders):
    """A message has every column as the publisher set it."""
    with Publisher(running.endpoint, routing_key=orders) as out:
        out.publish(
            b"body",
            message_id="1",
            correlation_id="2",
            reply_to="3",
            content_type="text/plain",
            headers={"tenant": "x"},
            persistent=False,
        )
    message = channel.consume(orders).receive(SOON_S)
    assert message.body == b"body"
    assert (message.message_id, message.correlation_id, message.reply_to) == ("1", "2", "3")
    assert (message.content_type, message.headers) == ("text/plain", {"tenant": "x"})
    assert (message.queue, message.routing_key, message.persistent) == (orders, orders, False)
    assert message.published_at.tzinfo is not None
    assert message.expires_at is None
    assert repr(message) == (
        f"Message(delivery_tag=1, queue='{orders}', delivery_count=1, 4 bytes)"
    )


def test_consumers_share_a_queue(running, orders):
    """C12: each message goes to one of the consumers of a queue."""
    publish(running.endpoint, orders, 400)
    with Channel(running.endpoint) as one, Channel(running.endpoint) as two:
        consumers = [one.consume(orders, prefetch=10), two.consume(orders, prefetch=10)]
        got = [consumer.receive(SOON_S) for consumer in consumers]
        while len(got) < 400:
            for consumer in consumers:
                message = consumer.receive(0.01)
                got += [] if message is None else [message]
    assert sorted(bodies(got)) == list(range(400))
    assert {each.settler.stream for each in got} == {one._stream, two._stream}


def test_a_closed_consumer_gives_back_what_it_did_not_read(running, channel, orders):
    """C4: a closed consumer releases its unread messages to other consumers at once."""
    publish(running.endpoint, orders, 50)
    with channel.consume(orders, mode="client", prefetch=20) as consumer:
        mine = consumer.receive(SOON_S)
    other = channel.consume(orders, mode="client")
    rest = [other.receive(SOON_S) for _ in range(49)]
    assert sorted(bodies(rest)) == list(range(1, 50))
    assert channel.unacked == 50
    assert mine.accept().result(SOON_S) == 1


def test_asynchronous(running, admin, orders):
    """C10: many coroutines consume on one AsyncChannel."""
    publish(running.endpoint, orders, 100)

    async def main():
        got = []
        async with AsyncChannel(running.endpoint) as channel:
            consumer = await channel.consume(orders, mode="client")

            async def work():
                for _ in range(20):
                    message = await consumer.receive(SOON_S)
                    got.append(message)
                    await message.accept()

            await asyncio.gather(*(work() for _ in range(5)))
        return got

    assert sorted(bodies(asyncio.run(main()))) == list(range(100))
    assert left(admin, orders) == (0, 0)


@pytest.fixture
def patient(tmp_path, monkeypatch):
    """The endpoint of a broker in this process that waits longer for a channel that was cut.

    The default of 2 s may be over before a busy machine has connected again.
    """
    monkeypatch.setattr(limits, "CHANNEL_RESUME_MS", SOON_S * 1000)
    with broker_here(tmp_path) as endpoint:
        yield endpoint
        close_channels()


def test_a_cut_connection_is_renewed(patient, relay_to):
    """C11, C15: over repeated cuts each message comes once, and each settlement is answered.

    Messages with only a transport ack are requeued when the channel ends.
    """
    admin, orders, relay = Admin(patient), "orders", relay_to(patient)
    admin.declare_queue(orders)
    publish(patient, orders, 3000)
    with Channel(relay.endpoint, window_messages=300) as channel:
        consumer = channel.consume(orders, mode="client", prefetch=0)
        messages, settlements = [], []
        for at in range(3000):
            message = consumer.receive(SOON_S)
            messages.append(message)
            if at % 3:
                settlements.append(message.accept())
            if at % 700 == 699:
                relay.cut()
                relay.heal()
        assert bodies(messages) == list(range(3000))
        assert not any(each.redelivered for each in messages)
        assert sum(each.result(SOON_S) for each in settlements) == 2000
        assert left(admin, orders) == (0, 1000)
    assert left(admin, orders) == (1000, 0)


def test_default_prefetch_fits_the_window():
    """C8, C11: the default prefetch of a consumer fits its channel's window."""
    assert limits.CONSUMER_PREFETCH_MESSAGES <= limits.CHANNEL_WINDOW_MESSAGES


def test_a_message_without_an_id_has_one_for_who_asks(running, admin, orders):
    """L23: with `message_ids` a message without id gets a stable one; its own id stays."""
    history = admin.info().history_id
    with Publisher(running.endpoint, routing_key=orders) as out:
        out.publish(b"0")
        out.publish(b"1", message_id="mine")
        out.publish(b"2")
    seen = []
    for message_ids in (True, False, True):
        with Channel(running.endpoint) as channel:
            consumer = channel.consume(orders, mode="client", message_ids=message_ids)
            seen.append([consumer.receive(SOON_S).message_id for _ in range(3)])
    first, second, third = seen[0]
    assert seen == [[first, "mine", third], [None, "mine", None], [first, "mine", third]]
    assert second == "mine"
    assert first.startswith(f"ackq:{history}:")
    assert (first.rpartition(":")[2], third.rpartition(":")[2]) == ("1", "3")


def test_prefetch_in_bytes(running, orders):
    """C8: at `prefetch_bytes` unacked bytes deliveries stop; a settlement resumes them."""
    with Publisher(running.endpoint, routing_key=orders) as out:
        for _ in range(8):
            out.publish(b"x" * 600_000)
    with Channel(running.endpoint) as channel:
        consumer = channel.consume(orders, mode="client", prefetch_bytes=1_400_000)
        held = [consumer.receive(SOON_S) for _ in range(3)]
        assert Admin(running.endpoint).queue(orders).unacked == 3
        assert channel.get(orders, no_ack=True)  # answered after the deliveries to the consumer
        assert consumer.receive(0) is None
        held[0].accept().result(SOON_S)
        assert consumer.receive(SOON_S) is not None
