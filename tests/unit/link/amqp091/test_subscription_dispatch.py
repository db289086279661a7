"""Deliveries are handled in the channel's reader, without a task for each."""

import aiormq
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from ackq_link.amqp091.subscription import run, take_at_once


class Frames:
    """The part of a channel that deliveries use."""

    def __init__(self, *frames):
        self.frames, self.taken = list(frames), []
        self.consumers = {"c": self.take}

    async def take(self, message):
        self.taken.append((message.delivery_tag, message.body))

    async def _get_frame(self):
        return self.frames.pop(0)

    async def _read_content(self, frame, header):
        frame.body_size = header.body_size
        body = await self._get_frame()
        return aiormq.abc.DeliveredMessage(frame, header, body.value, self)


def deliver(channel, *tags, consumer="c"):
    """Delivers each tag without a turn of the event loop."""
    take_at_once(channel)
    for tag in tags:
        run(channel._on_deliver_frame(commands.Basic.Deliver(consumer, tag)))


def test_deliveries_are_taken_in_their_order_and_at_once():
    """L8: no task is made for a delivery; one for a cancelled consumer is dropped."""
    frames = [ContentHeader(1), ContentBody(b"a"), ContentHeader(1), ContentBody(b"b")]
    for consumer, taken in (("c", [(1, b"a"), (2, b"b")]), ("gone", [])):
        channel = Frames(*frames)
        deliver(channel, 1, 2, consumer=consumer)
        assert (channel.taken, channel.frames) == (taken, [])
