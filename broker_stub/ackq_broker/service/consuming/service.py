"""`ConsumingService`: channels and the streams that serve them (C1-C17).

Invariant: a channel has at most one stream, and ends `CHANNEL_RESUME_MS` after a disconnect unless
its client has reconnected by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError
from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core.checks import check_owner
from ackq_broker.engine.engine import Engine
from ackq_broker.security.callers import current
from ackq_broker.security.permissions import Need
from ackq_broker.service.consuming.channel import BrokerChannel
from ackq_broker.service.consuming.consumer import BrokerConsumer
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.consuming.stream import ConsumeStream, Response
from ackq_broker.service.transport.duplex import replaced
from ackq_broker.service.transport.fields import check_attempt, check_id, shorten
from ackq_broker.service.transport.rpc import Read, Write

# Minimum wait: the uptime and the loop's time round differently, and a tiny remainder would cause
# many short waits.
_LEAST_S: Final = 0.01


class ConsumingService:
    """The RPCs of consuming with application acks.

    Args:
        engine: Decides commands and reads state.
        dispatcher: Serves consumers.
        clock: Monotonic seconds, as `Uptime`: time for which this broker is late does not count.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: ConsumerDispatcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._channels: dict[bytes, BrokerChannel] = {}
        # Channels of disconnected clients, each with the timer that ends it.
        self._disconnected: dict[BrokerChannel, asyncio.TimerHandle] = {}
        engine.alarms.on_resume.append(self._resume_deliveries)

    async def consume(self, read: Read[pb.ConsumeRequest], write: Write[Response]) -> None:
        """Serves a consume stream, which opens or resumes a channel (C11)."""
        opening = _opening(await read())
        channel = self._channels.get(opening.channel_id)
        resumed = channel is not None and not channel.closed
        if channel is None or channel.closed:
            self._engine.alarms.check_taking()
            channel = self._open(opening)
        else:
            _check_readable(channel)
            self._resume(channel, opening)
        stream = ConsumeStream(self._engine, channel, read, write, self._clock, resumed=resumed)
        channel.attach(stream)
        ended = False
        try:
            await stream.run()
            ended = True
        except AckqError:
            ended = True
            raise
        finally:
            if channel.stream is stream:
                self._detach(channel, ended=ended)

    def channel(self, channel_id: bytes) -> BrokerChannel | None:
        """The channel with this id; None if there is none, or it has ended."""
        return self._channels.get(channel_id)

    def consumers(self, queue: str) -> Iterator[tuple[BrokerChannel, BrokerConsumer]]:
        """The consumers of a queue, each with its channel."""
        for channel in tuple(self._channels.values()):
            for consumer in tuple(channel.consumers.values()):
                if consumer.queue == queue:
                    yield channel, consumer

    def _resume_deliveries(self) -> None:
        for channel in tuple(self._channels.values()):
            channel.resume_deliveries()

    def _open(self, opening: pb.ChannelOpen) -> BrokerChannel:
        channel = BrokerChannel(
            self._engine,
            self._dispatcher,
            opening.channel_id,
            _window(opening),
            shorten(opening.label),
            current.get().user,
        )
        self._channels[opening.channel_id] = channel
        return channel

    def _resume(self, channel: BrokerChannel, opening: pb.ChannelOpen) -> None:
        """Resumes a channel for a client that reconnected, perhaps before its cut was noticed."""
        timer = self._disconnected.pop(channel, None)
        if timer is not None:
            timer.cancel()
        if channel.stream is not None:
            channel.stream.fence(
                replaced("channel", channel.channel_id, "continue", opening.attempt)
            )
            channel.detach()
        channel.window.messages = _window(opening)

    def _detach(self, channel: BrokerChannel, *, ended: bool) -> None:
        """Detaches a finished stream; its channel ends now or waits for a reconnect."""
        if ended or self._engine.alarms.stopping:
            self._end(channel)
            return
        channel.detach()
        self._end_at(channel, self._clock() + limits.CHANNEL_RESUME_MS / 1000)

    def _end_at(self, channel: BrokerChannel, end_s: float) -> None:
        """Ends a channel at `end_s`, unless its client has reconnected by then."""
        left_s = end_s - self._clock()
        if left_s <= 0:
            self._end(channel)
            return
        self._disconnected[channel] = asyncio.get_running_loop().call_later(
            max(left_s, _LEAST_S), self._engine.or_fail(partial(self._end_at, channel, end_s))
        )

    def _end(self, channel: BrokerChannel) -> None:
        self._disconnected.pop(channel, None)
        if self._channels.get(channel.channel_id) is channel:
            del self._channels[channel.channel_id]
        if not self._engine.alarms.stopping:
            channel.close()


def _opening(request: pb.ConsumeRequest | None) -> pb.ChannelOpen:
    if request is None or request.WhichOneof("kind") != "open":
        raise InvalidArgumentError("The first request on a channel must be an open.")
    check_id("A channel id", request.open.channel_id)
    check_attempt(request.open.attempt)
    return request.open


def _check_readable(channel: BrokerChannel) -> None:
    """Refuses another user's channel (A10), and queues the caller may no longer read (A1, A2)."""
    caller = current.get()
    what = f"the channel {channel.channel_id.hex()}"
    check_owner(what, channel.user, caller.user, "Open a new channel.")
    caller.require(Need("read", "queue", queue) for queue in sorted(channel.queues))


def _window(opening: pb.ChannelOpen) -> int:
    """The transport window that a client asks for, within its limit."""
    wanted = opening.window_messages or limits.CHANNEL_WINDOW_MESSAGES
    return min(wanted, limits.MAX_CHANNEL_WINDOW_MESSAGES)
