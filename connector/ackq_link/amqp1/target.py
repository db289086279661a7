"""Publishes by AMQP 1.0, unsettled: the outcome is the confirm. Rules L22 and L23.

Invariant: a row counts as confirmed only if the broker has accepted it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from proton import Delivery, Sender

from ackq_link.adapter import CutError, Limits, PublishedRows, message_ids
from ackq_link.amqp1.address import Amqp1Address
from ackq_link.amqp1.connection import Amqp1Connection, connect
from ackq_link.amqp1.management import ARTEMIS
from ackq_link.amqp1.messages import Outgoing

# A full address of Artemis gives no credit, so nothing is answered, and it reports no reason.
_SILENT_S: Final = 10.0
_OUTCOMES: Final = {
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


@dataclass(frozen=True, slots=True)
class Amqp1Target:
    """The queue of an AMQP 1.0 broker that a link publishes to.

    Args:
        address: The broker.
        queue: The queue's address, which must exist.
        name: The link's name.
        limits: The bounds on rows in flight.
    """

    address: Amqp1Address
    queue: str
    name: str
    limits: Limits

    @property
    def identity(self) -> str:
        """The URL and the queue, without credentials."""
        return f"{self.address.url}, queue {self.queue}"

    async def connect(self) -> Amqp1Producer:
        """Connects and attaches a sending link. Raises CutError."""
        connection = await connect(self.address, self.name, self.queue)
        try:
            sender = await connection.send(self.queue)
        except BaseException:
            await connection.close()
            raise
        return Amqp1Producer(connection, sender)


@dataclass(slots=True)
class _Batch:
    """Rows that were published together, and their answers so far."""

    waiting: int
    answered: asyncio.Future[None]
    confirmed: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    unfit: dict[int, str] = field(default_factory=dict)

    def answer(self, row: int, refusal: str, *, unfit: bool = False) -> None:
        """Records a row's answer: its refusal; empty: confirmed."""
        if unfit:
            self.unfit[row] = refusal
        elif refusal:
            self.refused[row] = refusal
        else:
            self.confirmed.append(row)
        self.waiting -= 1
        if not self.waiting and not self.answered.done():
            self.answered.set_result(None)


class Amqp1Producer:
    """Publishes on one sending link of one connection."""

    def __init__(self, connection: Amqp1Connection, sender: Sender) -> None:
        self._connection = connection
        self._sender = sender
        self._duplicate_ids = connection.product == ARTEMIS  # Artemis deduplicates by them (L23)
        self._tag = 0
        self._under_way: dict[str, tuple[_Batch, int]] = {}
        self._answered_s = 0.0  # of the last answer, or of a send while nothing was in flight
        self._batches: list[_Batch] = []
        self._cut: CutError | None = None
        connection.on_deliveries = self._on_deliveries
        connection.on_end = self._on_end
        if connection.cut is not None:
            self._on_end(connection.cut)

    async def publish(self, rows: pa.RecordBatch) -> PublishedRows:
        """Publishes rows in order; waits until each is answered, or for a cut."""
        batch = _Batch(rows.num_rows, asyncio.get_running_loop().create_future())
        if self._cut is None and rows.num_rows:
            self._batches.append(batch)
            try:
                self._send(rows, batch)
                await batch.answered
            finally:
                self._batches.remove(batch)
        return PublishedRows(batch.confirmed, batch.refused, batch.unfit, self._cut)

    @property
    def blocked(self) -> str:
        """The time without an answer, if it is long: the broker reports no reason; else empty."""
        silent_s = time.monotonic() - self._answered_s
        return f"no answer for {silent_s:.0f} s" if self._under_way and silent_s > _SILENT_S else ""

    async def close(self) -> None:
        """Ends the connection."""
        await self._connection.close()

    def _send(self, rows: pa.RecordBatch, batch: _Batch) -> None:
        outgoing = Outgoing(rows, message_ids(rows), duplicate_ids=self._duplicate_ids)
        most = self._sender.remote_max_message_size
        if not self._under_way:
            self._answered_s = time.monotonic()
        for row in range(rows.num_rows):
            try:
                message = outgoing.encoded(row)
            except ValueError as error:
                batch.answer(row, f"AMQP 1.0 cannot carry it: {error}", unfit=True)
                continue
            if most and len(message) > most:
                told = f"it has {len(message)} bytes; the broker takes {most}"
                batch.answer(row, told, unfit=True)
                continue
            self._tag += 1
            tag = str(self._tag)
            self._under_way[tag] = (batch, row)
            self._sender.delivery(tag)
            self._sender.stream(message)
            self._sender.advance()
        self._connection.flush()

    def _on_deliveries(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if not delivery.updated:
                continue
            state = delivery.remote_state
            found = None
            if delivery.settled or state in _OUTCOMES or state == Delivery.ACCEPTED:
                found = self._under_way.pop(delivery.tag, None)
            if found is None:
                continue
            self._answered_s = time.monotonic()
            batch, row = found
            batch.answer(row, "" if state == Delivery.ACCEPTED else _refusal(delivery))
            delivery.settle()
        self._connection.flush()

    def _on_end(self, cut: CutError) -> None:
        self._cut = cut
        for batch in self._batches:
            if not batch.answered.done():
                batch.answered.set_result(None)


def _refusal(delivery: Delivery) -> str:
    outcome = _OUTCOMES.get(delivery.remote_state, "not taken")
    condition = delivery.remote.condition
    if condition is None:
        return f"{outcome} by the broker"
    return f"{outcome} by the broker: {condition.name}: {condition.description or ''}"
