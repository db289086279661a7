"""Window and acknowledgements of a subscription, on a channel that only records."""

import asyncio

import pytest
from aiormq.abc import DeliveredMessage
from pamqp import commands
from pamqp.header import ContentHeader

from ackq.errors import InvalidArgumentError
from ackq_link.adapter import CutError, Limits
from ackq_link.amqp091.address import BrokerAddress
from ackq_link.amqp091.source import QueueSource
from ackq_link.amqp091.subscription import QueueSubscription, Seen
from tests.eventually import SOON_S
from tests.unit.link.amqp091.wire import sent


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


class AmqpConnection:
    """The part of a connection that a subscription uses."""

    def __init__(self):
        self.channel = Channel()
        self.closed = False

    async def close(self):
        self.closed = True


async def subscribed(window=8, window_bytes=1000):
    connection = AmqpConnection()
    subscription = QueueSubscription(
        connection, BrokerAddress("amqp://h"), "q", Limits(window, window_bytes), Seen()
    )
    await subscription.start()
    return connection.channel, subscription


def run(test):
    asyncio.run(asyncio.wait_for(test(), SOON_S))


def test_deliveries_come_in_their_order():
    """L8: waiting deliveries are taken as one batch, in order, with the channel's tags."""

    async def test():
        channel, subscription = await subscribed()
        for tag in (1, 2, 3):
            await channel.message(tag, b"%d" % tag)
        taken = await subscription.deliver()
        assert taken.rows.column("body").to_pylist() == [b"1", b"2", b"3"]
        assert (taken.first_tag, taken.last_tag, taken.payload_bytes) == (1, 3, 3)
        await subscription.close()

    run(test)


def test_only_what_was_settled_is_acknowledged():
    """L9, L12: settling a tag acknowledges up to it; closing acknowledges nothing else."""

    async def test():
        channel, subscription = await subscribed(window=4)
        for tag in (1, 2, 3):
            await channel.message(tag)
        await subscription.deliver()
        subscription.settle(1, 2)
        await channel.until(("ack", 2, "up to"))
        await subscription.close()
        assert channel.acks == [2]

    run(test)


def test_acknowledgements_share_a_frame():
    """L12: fewer than a quarter of the window wait briefly, to share a frame."""

    async def test():
        channel, subscription = await subscribed(window=100)
        for tag in range(1, 6):
            await channel.message(tag)
            taken = await subscription.deliver()
            subscription.settle(taken.first_tag, taken.last_tag)
        await channel.until(("ack", 5, "up to"))
        await subscription.close()
        assert channel.acks == [5]

    run(test)


def test_the_end_sends_what_waited():
    """L12: acknowledgements still waiting are sent before the channel is closed."""

    async def test():
        channel, subscription = await subscribed(window=100)
        await channel.message(1)
        await subscription.deliver()
        subscription.settle(1, 1)
        await subscription.close()
        assert channel.sent[-2:] == [("ack", 1, "alone"), ("close",)]

    run(test)


def test_giving_back():
    """L15: the consumer is cancelled, acknowledgements are sent, one nack requeues the rest."""

    async def test():
        channel, subscription = await subscribed(window=100)
        for tag in (1, 2, 3):
            await channel.message(tag)
        await subscription.deliver()
        subscription.settle(2, 2)
        await subscription.close(requeue=True)
        assert channel.sent[-4:] == [
            ("cancel", "c1"),
            ("ack", 2, "alone"),
            ("nack", 0, "up to", "requeue"),
            ("close",),
        ]

    run(test)


def test_a_rejection():
    """L28: nacked without requeue, so that the remote dead-letter exchange gets the message."""

    async def test():
        channel, subscription = await subscribed(window=4)
        for tag in (1, 2):
            await channel.message(tag)
        await subscription.deliver()
        subscription.reject(2, 2)
        await channel.until(("nack", 2, "alone", "drop"))
        await subscription.close()

    run(test)


def test_the_delivery_count_is_of_the_delivery():
    """L3, L16: the delivery count is kept apart, and the row equals the first delivery's."""

    async def test():
        channel, subscription = await subscribed()
        await channel.message(1, headers={"a": "b"}, message_id="m")
        first = await subscription.deliver()
        headers = {"a": "b", "x-delivery-count": 2, "x-acquired-count": 3}
        await channel.message(2, redelivered=True, headers=headers, message_id="m")
        second = await subscription.deliver()
        assert first.rows == second.rows
        assert (list(first.redelivered), list(second.redelivered)) == ([False], [True])
        assert (list(first.delivery_counts), list(second.delivery_counts)) == ([], [2])
        await subscription.close()

    run(test)


def test_what_a_cancelled_consumer_still_gets():
    """L19: a quorum queue may deliver after the cancel; the delivery is taken, with no gap."""

    async def test():
        channel, subscription = await subscribed(window=100, window_bytes=1000)
        await channel.message(1, b"x" * 1000)
        await channel.until(("cancel", "c1"))
        await channel.message(2, b"late", consumer="c1")
        taken = await subscription.deliver()
        assert taken.last_tag == 2
        await subscription.close()

    run(test)


@pytest.mark.parametrize("tags", [(2,), (1, 3), (1, 1)])
def test_a_gap_is_a_cut(tags):
    """L12: a gap in tags is a cut, as a cumulative acknowledgement would cover it."""

    async def test():
        _, subscription = channel_and = await subscribed()
        for tag in tags:
            await channel_and[0].message(tag)
        with pytest.raises(CutError, match="came after"):
            await subscription.deliver()
        await subscription.close()
        assert channel_and[0].acks == []

    run(test)


def test_a_cancel_is_a_cut():
    """L17: after a cancel by the server no settled delivery is acknowledged."""

    async def test():
        channel, subscription = await subscribed()
        await channel.message(1)
        await subscription.deliver()
        for each in channel.on_consumer_cancel_callbacks:
            each(commands.Basic.Cancel("tag"))
        with pytest.raises(CutError, match="cancelled"):
            await subscription.deliver()
        subscription.settle(1, 1)
        await subscription.close()
        assert channel.acks == []

    run(test)


def test_a_closed_channel_is_a_cut():
    """L17: the cut carries the broker's reason."""

    async def test():
        channel, subscription = await subscribed()
        waiting = asyncio.create_task(subscription.deliver())
        await asyncio.sleep(0)
        channel.closing.set_exception(ConnectionResetError("reset by peer"))
        with pytest.raises(CutError, match="reset by peer"):
            await waiting
        await subscription.close()

    run(test)


def test_the_window_in_bytes():
    """L19: at its bound the consumer is cancelled; at half of it restarted with what fits."""

    async def test():
        channel, subscription = await subscribed(window=100, window_bytes=1000)
        assert channel.sent == [("qos", 100), ("consume", "q")]
        for tag in (1, 2):
            await channel.message(tag, b"x" * 500)
        await channel.until(("cancel", "c1"))
        await subscription.deliver()
        subscription.settle(2, 2)
        await channel.until(("qos", 2))
        await channel.until(("ack", 2, "alone"))
        await subscription.close()

    run(test)


@pytest.mark.parametrize("prefetch", [0, -1, 65_536])
def test_prefetches_that_are_none(prefetch):
    """L19: a prefetch of 0 is refused, as a quorum queue takes it for 2000."""
    with pytest.raises(InvalidArgumentError, match="from 1 to 65535"):
        QueueSource(BrokerAddress("amqp://h"), "q", "link", Limits(prefetch, 1))
