"""Consumes a queue by AMQP 0-9-1. Rules L8, L12, L17, L19.

Invariant: an acknowledgement covers a gapless run of deliveries, and leaves on the channel that
they came on. A delivery that does not follow the one before it ends the subscription.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiormq.abc import DeliveredMessage
from pamqp import commands

from ackq.errors import InvalidArgumentError
from ackq_broker.link.adapter import CutError, Deliveries, Limits
from ackq_broker.link.amqp091.address import AmqpConnection, BrokerAddress, connect, cut_of
from ackq_broker.link.amqp091.properties import Properties, to_rows

MAX_PREFETCH: Final = 65_535
# Acks leave when so much time has passed, or so large a part of the window waits for them.
ACK_DELAY_S: Final = 0.05
_ACK_PART: Final = 4
_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 8 << 20
_CALL_S: Final = 20.0
_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue of an AMQP broker.

    Args:
        address: The broker.
        queue: The queue, which must exist.
        name: The link's.
        limits: `window_messages` is the prefetch, from 1 to 65535: with 0 a quorum queue would
            deliver 2000.
    """

    address: BrokerAddress
    queue: str
    name: str
    limits: Limits

    def __post_init__(self) -> None:
        if not 1 <= self.limits.window_messages <= MAX_PREFETCH:
            raise InvalidArgumentError(
                f"The prefetch is {self.limits.window_messages}; give one from 1 to {MAX_PREFETCH}."
                " (0 does not mean unlimited: a quorum queue takes it for 2000.)"
            )

    async def subscribe(self) -> QueueSubscription:
        """Connects and consumes. Raises CutError, with a refusal where waiting mends nothing."""
        connection = await connect(self.address, self.name, confirms=False)
        subscription = QueueSubscription(self, connection)
        try:
            await subscription.start()
        except BaseException as error:
            await connection.close()
            if isinstance(error, Exception):
                raise cut_of(error, self.address, self.queue) from None
            raise
        return subscription


