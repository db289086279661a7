"""Consumers against the reference broker: C4, C8, C10, C16, L23."""

import pyarrow as pa
import pytest

from ackq.client import Admin, Channel, Publisher, close_channels
from ackq_broker import embedded
from tests.unit.client.threads import SOON_S, client_threads


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


def test_auto_has_accepted_when_it_returns(running, admin, channel, orders):
    """C10: in AUTO `receive` accepts a message before it returns it."""
    publish(running.endpoint, orders, 3)
    consumer = channel.consume(orders, prefetch=1)
    for taken in (1, 2, 3):
        consumer.receive(SOON_S)
        assert admin.queue(orders).accepted == taken


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


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_pull_of_more_than_a_window(running, admin, orders, no_ack):
    """C9: a pull goes on as the window opens, before the application reads any of it."""
    publish(running.endpoint, orders, 10)
    with Channel(running.endpoint, window_messages=4) as channel:
        pulled = channel.get(orders, 10, no_ack=no_ack, timeout_s=SOON_S)
        assert bodies(pulled) == list(range(10))
    assert left(admin, orders) == (0 if no_ack else 10, 0)


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
