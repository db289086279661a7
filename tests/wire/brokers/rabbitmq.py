"""RabbitMQ as a broker under test: administration over AMQP, and the node itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.relay import Relay
from tests.wire.brokers.amqp import AmqpConnection, AmqpStream
from tests.wire.brokers.dialect import Counts, Dialect, Properties
from tests.wire.brokers.rabbitmq_server import RabbitMqServer
from tests.wire.brokers.streams import EventLog

# A limit that no disk satisfies (in units of the machine's memory), and RabbitMQ's default.
_DISK_FULL = "{mem_relative, 100000.0}"
_DISK_FREE = '"50MB"'

# Erlang: the number of messages in the queue `%s`.
_MESSAGES = """
    {ok, Queue} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
    case amqqueue:get_type(Queue) of
        rabbit_quorum_queue ->
            Total = fun rabbit_fifo:query_messages_total/1,
            {ok, Count, _} = ra:consistent_query(amqqueue:get_pid(Queue), Total),
            Count;
        _ ->
            [{messages, Count}] = rabbit_amqqueue:info(Queue, [messages]),
            Count
    end.
"""


@contextlib.contextmanager
def target(folder: Path) -> Iterator[RabbitMqDialect]:
    """Starts a node of the suite's own, and yields its dialect."""
    with RabbitMqServer(folder) as server:
        dialect = RabbitMqDialect(server)
        try:
            yield dialect
        finally:
            dialect.close()


class RabbitMqDialect(Dialect):
    """A RabbitMQ node."""

    name = "rabbitmq"
    short_heartbeat = {"heartbeat_s": 3}  # noqa: RUF012 - never changed

    def __init__(self, server: RabbitMqServer) -> None:
        self._server = server
        self._admin: AmqpConnection | None = None

    @property
    def port(self) -> int:
        """The port on which the node listens."""
        return self._server.port

    def connect(self, heartbeat_s: int | None = None) -> AmqpConnection:
        """Opens a new connection, through its own relay."""
        return AmqpConnection(Relay(self._server.endpoint), heartbeat_s)

    def declare(self, queue: str, properties: Properties) -> None:
        """Declares a queue (Q1); one with a delivery limit is a quorum queue."""
        self._call(
            "queue_declare",
            queue,
            durable=properties.durable,
            arguments=_arguments(properties),
        )

    def delete(self, queue: str, *, force: bool = False, if_empty: bool = False) -> int:
        done = self._call("queue_delete", queue, if_unused=not force, if_empty=if_empty)
        return done.method.message_count

    def purge(self, queue: str) -> int:
        return self._call("queue_purge", queue).method.message_count

    def counts(self, queue: str) -> Counts:
        """The counts of a queue, by a passive declare."""
        found = self._call("queue_declare", queue, passive=True).method
        return Counts(found.message_count, found.consumer_count)

    def messages(self, queue: str) -> int:
        """The number of messages of a queue, including unacknowledged ones.

        Asks the queue itself: the figure of `list_queues` for a quorum queue is up to 1 s old, and
        0 for a new one.
        """
        return int(self._server.evaluate(_MESSAGES % queue))

    def declare_exchange(self, exchange: str, kind: str, *, durable: bool = True) -> None:
        self._call("exchange_declare", exchange, kind, durable=durable)

    def delete_exchange(self, exchange: str) -> None:
        self._call("exchange_delete", exchange)

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        self._call("queue_bind", queue, exchange, key)

    def unbind(self, exchange: str, queue: str, key: str = "") -> None:
        self._call("queue_unbind", queue, exchange, key)

    def crash(self) -> None:
        self.close()
        # A declare is answered before it, and what a quorum queue needs to elect its leader, is on
        # disk, so a new queue could be lost by the kill.
        self._server.evaluate("mnesia:sync_log(), [dets:sync(Each) || Each <- dets:all()].")
        self._server.kill()
        self._server.start()

    def disk_alarm(self, *, on: bool) -> None:
        limit = _DISK_FULL if on else _DISK_FREE
        self._server.evaluate(f"rabbit_disk_monitor:set_disk_free_limit({limit}).")

    def close(self) -> None:
        """Closes the connection used for administration."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Makes one call on a new channel, as RabbitMQ closes the channel of a refused one."""
        if self._admin is None:
            self._admin = self.connect()
        stream = AmqpStream(self._admin, EventLog())
        answer = stream.call(getattr(stream.amqp, method), *arguments, **named)
        stream.close()
        return answer


def _arguments(properties: Properties) -> dict[str, Any]:
    """The queue's properties as RabbitMQ's optional arguments."""
    assert not properties.redelivery_delay_ms, "RabbitMQ has no redelivery delay"
    assert not properties.drop_on_limit, "RabbitMQ has no such choice"
    bounded = properties.max_length or properties.max_bytes
    arguments: dict[str, Any] = {
        "x-max-length": properties.max_length,
        "x-max-length-bytes": properties.max_bytes,
        "x-overflow": properties.overflow if bounded else "",
        "x-message-ttl": properties.message_ttl_ms,
        "x-expires": properties.expires_ms,
        "x-delivery-limit": properties.delivery_limit,
        "x-queue-type": "quorum" if properties.delivery_limit else "",
        "x-dead-letter-routing-key": properties.dead_letter_queue,
    }
    arguments = {name: value for name, value in arguments.items() if value}
    if properties.dead_letter_queue:
        arguments["x-dead-letter-exchange"] = ""
    return arguments
