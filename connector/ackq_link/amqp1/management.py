"""Limits and counts of an Artemis queue, queried by the broker's management address. Rule L14.

It needs the permissions `manage`, and `createNonDurableQueue` for the answer; without them nothing
is learnt. Qpid does not report on its queues by AMQP 1.0.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import proton
from proton import Delivery, Receiver

from ackq_link.adapter import CutError, QueueLimits
from ackq_link.amqp1.connection import Amqp1Connection

ARTEMIS: Final = "apache-activemq-artemis"
QPID: Final = "qpid"
_ADDRESS: Final = "activemq.management"
_OPERATION: Final = "getAddressSettingsAsJSON"
_CONSUMERS: Final = "consumerCount"
_BINDINGS: Final = "listBindingsForAddress"
_CALL_S: Final = 10.0
# Artemis's default limit of deliveries, after which it drops a message, or moves it.
_DEFAULT_LIMIT: Final = 10
# A question: the resource, the attribute or operation, and its parameters.
_Question = tuple[str, Mapping[str, str], Sequence[str]]


async def queue_limits(connection: Amqp1Connection, queue: str) -> QueueLimits:
    """The limits of a queue, as far as the broker reports them."""
    limits = QueueLimits(requeue_counts=False)
    if connection.product != ARTEMIS:
        # Measured with Qpid Broker-J 9.2.1: a rejection is only a failed delivery.
        return replace(limits, rejected_again=QPID in connection.product.lower())
    address = queue.partition("::")[0]
    limits = replace(limits, delivery_limit=_DEFAULT_LIMIT, remedy=_remedy(address))
    try:
        async with asyncio.timeout(_CALL_S):
            settings = await _settings(connection, address)
            dead = str(settings.get("deadLetterAddress") or "")
            made = settings.get("autoCreateDeadLetterResources") is True
            kept = bool(dead) and (made or await _has_queues(connection, dead))
    except (CutError, TimeoutError, ValueError):
        return replace(limits, partial=True)
    most = settings.get("maxDeliveryAttempts", _DEFAULT_LIMIT)
    warning = (
        f"the dead-letter address '{dead}' of the queue does not exist, or has no queue: Artemis"
        " drops its dead letters. Create it, or name another one"
    )
    return replace(
        limits,
        delivery_limit=max(0, most) if isinstance(most, int) else _DEFAULT_LIMIT,
        dead_letters=kept,
        warnings=(warning,) if dead and not kept else (),
    )


async def queue_counts(connection: Amqp1Connection, queue: str) -> tuple[int, int] | None:
    """The numbers of messages of a queue, with delivered ones, and of its consumers.

    None: the broker does not report them.

    Args:
        connection: A new connection, which serves for nothing else after this.
        queue: An address, or `ADDRESS::QUEUE`.
    """
    if connection.product != ARTEMIS:
        return None
    resource = "queue." + queue.rpartition("::")[2]
    wanted: list[_Question] = [
        (resource, {"_AMQ_Attribute": name}, []) for name in ("messageCount", _CONSUMERS)
    ]
    try:
        async with asyncio.timeout(_CALL_S):
            messages, consumers = await _answers(connection, wanted)
        return int(messages), int(consumers)
    except (CutError, TimeoutError, ValueError, TypeError):
        return None


async def _settings(connection: Amqp1Connection, address: str) -> dict[str, Any]:
    """The address settings of an address; settings with the default value may be missing."""
    (settings,) = await _answers(
        connection, [("broker", {"_AMQ_OperationName": _OPERATION}, [address])]
    )
    found = json.loads(settings)
    if not isinstance(found, dict):
        raise ValueError("no settings")  # noqa: TRY004 - as JSON's own errors
    return found


async def _has_queues(connection: Amqp1Connection, address: str) -> bool:
    """Whether an address keeps messages; true where the broker does not say."""
    asked: _Question = ("broker", {"_AMQ_OperationName": _BINDINGS}, [address])
    return bool(*await _answers(connection, [asked]))


async def _answers(connection: Amqp1Connection, questions: Sequence[_Question]) -> list[Any]:
    """The broker's answers, in the order of the questions.

    Raises:
        CutError: The connection ended, or the link has no permission to ask.
        ValueError: An answer is malformed.
    """
    receiver = await connection.receive("")
    receiver.flow(len(questions))
    answers: asyncio.Queue[bytes | CutError] = asyncio.Queue()
    connection.on_deliveries = lambda deliveries: _take(receiver, deliveries, answers)
    connection.on_end = answers.put_nowait
    sender = await connection.send(_ADDRESS)
    for number, (resource, asked, parameters) in enumerate(questions):
        request = proton.Message(
            body=json.dumps(parameters),
            inferred=False,
            reply_to=receiver.remote_source.address,
            properties={"_AMQ_ResourceName": resource, **asked},
        )
        sender.delivery(str(number))
        sender.stream(bytes(request.encode()))
        sender.advance()
    connection.flush()
    found = []
    for _ in questions:
        answer = await answers.get()
        if isinstance(answer, CutError):
            raise answer
        message = proton.Message()
        message.decode(answer)
        (value,) = json.loads(str(message.body))
        found.append(value)
    return found


def _take(
    receiver: Receiver, deliveries: list[Delivery], answers: asyncio.Queue[bytes | CutError]
) -> None:
    for delivery in deliveries:
        if delivery.link == receiver and delivery.readable and not delivery.partial:
            answers.put_nowait(bytes(receiver.recv(delivery.pending) or b""))
            receiver.advance()
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()


def _remedy(address: str) -> str:
    """The broker.xml setting that gives an address a dead-letter address."""
    return (
        f'in broker.xml, <address-setting match="{address}"><dead-letter-address>ADDRESS'
        "</dead-letter-address></address-setting>"
    )
