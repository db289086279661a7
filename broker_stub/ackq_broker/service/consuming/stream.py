"""One stream of a channel: requests in, frames and answers out, heartbeats both ways (C11, C12).

Invariant: everything leaves in the order in which it was decided, and only after the sync gate
(I1): a delivery's record is on disk before its frame is built.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final

from ackq import limits
from ackq.errors import (
    AckqError,
    ClosedError,
    FencedError,
    InvalidArgumentError,
)
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame
from ackq.wire.outcomes import FROM_WIRE
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.service.blocks.frames import DeliveryFrame, FrameBuilder
from ackq_broker.service.blocks.sending import build_ahead, build_here
from ackq_broker.service.consuming.channel import BrokerChannel
from ackq_broker.service.consuming.transport_window import PendingDelivery
from ackq_broker.service.transport.duplex import UNREAD_ANSWERS, BrokerStream
from ackq_broker.service.transport.rpc import Read, Write

_log = logging.getLogger(__name__)

Response = frame.Frame[pb.ConsumeHeader]

# Maximum deliveries decided ahead of the wire: enough to cover a sync. Messages that become ready
# in the meantime are delivered by one decision and leave as one frame.
_DELIVERIES_AHEAD: Final = 4
_BYTES_AHEAD: Final = 2 * limits.FRAME_TARGET_BYTES
# A delivery of cached blocks up to this size is built on the event loop: a thread costs more.
_SMALL_BYTES: Final = 64 * limits.KIB
_FEW_PIECES: Final = 64
# Minimum wait, for items that are due while the client does not read, or by a clock that rounds.
_LEAST_S: Final = 0.25


class ConsumeStream(BrokerStream[pb.ConsumeRequest, PendingDelivery | pb.ConsumeHeader, Response]):
    """A consume stream, from the answer to its open until it ends.

    Args:
        engine: Decides commands and reads state.
        channel: The channel that the stream serves.
        read: Reads the next request.
        write: Sends a frame.
        clock: Monotonic seconds, as `Uptime`, for the client's obligations; the broker's own
            heartbeats are timed by the event loop's clock.
        resumed: The client reconnected and may repeat unanswered requests.
    """

    KIND: ClassVar[str] = "consume"
    AGAIN: ClassVar[str] = "consume again when it is back"
    BRINGS: ClassVar[bool] = False
    REQUESTS_BYTES: ClassVar[int] = limits.MIB

    def __init__(
        self,
        engine: Engine,
        channel: BrokerChannel,
        read: Read[pb.ConsumeRequest],
        write: Write[Response],
        clock: Callable[[], float],
        *,
        resumed: bool,
    ) -> None:
        super().__init__(engine, read, write)
        self._channel = channel
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._resumed = resumed
        self._sequence = 0
        self._deliveries_ahead = self._bytes_ahead = 0
        self._heard_s = clock()
        self._wrote_s = self._loop.time()
        # Set when an item may be due before the wait of `_watch` ends.
        self._recheck = asyncio.Event()
        self._heartbeat = pb.ConsumeHeader(heartbeat=pb.ChannelHeartbeat())
        self._heartbeat_ahead = False
        self._final_heartbeat = pb.ConsumeHeader(heartbeat=pb.ChannelHeartbeat())
        self._final_heartbeat_sent = asyncio.Event()

    async def run(self) -> None:
        """Serves the stream until the client half-closes and every request is answered.

        Raises:
            AckqError: The stream ends with this status, and the channel is already closed unless
                another stream took it over.
        """
        await self._write(_opened(self._channel.instance, resumed=self._resumed))
        await self._serve(self._watch())

    # --- for the channel ---

    @property
    def full(self) -> bool:
        """Backpressure: whether the deliveries or bytes ahead of the wire are at their limit."""
        return self._deliveries_ahead >= _DELIVERIES_AHEAD or self._bytes_ahead >= _BYTES_AHEAD

    def deliver(self, delivery: PendingDelivery, sequence: int) -> None:
        """Sends a delivery once `sequence` is on disk."""
        self._deliveries_ahead += 1
        self._bytes_ahead += delivery.payload_bytes
        self._put(delivery, sequence)

    def answer(self, header: pb.ConsumeHeader, sequence: int) -> None:
        """Sends a header once `sequence` is on disk, after everything queued before it."""
        self._put(header, sequence)

    # --- requests ---

    def _received(self, request: pb.ConsumeRequest) -> int:
        self._heard_s = self._clock()
        return request.ByteSize()

    async def _half_closed(self) -> None:
        # Reading ends the same way for a half-close and a disconnect; but nothing can be written
        # to a disconnected client, and gRPC cancels this stream instead.
        self._put(self._final_heartbeat, 0)
        await self._final_heartbeat_sent.wait()
        self._requests.close()

    async def _handle_all(self) -> None:
        """Handles requests in order; requests before a refused one are answered first."""
        try:
            while requests := await self._requests.take():
                await self._handle(requests)
        except (FencedError, ClosedError):
            raise
        except AckqError:
            self._channel.close()
            await self._responses.drained()
            raise
        self._channel.close()
        await self._responses.drained()

    async def _handle(self, requests: list[pb.ConsumeRequest]) -> None:
        """Handles requests that arrived together; only the highest transport ack counts.

        Settlements with only transport acks or heartbeats between them are coalesced.
        """
        acked_tag = 0
        others = []
        for request in requests:
            kind = request.WhichOneof("kind")
            if kind == "transport_ack":
                acked_tag = max(acked_tag, request.transport_ack.delivery_tag)
            elif kind != "heartbeat":
                others.append((kind, request))
        for kind, together in groupby(others, itemgetter(0)):
            if kind == "settle":
                settles = (request.settle for _, request in together)
                self._channel.settle(settles, may_repeat=self._resumed)
            else:
                for _, request in together:
                    self._handle_one(kind, request)
        if acked_tag:
            self._channel.transport_ack(acked_tag, self._clock())
            self._recheck.set()
        if len(self._responses) > UNREAD_ANSWERS:
            await self._responses.drained()

    def _handle_one(self, kind: str | None, request: pb.ConsumeRequest) -> None:
        if kind == "subscribe":
            self._channel.subscribe(request.subscribe, may_repeat=self._resumed)
        elif kind == "unsubscribe":
            self._channel.unsubscribe(request.unsubscribe.consumer)
        elif kind == "prefetch":
            self._channel.set_prefetch(request.prefetch.consumer, request.prefetch.messages)
        elif kind == "get":
            self._channel.get(request.get, may_repeat=self._resumed)
        else:
            raise InvalidArgumentError(
                "A channel is opened once, and then carries subscriptions, settlements and pulls."
            )

    # --- frames and answers ---

    def _put(self, item: PendingDelivery | pb.ConsumeHeader, sequence: int) -> None:
        # No item overtakes an earlier one, whatever sequence it depends on.
        self._sequence = max(self._sequence, sequence)
        self._responses.put(item, self._sequence)

    async def _answer(self, answers: list[PendingDelivery | pb.ConsumeHeader]) -> None:
        """Writes synced items; adjacent deliveries of one consumer leave together."""
        for _, together in groupby(answers, _consumer_of):
            group = list(together)
            deliveries = [item for item in group if isinstance(item, PendingDelivery)]
            if deliveries:
                await self._send_deliveries(deliveries)
            for item in group:
                if not isinstance(item, PendingDelivery):
                    await self._write(frame.Frame(item))
                if item is self._heartbeat:
                    self._heartbeat_ahead = False
                elif item is self._final_heartbeat:
                    self._final_heartbeat_sent.set()
            self._wrote_s = self._loop.time()

    async def _send_deliveries(self, deliveries: Sequence[PendingDelivery]) -> None:
        """Sends the frames of deliveries, building each while the previous one is written."""
        async with aclosing(self._frames(deliveries)) as frames:
            async for built in frames:
                if self._channel.closed:
                    break
                if _last_tag(built) > self._channel.window.acked_tag:
                    await self._write(_delivered(deliveries[0], built))
        self._deliveries_ahead -= len(deliveries)
        self._bytes_ahead -= sum(delivery.payload_bytes for delivery in deliveries)
        if self._channel.stream is self:
            if self._channel.window.due_s is None:
                self._recheck.set()
            for delivery in deliveries:
                self._channel.window.sent(delivery, self._clock())
            self._channel.resume_deliveries()

    def _frames(self, deliveries: Sequence[PendingDelivery]) -> AsyncGenerator[DeliveryFrame, None]:
        """The frames of deliveries; small cached ones are built without a worker thread."""
        pieces = [piece for delivery in deliveries for piece in delivery.pieces]
        blocks = self._engine.block_cache
        builder = FrameBuilder(pieces, blocks, settled_ok=True)
        small = sum(delivery.payload_bytes for delivery in deliveries) <= _SMALL_BYTES
        if small and len(pieces) <= _FEW_PIECES and all(each.block_id in blocks for each in pieces):
            return build_here(builder, self._in_flight)
        return build_ahead(self._engine, builder, self._in_flight)

    # --- time ---

    async def _watch(self) -> None:
        """Sends heartbeats and overdue deliveries; closes the channel of a silent client."""
        while (wait_s := self._heard_s + limits.HEARTBEAT_MS / 1000 - self._clock()) > 0:
            self._put_due()
            own_s = self._wrote_s + limits.HEARTBEAT_SEND_MS / 1000 - self._loop.time()
            if self._channel.window.due_s is not None:
                own_s = min(own_s, self._channel.window.due_s - self._clock())
            self._recheck.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(min(wait_s, own_s), _LEAST_S)):
                    await self._recheck.wait()
        self._channel.close()
        _log.warning(
            "channel %s of '%s' was closed: no sign of life from its client",
            self._channel.channel_id.hex(),
            self._channel.label,
            extra=event("channel_closed", channel=self._channel.channel_id.hex()),
        )
        raise ClosedError(
            f"The channel was closed: its client gave no sign of life for {limits.HEARTBEAT_MS} "
            "ms. Its unsettled messages were requeued; open another channel.",
            channel=self._channel.channel_id.hex(),
        )

    def _put_due(self) -> None:
        """Queues the oldest delivery if its transport ack is overdue, else a heartbeat if idle."""
        overdue = None
        if not self._responses:
            overdue = self._channel.window.overdue(self._clock())
        if overdue is not None:
            self.deliver(overdue, 0)
        elif (
            not self._heartbeat_ahead
            and self._loop.time() - self._wrote_s >= limits.HEARTBEAT_SEND_MS / 1000
        ):
            # A heartbeat overtakes items waiting for a slow disk; a client that does not read has
            # at most one queued.
            self._heartbeat_ahead = True
            self._responses.put(self._heartbeat)


def _consumer_of(item: PendingDelivery | pb.ConsumeHeader) -> tuple[str, int] | None:
    """The consumer and pull number of a delivery; None for a header without messages."""
    return (item.consumer, item.get_number) if isinstance(item, PendingDelivery) else None


def _last_tag(built: DeliveryFrame) -> int:
    runs = zip(built.header.first_tag, built.header.rows, strict=True)
    return max(first + rows for first, rows in runs) - 1


def _delivered(delivery: PendingDelivery, built: DeliveryFrame) -> Response:
    header = pb.Delivery(
        consumer=delivery.consumer, runs=built.header, get_number=delivery.get_number
    )
    return frame.Frame(pb.ConsumeHeader(delivery=header), built.block)


def _opened(instance: bytes, *, resumed: bool) -> Response:
    opened = pb.ChannelOpened(
        outcomes=list(FROM_WIRE),
        heartbeat_ms=limits.HEARTBEAT_SEND_MS,
        resumed=resumed,
        settle_runs=True,
        instance=instance,
    )
    return frame.Frame(pb.ConsumeHeader(opened=opened))
