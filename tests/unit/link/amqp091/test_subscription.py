"""Window and acknowledgements of a subscription, on a channel that only records."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from aiormq.abc import DeliveredMessage
from pamqp import commands
from pamqp.header import ContentHeader

from ackq_link.adapter import CutError, Limits
from ackq_link.amqp091 import stream_queue
from ackq_link.amqp091.address import BrokerAddress
from ackq_link.amqp091.subscription import QueueSubscription, Seen
from tests.fakes.clock import run
from tests.unit.link.amqp091.wire import sent

RUN = run
WINDOW = Limits(100, 1000)


class Channel:
    """A channel that records its calls in order."""

    def __init__(self):
        self.on_consumer_cancel_callbacks = set()
        self.closing = asyncio.get_running_loop().create_future()
        self.sent = []
        self.consumers = {}
        self.consumer = 0
        self.told = asyncio.Event()

    def _send(self, *what):
        self.sent.append(what)
        self.told.set()

    async def basic_qos(self, *, prefetch_count):
        self._send("qos", prefetch_count)

    async def basic_consume(self, queue, callback):
        self._send("consume", queue)
        self.consumer += 1
        self.consumers[f"c{self.consumer}"] = callback
        return commands.Basic.ConsumeOk(f"c{self.consumer}")

    async def basic_cancel(self, tag, **_):
        self._send("cancel", tag)
        del self.consumers[tag]

    async def basic_ack(self, tag, *, multiple, wait):
        assert not wait
        self._send("ack", tag, "up to" if multiple else "alone")

    async def basic_nack(self, tag, *, multiple, requeue, wait):
        assert not wait
        self._send("nack", tag, "up to" if multiple else "alone", "requeue" if requeue else "drop")

    async def close(self):
        self._send("close")

    async def until(self, what):
        while what not in self.sent:
            self.told.clear()
            await self.told.wait()

    @property
    def acks(self):
        return [what[1] for what in self.sent if what[0] == "ack"]

    async def message(self, tag, body=b"x", *, redelivered=False, consumer=None, **properties):
        consumer = consumer or f"c{self.consumer}"
        delivery = commands.Basic.Deliver(consumer, tag, redelivered, "", "q")
        header = ContentHeader(0, len(body), sent(**properties))
        await self.consumers[consumer](DeliveredMessage(delivery, header, body, self))


async def subscribed(*tags, limits=WINDOW, seen=None):
    """A channel that has brought these deliveries, and the subscription on it."""
    connection = SimpleNamespace(channel=Channel(), close=AsyncMock())
    subscription = QueueSubscription(
        connection, BrokerAddress("amqp://h"), "q", limits, seen or Seen()
    )
    await subscription.start()
    for tag in tags:
        await connection.channel.message(tag)
    return connection.channel, subscription


async def test_acknowledgements_share_a_frame():
    """L12: fewer than a quarter of the window wait briefly, to share a frame."""
    channel, subscription = await subscribed()
    for tag in range(1, 6):
        await channel.message(tag)
        taken = await subscription.deliver()
        subscription.settle(taken.first_tag, taken.last_tag)
    await channel.until(("ack", 5, "up to"))
    await subscription.close()
    assert channel.acks == [5]


async def test_giving_back():
    """L15: the consumer is cancelled, acknowledgements are sent, one nack requeues the rest."""
    channel, subscription = await subscribed(1, 2, 3)
    await subscription.deliver()
    subscription.settle(2, 2)
    await subscription.close(requeue=True)
    assert channel.sent[-4:] == [
        ("cancel", "c1"),
        ("ack", 2, "alone"),
        ("nack", 0, "up to", "requeue"),
        ("close",),
    ]


async def test_what_a_cancelled_consumer_still_gets():
    """L19: a quorum queue may deliver after the cancel; the delivery is taken, with no gap."""
    channel, subscription = await subscribed()
    await channel.message(1, b"x" * 1000)
    await channel.until(("cancel", "c1"))
    await channel.message(2, b"late", consumer="c1")
    assert (await subscription.deliver()).last_tag == 2
    await subscription.close()


@pytest.mark.parametrize("tags", [(2,), (1, 3), (1, 1)])
async def test_a_gap_is_a_cut(tags):
    """L12: a gap in tags is a cut, as a cumulative acknowledgement would cover it."""
    channel, subscription = await subscribed(*tags)
    with pytest.raises(CutError, match="came after"):
        await subscription.deliver()
    await subscription.close()
    assert channel.acks == []


async def test_a_cancel_is_a_cut():
    """L17: after a cancel by the server no settled delivery is acknowledged."""
    channel, subscription = await subscribed(1)
    await subscription.deliver()
    for each in channel.on_consumer_cancel_callbacks:
        each(commands.Basic.Cancel("tag"))
    with pytest.raises(CutError, match="cancelled"):
        await subscription.deliver()
    subscription.settle(1, 1)
    await subscription.close()
    assert channel.acks == []


@pytest.mark.parametrize(
    ("kind", "cut", "asked"),
    [("", False, 1), ("quorum", False, 0), ("stream", False, 1), ("quorum", True, 1)],
)
async def test_a_kind_that_is_known(monkeypatch, kind, cut, asked):
    """L14: a message with a stream's header is no question where the management API knows.

    After a cut it may be of another queue of that name.
    """
    is_stream = AsyncMock(return_value=False)
    monkeypatch.setattr(stream_queue, "is_stream", is_stream)
    seen = Seen(kind=kind)
    if cut:
        channel, subscription = await subscribed(seen=seen)
        for each in channel.on_consumer_cancel_callbacks:
            each(commands.Basic.Cancel("tag"))
        await subscription.close()
    channel, subscription = await subscribed(seen=seen)
    await channel.message(1, headers={"x-stream-offset": 5})
    assert (await subscription.deliver()).last_tag == 1
    assert is_stream.await_count == asked
    await subscription.close()


def prefetches(channel):
    return [what[1] for what in channel.sent if what[0] == "qos"]


async def after_a_large_message():
    """A channel and its subscription, which has settled a message over the bytes of its window."""
    channel, subscription = await subscribed()
    await channel.message(1, b"x" * 1100)
    await subscription.deliver()
    await channel.until(("cancel", "c1"))
    assert subscription.window_messages == 1
    subscription.settle(1, 1)
    return channel, subscription


async def test_after_a_large_message():
    """L19: the prefetch grows again with the messages that fit, in few steps, to three quarters."""
    channel, subscription = await after_a_large_message()
    await asyncio.sleep(1)
    assert prefetches(channel) == [100, 1]
    for tag in range(2, 2_000):
        await channel.message(tag)
        await subscription.deliver()
        subscription.settle(tag, tag)
        await asyncio.sleep(0)
    assert 75 <= prefetches(channel)[-1] == subscription.window_messages <= 100
    assert len(prefetches(channel)) < 20
    await subscription.close()


async def test_held_messages_beside_room_for_more():
    """L19: where the whole prefetch is held, and few bytes, it doubles, in the window's room."""
    channel, subscription = await after_a_large_message()
    tag = 1
    for prefetch in (1, 2, 4, 8, 16, 32):
        await asyncio.sleep(1)
        assert prefetches(channel)[-1] == prefetch
        for _ in range(prefetch):
            tag += 1
            await channel.message(tag)
            await subscription.deliver()
    assert subscription.window_messages == tag - 1
    await subscription.close()


async def test_messages_set_aside_take_no_room():
    """L29: messages set aside fill a prefetch; another consumer gets what they have taken."""
    channel, subscription = await subscribed(limits=Limits(4, 1000))
    for tag in range(1, 9):
        await channel.message(tag)
        await subscription.deliver()
        subscription.set_aside(tag)
        await asyncio.sleep(0.1)
        assert subscription.window_messages == 4
    assert channel.sent.count(("consume", "q")) == 9
    await subscription.close()
    assert channel.acks == []
