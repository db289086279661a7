"""A consumer by AMQP 0-9-1: deliveries, acknowledgements, its window. Rules L8, L12, L17, L19.

Invariant: deliveries come in the order of their tags, and acknowledgements are sent on the channel
of their deliveries. A tag that does not follow the previous one ends the subscription.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiormq
from aiormq.abc import DeliveredMessage
from pamqp import commands
from pamqp.header import ContentHeader

from ackq.wire.held_bytes import HeldBytes
from ackq_link.adapter import CutError, Deliveries, Limits, Remaining
from ackq_link.amqp091 import stream_queue
from ackq_link.amqp091.acknowledgements import Acknowledgements, Credit
from ackq_link.amqp091.address import AmqpConnection, BrokerAddress, cut_of
from ackq_link.amqp091.properties import Properties, delivery_counts, to_rows

_REPLACED: Final = "_on_deliver_frame"


# Acknowledgements are sent after this delay, or when this part of the window waits for one.
ACK_DELAY_S: Final = 0.05
_ACK_PART: Final = 4
_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 8 << 20
_CALL_S: Final = 20.0
_CLOSE_S: Final = 5.0
# After this many heartbeats a broker has closed the connection of a dead process.
_MISSED_HEARTBEATS: Final = 3
# A consumer is replaced by one that may have this many times as many messages in hand.
_WIDER: Final = 4 / 3
# The tag of a nack with `multiple` that covers all unacknowledged deliveries.
_ALL: Final = 0


@dataclass
class Seen:
    """Facts about the remote broker learnt from deliveries, connections and its management API.

    Attributes:
        quorum: Whether the queue is a quorum queue, as a delivery of it showed.
        version: RabbitMQ's version; empty: not known.
        kind: The queue's type, as the API has said since the last cut; empty: not known.
    """

    quorum: bool = False
    version: tuple[int, ...] = ()
    kind: str = ""


class QueueSubscription:
    """The consumers, one at a time, of one channel of one connection.

    Args:
        connection: The connection with the channel.
        address: The remote broker, for errors.
        queue: The queue that it consumes.
        limits: The bounds of its window.
        seen: Updated with the facts learnt from deliveries.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        address: BrokerAddress,
        queue: str,
        limits: Limits,
        seen: Seen,
    ) -> None:
        self._address = address
        self._queue = queue
        self._limits = limits
        self._seen = seen
        self._connection = connection
        self._channel = connection.channel
        self._bodies: list[bytes] = []
        self._properties: list[Properties] = []
        self._redelivered: list[bool] = []
        self.last_tag = 0
        self._checked = False
        self._acks = Acknowledgements()
        self._held = HeldBytes()
        self._waiting_bytes = 0  # of deliveries that are in no batch yet
        self._received_bytes = 0  # of all deliveries but those set aside
        self._in_hand = 0  # deliveries that are neither settled nor set aside
        self._aside: list[int] = []
        self._full_at = math.inf  # that many in hand fill a prefetch below the window
        self._consumer: _Consumer | None = None
        self._cancelled = ""
        self._cut: CutError | None = None
        self._arrived = asyncio.Event()
        self._flow = asyncio.Event()
        self._ack_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._alone_at = time.monotonic() + _MISSED_HEARTBEATS * address.heartbeat_s

    async def start(self) -> None:
        """Starts the consumer and the tasks of acknowledgements and window."""
        take_at_once(self._channel)
        self._channel.on_consumer_cancel_callbacks.add(self._on_cancel)
        self._channel.closing.add_done_callback(self._on_closed)
        await self._consume(self._limits.window_messages)
        self._tasks = [
            asyncio.create_task(self._acknowledge(), name="link-acks"),
            asyncio.create_task(self._bound_bytes(), name="link-window"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._on_task_end)

    async def deliver(self) -> Deliveries:
        """The deliveries that have come, up to a batch; waits for the first.

        Raises:
            CutError: The subscription ended.
            PreconditionFailedError: The queue is a stream.
        """
        while True:
            if self._cut is not None:
                raise self._cut
            if self._bodies:
                if not self._checked:
                    await self._check_kind()
                return self._taken()
            self._arrived.clear()
            await self._arrived.wait()

    async def _check_kind(self) -> None:
        """Refuses a stream, which the headers of its first delivery reveal."""
        self._checked = True
        offset = stream_queue.OFFSET_HEADER in self._properties[0].wire
        known = self._seen.kind not in {"", stream_queue.STREAM}
        if offset and not known and await stream_queue.is_stream(self._address, self._queue):
            raise stream_queue.refusal(self._queue)

    def settle(self, first_tag: int, last_tag: int) -> None:
        """Acknowledges a range of tags, at most every 50 ms or quarter of the window (L12)."""
        self._settle(first_tag, last_tag, rejected=False)

    def reject(self, first_tag: int, last_tag: int) -> None:
        """Rejects a range without requeue: the queue's dead-letter exchange gets it (L28)."""
        self._settle(first_tag, last_tag, rejected=True)

    def set_aside(self, tag: int) -> None:
        """Leaves a delivery unacknowledged, outside the window (L29)."""
        before = self._held.total
        self._held.remove(tag, tag)
        self._received_bytes -= before - self._held.total
        self._in_hand -= 1
        self._aside.append(tag)
        self._note_usable()
        self._flow.set()

    @property
    def window_messages(self) -> int:
        """Most messages that may be in hand now, of those that are not set aside (L19)."""
        return max(1, self._in_hand, self._usable)

    @property
    def proven(self) -> int:
        """The number of settlements, in their order, that credit proves to be applied (L10).

        See `acknowledgements` for why that is a proof.
        """
        return self._acks.proven

    async def remaining(self) -> Remaining | None:
        """The queue's ready messages and consumers, by a passive declare (L18).

        See `SourceSubscription`.
        """
        if self._cut is not None or time.monotonic() < self._alone_at:
            return None
        try:
            async with asyncio.timeout(_CALL_S):
                found = await self._channel.queue_declare(self._queue, passive=True)
        except Exception:  # noqa: BLE001 - it ends the channel, which is a cut
            return None
        if found.message_count is None or found.consumer_count is None:
            return None
        return Remaining(found.message_count, found.consumer_count, self.last_tag)

    async def close(self, *, requeue: bool = False) -> None:
        """Sends the last acknowledgements, and closes; the broker requeues unsettled deliveries.

        Args:
            requeue: Requeue by a nack, which on RabbitMQ 4.3 counts as no delivery, instead of by
                the close.
        """
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._cut is None:
            with suppress(Exception):  # a failure is handled like an earlier cut
                async with asyncio.timeout(_CLOSE_S):
                    if requeue and self._consumer is not None:
                        await self._channel.basic_cancel(self._consumer.tag)
                    await self._send_acks()
                    if requeue:
                        await self._channel.basic_nack(
                            _ALL, multiple=True, requeue=True, wait=False
                        )
                    # The broker answers when it has read all earlier frames: closing the connection
                    # at once would lose the acknowledgements that wait to be written.
                    await self._channel.close()
        await self._connection.close()

    # --- deliveries ---

    def take(self, message: DeliveredMessage, credit: Credit) -> None:
        """Queues a delivery; does not wait, so deliveries stay in their order (L8)."""
        tag = message.delivery_tag
        if self._cut is not None:
            return
        if tag != self.last_tag + 1:
            # Cumulative acknowledgements would cover the missing delivery.
            self._end(CutError(f"delivery {tag} came after {self.last_tag}"))
            return
        self.last_tag = tag
        self._acks.delivered(credit)
        body = message.body
        self._bodies.append(body)
        self._properties.append(message.header.properties)  # type: ignore[arg-type]
        self._redelivered.append(message.delivery.redelivered)  # type: ignore[union-attr]
        size = len(body)
        self._received_bytes += size
        self._waiting_bytes += size
        self._in_hand += 1
        if self._held_bytes >= self._limits.window_bytes or self._in_hand >= self._full_at:
            self._flow.set()
        if len(self._bodies) == 1:
            self._arrived.set()

    def _taken(self) -> Deliveries:
        """Moves the first waiting deliveries, at most a batch, into columns."""
        rows, size = 0, 0
        for body in self._bodies[:_BATCH_ROWS]:
            if rows and size + len(body) > _BATCH_BYTES:
                break
            rows += 1
            size += len(body)
        redelivered = self._redelivered[:rows]
        counts = delivery_counts(self._properties[:rows]) if any(redelivered) else ()
        if counts:
            self._seen.quorum = True
        taken = Deliveries(
            to_rows(self._bodies[:rows], self._properties[:rows]),
            self.last_tag - len(self._bodies) + 1,
            redelivered,
            size,
            counts,
        )
        del self._bodies[:rows], self._properties[:rows], self._redelivered[:rows]
        self._waiting_bytes -= size
        self._held.add(taken.first_tag, taken.last_tag, size)
        return taken

    # --- acknowledgements ---

    def _settle(self, first: int, last: int, *, rejected: bool) -> None:
        assert last <= self.last_tag - len(self._bodies), "not delivered"
        self._acks.settle(first, last, rejected=rejected)
        self._held.remove(first, last)
        self._in_hand -= last - first + 1
        self._flow.set()
        self._ack_due.set()

    async def _acknowledge(self) -> None:
        part = max(1, self._limits.window_messages // _ACK_PART)
        try:
            while True:
                await self._ack_due.wait()
                self._ack_due.clear()
                if self._acks.pending < part:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(ACK_DELAY_S):
                            while self._acks.pending < part:
                                await self._ack_due.wait()
                                self._ack_due.clear()
                await self._send_acks()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing more is acknowledged
            self._end(cut_of(error, self._address, self._queue))

    async def _send_acks(self) -> None:
        for frame in self._acks.frames():
            if frame.rejected:
                await self._channel.basic_nack(
                    frame.tag, multiple=frame.multiple, requeue=False, wait=False
                )
            else:
                await self._channel.basic_ack(frame.tag, multiple=frame.multiple, wait=False)

    # --- window ---

    async def _consume(self, prefetch: int) -> None:
        async with asyncio.timeout(_CALL_S):
            await self._channel.basic_qos(prefetch_count=prefetch)
            # Deliveries that were on their way to a cancelled consumer have come by now.
            if prefetch > (room := max(1, self._room)):
                prefetch = room
                await self._channel.basic_qos(prefetch_count=prefetch)
            consumer = _Consumer(self, prefetch, self.last_tag + 1)
            started = await self._channel.basic_consume(self._queue, consumer.on_message)
        assert started.consumer_tag is not None
        consumer.tag = started.consumer_tag
        self._consumer = consumer
        self._note_usable()
        if self._in_hand >= self._full_at:  # they came before the answer
            self._flow.set()

    async def _cancel(self, consumer: _Consumer) -> None:
        """Cancels a consumer, and still takes the deliveries that a quorum queue sends it late.

        It does not wait for the answer: the library drops deliveries that come for a consumer after
        that, and their tags would be missing.
        """
        async with asyncio.timeout(_CALL_S):
            await self._channel.basic_cancel(consumer.tag, nowait=True)
        consumers = self._channel.consumers
        consumers[consumer.tag] = consumer.on_message
        # The previously cancelled consumer gets no further late deliveries.
        consumers.pop(self._cancelled, None)
        self._cancelled = consumer.tag

    async def _bound_bytes(self) -> None:
        """Stops the consumer at the window's bytes, and starts it again at half of them (L19).

        It starts again with a prefetch that messages of the mean size so far fit in; and once more
        whenever a larger one fits, or messages set aside take too much of it.
        """
        limits = self._limits
        try:
            while True:
                await self._flow.wait()
                self._flow.clear()
                few = self._held_bytes <= limits.window_bytes // 2
                wanted = min(self._fitting, self._room)
                wider = few and wanted > self._usable and wanted >= _WIDER * self._usable
                if self._consumer is not None and (
                    wider or self._held_bytes >= limits.window_bytes
                ):
                    consumer, self._consumer = self._consumer, None
                    await self._cancel(consumer)
                if self._consumer is None and few and wanted > 0:
                    await self._consume(wanted)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing more is delivered
            self._end(cut_of(error, self._address, self._queue))

    @property
    def _held_bytes(self) -> int:
        """The payload bytes of deliveries that are not settled."""
        return self._waiting_bytes + self._held.total

    @property
    def _usable(self) -> int:
        """The consumer's prefetch without the messages set aside; 0 without a consumer."""
        consumer = self._consumer
        if consumer is None:
            return 0
        aside = len(self._aside) - bisect_left(self._aside, consumer.first_tag)
        return max(0, consumer.prefetch - aside)

    @property
    def _room(self) -> int:
        """The number of messages in the window's free room; also negative."""
        return self._limits.window_messages - self._in_hand

    def _note_usable(self) -> None:
        usable = self._usable
        self._full_at = usable if usable < self._limits.window_messages else math.inf

    @property
    def _fitting(self) -> int:
        """The prefetch at which messages of the mean size so far fit in the window's bytes.

        But twice the present one where that is all in hand, and has at most half of these bytes.
        """
        limits = self._limits
        mean = max(1, self._received_bytes // max(1, self.last_tag - len(self._aside)))
        fitting = max(1, min(limits.window_messages, limits.window_bytes // mean))
        full = self._in_hand >= self._usable and self._held_bytes <= limits.window_bytes // 2
        return max(fitting, 2 * self._usable) if full else fitting

    # --- the end ---

    def _on_cancel(self, frame: commands.Basic.Cancel) -> None:
        """Ends the subscription: the broker cancelled the consumer (L17).

        Its queue was deleted, or has moved.
        """
        queue = self._queue
        self._end(CutError(f"the broker cancelled the consumer of '{queue}' ({frame.name})"))

    def _on_closed(self, closing: asyncio.Future[object]) -> None:
        if closing.cancelled():
            self._end(CutError("the channel was closed"))
            return
        error = closing.exception() or ConnectionError("the channel was closed")
        self._end(cut_of(error, self._address, self._queue))

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """Ends the subscription with a cut when one of its tasks has failed."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end(cut_of(error, self._address, self._queue))

    def _end(self, cut: CutError) -> None:
        if self._cut is None and not self._closing:
            self._cut = cut
            self._seen.kind = ""  # the queue may be deleted, and created again as another
            self._arrived.set()


class _Consumer:
    """One consumer: its consumer tag, its credit, and the first delivery that may be its own."""

    __slots__ = ("_credit", "_subscription", "first_tag", "prefetch", "tag")

    def __init__(self, subscription: QueueSubscription, prefetch: int, first_tag: int) -> None:
        self._subscription = subscription
        self._credit = Credit(prefetch)
        self.prefetch = prefetch
        self.first_tag = first_tag
        self.tag = ""

    async def on_message(self, message: DeliveredMessage) -> None:
        """Passes a delivery to the subscription."""
        self._subscription.take(message, self._credit)


def take_at_once(channel: aiormq.Channel) -> None:
    """Makes a channel call its consumers, which must not wait, as their deliveries come.

    The library makes a task of each delivery, so that a consumer may wait; a link's consumer does
    not. An exception of a consumer ends the channel. With a version of the library that does not
    call the method that this replaces, deliveries come as without it.
    """

    async def on_deliver(frame: commands.Basic.Deliver) -> None:
        header = await channel._get_frame()  # noqa: SLF001 - there is no other way to it
        if not isinstance(header, ContentHeader):
            raise ValueError(f"{header!r} came, not a header")  # noqa: TRY004 - as the library
        message = await channel._read_content(frame, header)  # noqa: SLF001 - same
        consumer = channel.consumers.get(frame.consumer_tag or "")
        if consumer is not None:
            run(consumer(message))

    setattr(channel, _REPLACED, on_deliver)


def run(call: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine that never waits to its end; propagates its exceptions."""
    try:
        call.send(None)
    except StopIteration:
        return
    call.close()
    raise AssertionError("a link's consumer waits for nothing")
