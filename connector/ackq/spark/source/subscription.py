"""The queue of a subscription: declared and bound before the query opens its session (S10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackq.errors import InvalidArgumentError, QueueNotFoundError
from ackq.spark import connections

if TYPE_CHECKING:
    from ackq.client import Admin
    from ackq.client.connection.broker import Broker
    from ackq.spark.options.options import SourceOptions


def subscribe(options: SourceOptions, broker: Broker) -> None:
    """Declares the queue and binds it; a queue that exists keeps its properties and bindings.

    Raises:
        ExchangeNotFoundError: The exchange does not exist.
        InvalidArgumentError: No `binding` is given, and the exchange is a direct one.
        PermissionDeniedError: The token may not declare the queue or bind it.
        BrokerUnavailableError: The broker does not answer for `retryTimeout`.
    """
    connections.wait_ready(broker)
    admin = connections.admin(broker)
    (queue,) = options.queues
    keys = options.binding or (_every_key(admin, options.exchange),)
    try:
        admin.declare_queue(queue, passive=True)
    except QueueNotFoundError:
        admin.declare_queue(queue)
    for key in keys:
        admin.bind(options.exchange, queue, key)


def _every_key(admin: Admin, exchange: str) -> str:
    """The binding key that takes every message of an exchange; of none that does not exist."""
    kinds = {each.exchange: each.type for each in admin.exchanges()}
    if kinds.get(exchange) == "direct":
        raise InvalidArgumentError(
            f"The option 'binding' is missing: exchange '{exchange}' is a direct one, where a queue"
            " gets only the routing keys that it is bound with: .option('binding', 'key,another').",
            argument="binding",
        )
    return "#"