class QueueSubscription:
    """One consumer on one channel of one connection."""

    def __init__(self, source: QueueSource, connection: AmqpConnection) -> None:
        self._source = source
        self._connection = connection
        self._channel = connection.channel
        self._bodies: list[bytes] = []
        self._properties: list[Properties] = []
        self._redelivered: list[bool] = []
        self._last_tag = 0
        self._settled = 0
        self._acked = 0
        # Bytes that are delivered and not settled, by batch; what is not yet in one besides.
        self._batches: deque[tuple[int, int]] = deque()
        self._held_bytes = 0
        self._received_bytes = 0
        self._consumer: str | None = None
        self._cut: CutError | None = None
        self._arrived = asyncio.Event()
        self._flow = asyncio.Event()
        self._ack_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def start(self) -> None:
        """Starts the consumer."""
        self._channel.on_consumer_cancel_callbacks.add(self._on_cancel)
        self._channel.closing.add_done_callback(self._on_closed)
        await self._consume(self._source.limits.window_messages)
        self._tasks = [
            asyncio.create_task(self._acknowledge(), name="link-acks"),
            asyncio.create_task(self._bound_bytes(), name="link-window"),
        ]

    async def deliver(self) -> Deliveries:
        """Everything that came, up to a bound; waits for the first. Raises CutError."""
        while True:
            if self._cut is not None:
                raise self._cut
            if self._bodies:
                return self._taken()
            self._arrived.clear()
            await self._arrived.wait()

    def settle(self, last_tag: int) -> None:
        """Acknowledges up to a tag, at most every 50 ms or quarter of the window (L12)."""
        assert self._settled <= last_tag <= self._last_tag - len(self._bodies), "not delivered"
        self._settled = last_tag
        while self._batches and self._batches[0][0] <= last_tag:
            self._held_bytes -= self._batches.popleft()[1]
        self._flow.set()
        self._ack_due.set()

    async def close(self) -> None:
        """Sends the last acknowledgement, and closes; what was not settled is requeued there."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._cut is None:
            with suppress(Exception):  # as if it had been cut before
                async with asyncio.timeout(_CLOSE_S):
                    await self._send_ack()
                    # The broker answers when it has read all before: a connection that is closed
                    # at once takes the acknowledgements that wait to be written with it.
                    await self._channel.close()
        await self._connection.close()

    # --- deliveries ---

    async def _on_message(self, message: DeliveredMessage) -> None:
        """Takes a delivery; does not wait, so deliveries stay in their order (L8)."""
        tag = message.delivery_tag
        if self._cut is not None:
            return
        if tag != self._last_tag + 1:
            # Cumulative acks would cover what is missing.
            self._end(CutError(f"delivery {tag} came after {self._last_tag}"))
            return
        self._last_tag = tag
        delivery = message.delivery
        self._bodies.append(message.body)
        self._properties.append(message.header.properties)
        self._redelivered.append(bool(getattr(delivery, "redelivered", False)))
        self._held_bytes += len(message.body)
        self._received_bytes += len(message.body)
        if self._held_bytes >= self._source.limits.window_bytes:
            self._flow.set()
        if len(self._bodies) == 1:
            self._arrived.set()

    def _taken(self) -> Deliveries:
        """The first rows that are waiting, as many as make a batch."""
        rows, size = 0, 0
        for body in self._bodies[:_BATCH_ROWS]:
            if rows and size + len(body) > _BATCH_BYTES:
                break
            rows += 1
            size += len(body)
        first = self._last_tag - len(self._bodies) + 1
        taken = Deliveries(
            to_rows(self._bodies[:rows], self._properties[:rows]),
            first,
            self._redelivered[:rows],
            size,
        )
        del self._bodies[:rows], self._properties[:rows], self._redelivered[:rows]
        self._batches.append((taken.last_tag, size))
        return taken

    # --- acknowledgements ---

    async def _acknowledge(self) -> None:
        part = max(1, self._source.limits.window_messages // _ACK_PART)
        while True:
            await self._ack_due.wait()
            self._ack_due.clear()
            if self._settled - self._acked < part:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ACK_DELAY_S):
                        while self._settled - self._acked < part:
                            await self._ack_due.wait()
                            self._ack_due.clear()
            await self._send_ack()

    async def _send_ack(self) -> None:
        settled = self._settled
        if settled > self._acked:
            await self._channel.basic_ack(settled, multiple=True, wait=False)
            self._acked = settled

    # --- window ---

    async def _consume(self, prefetch: int) -> None:
        async with asyncio.timeout(_CALL_S):
            await self._channel.basic_qos(prefetch_count=prefetch)
            started = await self._channel.basic_consume(self._source.queue, self._on_message)
        self._consumer = started.consumer_tag

    async def _bound_bytes(self) -> None:
        """Stops the consumer at the window's bytes, and starts it again at half of them (L19).

        Then with a prefetch that the messages seen last would fit in.
        """
        limits = self._source.limits
        try:
            while True:
                await self._flow.wait()
                self._flow.clear()
                if self._consumer is not None and self._held_bytes >= limits.window_bytes:
                    consumer, self._consumer = self._consumer, None
                    async with asyncio.timeout(_CALL_S):
                        await self._channel.basic_cancel(consumer)
                elif self._consumer is None and self._held_bytes <= limits.window_bytes // 2:
                    await self._consume(self._fitting)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing more is delivered
            self._end(cut_of(error, self._source.address, self._source.queue))

    @property
    def _fitting(self) -> int:
        """The prefetch that messages of the mean size seen would fit in."""
        limits = self._source.limits
        mean = max(1, self._received_bytes // max(1, self._last_tag))
        return max(1, min(limits.window_messages, limits.window_bytes // mean))

    # --- the end ---

    def _on_cancel(self, frame: commands.Basic.Cancel) -> None:
        """The broker cancelled the consumer: its queue was deleted, or has moved (L17)."""
        queue = self._source.queue
        self._end(CutError(f"the broker cancelled the consumer of '{queue}' ({frame.name})"))

    def _on_closed(self, closing: asyncio.Future[object]) -> None:
        if closing.cancelled():
            self._end(CutError("the channel was closed"))
            return
        error = closing.exception() or ConnectionError("the channel was closed")
        self._end(cut_of(error, self._source.address, self._source.queue))

    def _end(self, cut: CutError) -> None:
        if self._cut is None and not self._closing:
            self._cut = cut
            self._arrived.set()
