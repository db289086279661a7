"""The AMQP 0-9-1 adapter with a real RabbitMQ, without an edge."""

import asyncio

from ackq_link.adapter import Limits
from ackq_link.amqp091.address import BrokerAddress
from ackq_link.amqp091.source import QueueSource
from tests.eventually import equals, eventually_async
from tests.wire.links.conftest import WAIT_S

WINDOW = 20


def source_of(rabbit, window=WINDOW, window_bytes=1 << 20):
    address = BrokerAddress(f"amqp://127.0.0.1:{rabbit.port}")
    return QueueSource(address, rabbit.queue, "link", Limits(window, window_bytes))


def RUN(test):  # noqa: N802 - runs this module's coroutines
    asyncio.run(asyncio.wait_for(test, 2 * WAIT_S))


async def taken(subscription, count):
    """Receives this number of messages."""
    rows = 0
    while rows < count:
        rows += (await subscription.deliver()).rows.num_rows
    assert rows == count


async def gone(rabbit, count):
    """Waits until RabbitMQ has this number of ready messages, without a consumer."""
    await eventually_async("the queue", lambda: rabbit.ready, equals(count), within_s=WAIT_S)


async def test_credit_proves(rabbit):
    """L10: a delivery beyond the window proves acknowledgements, in the end all but a window."""
    count = 5 * WINDOW
    rabbit.publish(range(count))
    subscription = await source_of(rabbit).subscribe()
    await taken(subscription, WINDOW)
    assert subscription.proven == 0
    subscription.settle(1, 5)
    await taken(subscription, 5)
    assert subscription.proven == 5
    subscription.settle(11, 15)
    subscription.settle(6, 10)
    await taken(subscription, 10)
    assert subscription.proven == 15
    for first in range(16, count + 1, 5):
        subscription.settle(first, first + 4)
        if first + 4 + WINDOW <= count:
            await taken(subscription, 5)
    assert subscription.proven == count - WINDOW
    await subscription.close()
    await gone(rabbit, 0)


async def test_the_window_in_bytes(rabbit):
    """L10, L19: at the byte window consumers replace each other without gaps; acks are proven."""
    count, size = 200, 200
    rabbit.publish([f"{n:0{size}d}" for n in range(count)])
    subscription = await source_of(rabbit, 50, 20 * size).subscribe()
    got = 0
    while got < count:
        batch = await subscription.deliver()
        bodies = batch.rows.column("body").to_pylist()
        assert bodies == [b"%0*d" % (size, n) for n in range(got, got + len(bodies))]
        got += len(bodies)
        subscription.settle(batch.first_tag, batch.last_tag)
    assert subscription.proven >= count - 100
    await subscription.close()
    await gone(rabbit, 0)


async def test_what_is_learnt(rabbit):
    """L14: AMQP reports the version only; a redelivery reveals a quorum queue."""
    rabbit.publish([0])
    source = source_of(rabbit)
    first = await source.learn()
    assert (first.kind, first.delivery_limit, first.requeue_counts) == ("", None, True)
    for _ in range(2):
        subscription = await source.subscribe()
        await taken(subscription, 1)
        await subscription.close()
        await gone(rabbit, 1)
    after = await source.learn()
    if rabbit.kind == "quorum":
        assert (after.kind, after.delivery_limit) == ("quorum", 0)
    assert source.identity == f"amqp://127.0.0.1:{rabbit.port}/%2F, queue {rabbit.queue}"
