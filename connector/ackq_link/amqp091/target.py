"""Publishes by AMQP 0-9-1, with confirms and `mandatory`. Rule L22.

Invariant: a row counts as confirmed only if its confirm came and no return did.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import DeliveryError
from pamqp import commands

from ackq_link.adapter import CutError, Limits, PublishedRows, message_ids
from ackq_link.amqp091.address import AmqpConnection, BrokerAddress, connect, cut_of
from ackq_link.amqp091.properties import Properties, from_rows

_CALL_S: Final = 20.0
_RETURNED: Final = "returned: no queue of the remote broker takes it"
# Bytes of a content header's frame without its properties.
_FRAME_BYTES: Final = 20


@dataclass(frozen=True, slots=True)
class ExchangeTarget:
    """The exchange or queue of an AMQP 0-9-1 broker that a link publishes to.

    Args:
        address: The broker.
        exchange: The exchange; empty: the default exchange.
        routing_key: With the default exchange the queue's name; None: each row's own.
        name: The link's name.
        limits: The bounds on rows in flight.
    """

    address: BrokerAddress
    exchange: str
    routing_key: str | None
    name: str
    limits: Limits

    async def connect(self) -> ExchangeProducer:
        """Connects, and checks that the queue or exchange exists. Raises CutError."""
        connection = await connect(self.address, self.name, confirms=True)
        try:
            async with asyncio.timeout(_CALL_S):
                if self.exchange:
                    await connection.channel.exchange_declare(self.exchange, passive=True)
                elif self.routing_key is not None:
                    await connection.channel.queue_declare(self.routing_key, passive=True)
        except BaseException as error:
            await connection.close()
            if isinstance(error, Exception):
                raise cut_of(error, self.address, self.place) from None
            raise
        return ExchangeProducer(self, connection)

    @property
    def identity(self) -> str:
        """The URL, and the queue or exchange, without credentials."""
        return f"{self.address.url}, {'exchange' if self.exchange else 'queue'} {self.place}"

    @property
    def place(self) -> str:
        """The name of the exchange, or of the queue when it is the default exchange."""
        return self.exchange or self.routing_key or "the default exchange"


class ExchangeProducer:
    """Publishes on one channel in confirm mode."""

    def __init__(self, target: ExchangeTarget, connection: AmqpConnection) -> None:
        self._target = target
        self._connection = connection
        self._channel = connection.channel
        # Two messages may have the same id, and the library identifies a return by the id alone: it
        # counts for all messages in flight with that id. So none is lost, and few are duplicated.
        self._returned: set[str] = set()
        self._under_way: Counter[str] = Counter()
        self._cut: CutError | None = None
        self._ended = asyncio.get_running_loop().create_future()
        self._channel.on_return_callbacks.add(self._on_return)
        self._channel.closing.add_done_callback(self._on_closed)

    async def publish(self, rows: pa.RecordBatch) -> PublishedRows:
        """Publishes rows in order; waits until each is confirmed or refused, or for a cut."""
        sent = list(from_rows(rows, message_ids(rows)))
        # As the library has them, of which one may differ from its row's.
        ids = ["" if isinstance(each, ValueError) else each.message_id or "" for each in sent]
        self._under_way.update(ids)
        tasks = [
            asyncio.create_task(self._publish(body, key, properties))
            for body, key, properties in zip(
                rows.column("body").to_pylist(),
                self._keys(rows),
                sent,
                strict=True,
            )
        ]
        try:
            answers = asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.wait((answers, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if self._cut is not None:
                answers.cancel()
            return self._published(tasks, ids)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._under_way.subtract(ids)
            self._under_way += Counter()  # drops the ids at 0
            self._returned &= self._under_way.keys()

    @property
    def blocked(self) -> str:
        """The reason of the broker's alarm; empty: there is no alarm."""
        return self._connection.blocked

    async def close(self) -> None:
        """Ends the connection."""
        self._channel.closing.remove_done_callback(self._on_closed)
        await self._connection.close()

    async def _publish(
        self, body: bytes | None, key: str, properties: Properties | ValueError
    ) -> object:
        if isinstance(properties, ValueError):
            raise properties
        most = self._connection.frame_bytes
        if most and len(properties.wire) + _FRAME_BYTES > most:
            size = len(properties.wire)
            raise ValueError(
                f"its properties have {size} bytes; the broker takes {most} in a frame"
            )
        return await self._channel.basic_publish(
            body or b"",
            exchange=self._target.exchange,
            routing_key=key,
            properties=properties,  # type: ignore[arg-type]
            mandatory=True,
            wait=False,
        )

    def _keys(self, rows: pa.RecordBatch) -> Sequence[str]:
        if self._target.routing_key is not None:
            return [self._target.routing_key] * rows.num_rows
        keys: list[str] = rows.column("routing_key").to_pylist()
        return keys

    def _published(
        self, tasks: Sequence[asyncio.Task[object]], ids: Sequence[str]
    ) -> PublishedRows:
        confirmed = []
        refused, unfit = {}, {}
        for row, (task, message_id) in enumerate(zip(tasks, ids, strict=True)):
            if not task.done() or task.cancelled():
                continue  # in doubt
            error = task.exception()
            if message_id in self._returned:
                refused[row] = _RETURNED
            elif error is None and isinstance(task.result(), commands.Basic.Ack):
                confirmed.append(row)
            elif isinstance(error, DeliveryError):
                refused[row] = "nacked by the broker"
            elif isinstance(error, ValueError | TypeError):
                unfit[row] = f"AMQP cannot carry it: {error}"
            elif self._cut is None:
                self._end(cut_of(error or ConnectionError("no answer"), self._target.address))
        return PublishedRows(confirmed, refused, unfit, self._cut)

    def _on_return(self, message: DeliveredMessage) -> None:
        message_id = message.header.properties.message_id
        if message_id is not None:
            self._returned.add(message_id)

    def _on_closed(self, closing: asyncio.Future[object]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self._end(
            cut_of(
                error or ConnectionError("the channel was closed"),
                self._target.address,
                self._target.place,
            )
        )

    def _end(self, cut: CutError) -> None:
        if self._cut is None:
            self._cut = cut
        if not self._ended.done():
            self._ended.set_result(None)
