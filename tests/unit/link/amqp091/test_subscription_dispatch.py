"""Deliveries are handled in the channel's reader, without a task for each."""

import asyncio

import aiormq
import pytest
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from ackq_link.amqp091.subscription import run, take_at_once


def test_the_library_asks_for_what_is_replaced():
    """Detects a library version without the replaced method."""
    assert asyncio.iscoroutinefunction(aiormq.Channel._on_deliver_frame)


class Frames:
    """The part of a channel that deliveries use."""

    def __init__(self, *frames):
        self.frames = list(frames)
        self.taken = []
        self.consumers = {"c": self.take}

    async def take(self, message):
        self.taken.append((message.delivery_tag, message.body))

    async def _get_frame(self):
        return self.frames.pop(0)

    async def _read_content(self, frame, header):
        frame.body_size = header.body_size
        body = await self._get_frame()
        return aiormq.abc.DeliveredMessage(
            delivery=frame, header=header, body=body.value, channel=self
        )


def deliver(channel, *tags, consumer="c"):
    """Delivers each tag without a turn of the event loop."""
    take_at_once(channel)
    for tag in tags:
        run(channel._on_deliver_frame(commands.Basic.Deliver(consumer, tag)))


def test_deliveries_are_taken_in_their_order_and_at_once():
    """L8: no task is made for a delivery, so none is late."""
    channel = Frames(
        *(each for body in (b"a", b"b") for each in (ContentHeader(1), ContentBody(body)))
    )
    deliver(channel, 1, 2)
    assert channel.taken == [(1, b"a"), (2, b"b")]


def test_what_comes_for_nobody_is_dropped():
    """A delivery for a cancelled consumer is dropped, as the library does."""
    channel = Frames(ContentHeader(1), ContentBody(b"a"))
    deliver(channel, 1, consumer="gone")
    assert channel.taken == []
    assert channel.frames == []


def test_a_body_without_a_header_ends_the_channel():
    """L17: the error ends the library's reader."""
    with pytest.raises(ValueError, match="not a header"):
        deliver(Frames(ContentBody(b"a")), 1)


def test_a_consumer_that_waits_is_an_error():
    """A consumer callback that awaits would be suspended halfway."""
    with pytest.raises(AssertionError, match="waits for nothing"):
        run(asyncio.sleep(0))
