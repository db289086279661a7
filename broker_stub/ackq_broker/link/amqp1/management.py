"""What Artemis says of a queue, by its management address. Rule L14.

It needs the permissions `manage` and `createNonDurableQueue`, for the answer; without them nothing
is learnt. Qpid says nothing of its queues by AMQP 1.0.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

import proton
from proton import Delivery, Receiver

from ackq_broker.link.adapter import CutError, QueueLimits
from ackq_broker.link.amqp1.connection import Amqp1Connection

ARTEMIS: Final = "apache-activemq-artemis"
QPID: Final = "qpid"
_ADDRESS: Final = "activemq.management"
_OPERATION: Final = "getAddressSettingsAsJSON"
_CALL_S: Final = 10.0
# Where nothing else is said: after so many deliveries it drops a message, or moves it.
_DEFAULT_LIMIT: Final = 10


async def queue_limits(connection: Amqp1Connection, queue: str) -> QueueLimits:
    """The limits of a queue, as far as the broker says them."""
    limits = QueueLimits(requeue_counts=False)
    if connection.product != ARTEMIS:
        # Measured with Qpid Broker-J 9.2.1: a rejection is a failed delivery, and no more.
        return replace(limits, rejected_again=QPID in connection.product.lower())
    address = queue.partition("::")[0]
    limits = replace(limits, delivery_limit=_DEFAULT_LIMIT, remedy=_remedy(address))
    try:
        async with asyncio.timeout(_CALL_S):
            settings = await _settings(connection, address)
    except (CutError, TimeoutError, ValueError):
        return limits
    most = settings.get("maxDeliveryAttempts", _DEFAULT_LIMIT)
    return replace(
        limits,
        delivery_limit=max(0, most) if isinstance(most, int) else _DEFAULT_LIMIT,
        dead_letters=bool(settings.get("deadLetterAddress")),
    )


async def _settings(connection: Amqp1Connection, address: str) -> dict[str, Any]:
    """The address settings of an address; what has the default value may be missing."""
    receiver = await connection.receive("")
    receiver.flow(1)
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    connection.on_deliveries = lambda deliveries: _take(receiver, deliveries, answer)

    def end(cut: CutError) -> None:
        if not answer.done():
            answer.set_exception(cut)

    connection.on_end = end
    sender = await connection.send(_ADDRESS)
    request = proton.Message(
        body=json.dumps([address]),
        inferred=False,
        reply_to=receiver.remote_source.address,
        properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": _OPERATION},
    )
    sender.delivery("1")
    sender.stream(bytes(request.encode()))
    sender.advance()
    connection.flush()
    message = proton.Message()
    message.decode(await answer)
    (settings,) = json.loads(str(message.body))
    found = json.loads(settings)
    if not isinstance(found, dict):
        raise ValueError("no settings")  # noqa: TRY004 - as JSON's own errors
    return found


def _take(receiver: Receiver, deliveries: list[Delivery], answer: asyncio.Future[bytes]) -> None:
    for delivery in deliveries:
        if delivery.link == receiver and delivery.readable and not delivery.partial:
            if not answer.done():
                answer.set_result(bytes(receiver.recv(delivery.pending) or b""))
            receiver.advance()
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()


def _remedy(address: str) -> str:
    """What gives an address a place for its dead letters."""
    return (
        f'in broker.xml, <address-setting match="{address}"><dead-letter-address>ADDRESS'
        "</dead-letter-address></address-setting>"
    )
