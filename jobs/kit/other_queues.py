"""A queue of a remote broker, as seen by a job that runs a link: its messages and consumers.

Invariant: no message is taken; each request has a connection of its own, which is closed after it.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kit import JobError

if TYPE_CHECKING:
    from proton import Delivery

    from ackq_link.amqp091.address import BrokerAddress
    from ackq_link.amqp1.address import Amqp1Address
    from ackq_link.jetstream.address import NatsAddress

AMQP091: Final = "amqp091"
AMQP1: Final = "amqp1"
PROTOCOLS: Final = (AMQP091, AMQP1)
NATS: Final = "nats"
_NAME: Final = "job"
# Number of copies that a browse asks for at a time.
_COPIES: Final = 5_000


@dataclass(frozen=True, slots=True)
class Depth:
    """The counts of a remote queue.

    Attributes:
        messages: Number of waiting messages; while no consumer holds any, of all messages.
        consumers: Number of consumers; None: the broker does not report it.
    """

    messages: int
    consumers: int | None


class OtherQueue(Protocol):
    """A queue of a remote broker."""

    async def depth(self, most: int | None = None) -> Depth:
        """The queue's counts; messages that have to be browsed are counted up to `most`.

        Raises:
            JobError: The broker cannot be reached, or refuses; the message says why.
        """


def other_queue(
    protocol: str, url: str, queue: str, password_file: str = "", *, declare: bool = False
) -> OtherQueue:
    """A queue of a remote broker that speaks the given protocol.

    Args:
        protocol: One of `PROTOCOLS`, or `NATS`.
        url: The remote broker's URL, as of a link. If neither the URL nor a file has the password,
            it is the environment's ACKQ_LINK_PASSWORD.
        queue: The queue's name at the remote broker; the stream's, or STREAM/CONSUMER.
        password_file: File with the password of the URL's user.
        declare: Whether to declare the queue as durable; with AMQP 0-9-1 and NATS only.
    """
    # The libraries are extras; `links.embedded` reports one that is missing.
    from ackq_link.amqp091.address import BrokerAddress, parse_url  # noqa: PLC0415

    schemes = ("nats", "tls") if protocol == NATS else ("amqp", "amqps")
    bare, user, password = parse_url(url, schemes)
    password = password or os.environ.get("ACKQ_LINK_PASSWORD")
    if protocol == NATS:
        from ackq_link.jetstream.address import NatsAddress  # noqa: PLC0415

        there = NatsAddress(bare, user or "", password or "", password_file)
        return _Stream(there, queue, declare=declare)
    if protocol == AMQP1:
        from ackq_link.amqp1.address import Amqp1Address  # noqa: PLC0415

        return _Amqp1Queue(Amqp1Address(bare, user or "", password or "", password_file), queue)
    address = BrokerAddress(bare, user or "guest", password or "guest", password_file)
    return _Amqp091Queue(address, queue, declare=declare)


class _Amqp091Queue:
    """A queue of RabbitMQ, which reports both counts in its answer to a declare."""

    def __init__(self, address: BrokerAddress, queue: str, *, declare: bool) -> None:
        self._address = address
        self._queue = queue
        self._declare = declare

    async def depth(self, most: int | None = None) -> Depth:
        from ackq_link.adapter import CutError  # noqa: PLC0415 - as above
        from ackq_link.amqp091.address import connect, cut_of  # noqa: PLC0415

        del most  # the broker reports the count
        try:
            connection = await connect(self._address, _NAME, confirms=False)
        except CutError as cut:
            raise JobError(cut.reason) from None
        try:
            found = await connection.channel.queue_declare(
                self._queue, passive=not self._declare, durable=self._declare
            )
        except Exception as error:  # noqa: BLE001 - the library's errors have no common class
            raise JobError(cut_of(error, self._address, self._queue).reason) from None
        finally:
            await connection.close()
        return Depth(found.message_count or 0, found.consumer_count or 0)


class _Amqp1Queue:
    """A queue of an AMQP 1.0 broker: Artemis reports its counts, others are browsed."""

    def __init__(self, address: Amqp1Address, queue: str) -> None:
        self._address = address
        self._queue = queue

    async def depth(self, most: int | None = None) -> Depth:
        from ackq_link.adapter import CutError  # noqa: PLC0415 - as above

        try:
            return await self._said() or Depth(await self._browsed(most), None)
        except CutError as cut:
            raise JobError(cut.reason) from None

    async def _said(self) -> Depth | None:
        from ackq_link.amqp1.connection import connect  # noqa: PLC0415 - as above
        from ackq_link.amqp1.management import queue_counts  # noqa: PLC0415

        connection = await connect(self._address, _NAME, self._queue)
        try:
            found = await queue_counts(connection, self._queue)
        finally:
            await connection.close()
        return found and Depth(*found)

    async def _browsed(self, most: int | None) -> int:
        from ackq_link.amqp1.connection import connect  # noqa: PLC0415 - as above

        connection = await connect(self._address, _NAME, self._queue)
        try:
            receiver = await connection.receive(self._queue, browse=True)
            count = asked = 0
            drained = asyncio.Event()
            connection.on_drained = drained.set
            connection.on_end = lambda _: drained.set()

            def take(deliveries: list[Delivery]) -> None:
                nonlocal count
                for each in deliveries:
                    if each.readable and not each.partial:
                        count += 1
                        receiver.recv(each.pending)
                        receiver.advance()
                        each.settle()
                # When all credit is used there is nothing to drain, and the broker may be silent.
                if count == asked:
                    drained.set()

            connection.on_deliveries = take
            while count == asked and (most is None or count < most):
                asked += _COPIES if most is None else min(_COPIES, most - count)
                drained.clear()
                receiver.drain(asked - count)
                connection.flush()
                await drained.wait()
                if connection.cut is not None:
                    raise connection.cut
                receiver.drained()
            return count
        finally:
            await connection.close()


class _Stream:
    """A stream of NATS, or a consumer of one: what it has not taken, or holds unacknowledged."""

    def __init__(self, address: NatsAddress, place: str, *, declare: bool) -> None:
        self._address = address
        self._stream, _, self._consumer = place.partition("/")
        self._declare = declare

    async def depth(self, most: int | None = None) -> Depth:
        from ackq_link.adapter import CutError  # noqa: PLC0415 - as above
        from ackq_link.jetstream.connection import NatsConnection  # noqa: PLC0415 - as above

        del most  # the server reports the count
        stream, consumer = self._stream, self._consumer
        connection = NatsConnection(self._address, f"{stream}/{consumer}".rstrip("/"))
        try:
            await connection.open(_NAME)
            try:
                if self._declare:
                    await connection.ask(*_creation(stream, consumer))
                if not consumer:
                    found = await connection.ask(f"STREAM.INFO.{stream}")
                    return Depth(found["state"]["messages"], found["state"]["consumer_count"])
                found = await connection.ask(f"CONSUMER.INFO.{stream}.{consumer}")
                return Depth(found["num_pending"] + found["num_ack_pending"], found["num_waiting"])
            finally:
                await connection.close()
        except CutError as cut:
            raise JobError(cut.reason) from None


def _creation(stream: str, consumer: str) -> tuple[str, dict[str, Any]]:
    """The request that creates a stream or a consumer; one that is the same already is kept.

    The stream keeps a message until its acknowledgement.
    """
    if not consumer:
        config = {"name": stream, "subjects": [stream], "retention": "workqueue"}
        return f"STREAM.CREATE.{stream}", {**config, "storage": "file"}
    config = {"durable_name": consumer, "ack_policy": "explicit", "max_ack_pending": 100_000}
    return (
        f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}",
        {"stream_name": stream, "config": {**config, "max_deliver": -1}},
    )
