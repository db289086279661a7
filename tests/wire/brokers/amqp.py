"""AMQP 0-9-1 by pika: a connection on its own thread, and the streams over it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.fakes.relay import Relay
from tests.wire.brokers import dialect, streams
from tests.wire.brokers.dialect import NEGATIVE, Cut, Delivery, Message, Mode, Outcome, Refused
from tests.wire.brokers.rabbitmq_server import parameters
from tests.wire.brokers.streams import TIMEOUT_S, EventLog

# Scenarios cut connections; pika logs each with a traceback.
logging.getLogger("pika").setLevel(logging.CRITICAL)

_CONDITIONS = {404: "not_found", 406: "precondition_failed"}


class AmqpConnection(dialect.Connection):
    """A connection, through its own relay.

    Args:
        relay: In front of the broker.
        heartbeat_s: As negotiated; None: as the broker proposes.
    """

    def __init__(self, relay: Relay, heartbeat_s: int | None = None) -> None:
        self.relay = relay
        self._opened: Future[None] = Future()
        self.on_blocked: list[Callable[[Any], None]] = []
        self._connection = pika.SelectConnection(
            parameters(relay.port, heartbeat=heartbeat_s),
            on_open_callback=lambda _: self._opened.set_result(None),
            on_open_error_callback=lambda _, error: self._opened.set_exception(Cut(repr(error))),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )
        self._connection.add_on_connection_blocked_callback(
            lambda _, frame: self._tell(streams.Blocked(frame.method.reason))
        )
        self._connection.add_on_connection_unblocked_callback(
            lambda *_: self._tell(streams.Unblocked())
        )
        self._thread = threading.Thread(target=self._run, name="amqp", daemon=True)
        self._thread.start()
        self._opened.result(TIMEOUT_S)

    def publisher(self, mode: Mode = Mode.CONFIRM) -> AmqpPublisher:
        """Opens a publisher: an AMQP channel in that mode."""
        publisher = AmqpPublisher(self)
        publisher.ask_for(mode)
        return publisher

    def channel(self) -> AmqpChannel:
        return AmqpChannel(self)

    def close(self) -> None:
        self.relay.release()
        if self._thread.is_alive():
            self.post(lambda: self._connection.is_open and self._connection.close())
            self._thread.join(1.0)
        self.relay.close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def post(self, work: Callable[[], Any]) -> Future[Any]:
        """Runs `work` on the connection's thread."""
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
                done.set_exception(error)

        self._connection.ioloop.add_callback_threadsafe(run)
        return done

    def open_channel(self) -> Any:
        """Opens a new AMQP channel."""
        opened: Future[Any] = Future()
        self.post(lambda: self._connection.channel(on_open_callback=opened.set_result))
        return opened.result(TIMEOUT_S)

    def _run(self) -> None:
        self._connection.ioloop.start()
        self._connection.ioloop.close()

    def _tell(self, event: Any) -> None:
        for listen in self.on_blocked:
            listen(event)


class AmqpStream:
    """An AMQP channel whose calls wait for their answers, or for the end of the channel."""

    def __init__(self, connection: AmqpConnection, log: EventLog[Any]) -> None:
        self.log = log
        self._connection = connection
        self.amqp = connection.open_channel()
        self.post(lambda: self.amqp.add_on_close_callback(self._on_close)).result(TIMEOUT_S)

    def post(self, work: Callable[[], Any]) -> Future[Any]:
        """Runs `work` on the connection's thread."""
        return self._connection.post(work)

    def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Calls an AMQP channel's method that takes a callback; returns the callback's frame."""
        answer: list[Any] = []

        def answered(frame: Any) -> None:
            answer.append(frame)
            self.log.wake()

        asked = self.post(lambda: method(*arguments, callback=answered, **named))
        frame = self.log.wait(lambda: answer[0] if answer else None, what=method.__name__)
        asked.result(TIMEOUT_S)
        return frame

    def close(self) -> None:
        """Closes the channel, and waits for its end."""
        self.post(self.amqp.close).result(TIMEOUT_S)
        self.log.wait_end()

    def _on_close(self, _: Any, error: Exception) -> None:
        match error:
            case ChannelClosedByBroker() | ConnectionClosedByBroker():
                code = error.reply_code
                condition = _CONDITIONS.get(code, "other")
                self.log.end(Refused(condition, str(code), error.reply_text, {}))
            case _:
                self.log.end(Cut(repr(error)))


class AmqpPublisher(AmqpStream, dialect.Publisher):
    """A publisher: an AMQP channel in confirm or transaction mode."""

    def __init__(self, connection: AmqpConnection) -> None:
        self.answers = streams.Answers()
        super().__init__(connection, self.answers)
        self._numbers = 0
        connection.on_blocked.append(self.answers.add)
        self.post(lambda: self.amqp.add_on_return_callback(self._on_return)).result(TIMEOUT_S)

    def publish_all(self, *messages: Message) -> list[int]:
        """Publishes messages; returns their numbers."""
        return [self._publish(message) for message in messages]

    def ask_for(self, mode: Mode) -> None:
        """Selects a mode; raises Refused if the channel has the other one (P1)."""
        if mode is Mode.TRANSACTION:
            self.call(self.amqp.tx_select)
        else:
            self.call(self.amqp.confirm_delivery, self._on_answer)

    def commit(self) -> None:
        self.call(self.amqp.tx_commit)
        self.answers.add(streams.Finished())

    def rollback(self) -> None:
        self.call(self.amqp.tx_rollback)
        self.answers.add(streams.Finished())

    def received(self) -> None:
        self.call(self.amqp.flow, active=True)

    def _publish(self, message: Message) -> int:
        self._numbers += 1
        number = self._numbers
        self.answers.sent.add(number)
        properties = pika.BasicProperties(
            message_id=str(number),  # a return has no number, so the id carries it
            delivery_mode=2 if message.persistent else 1,
            expiration=str(message.ttl_ms) if message.ttl_ms else None,
            headers=message.headers or None,
        )
        what = (message.exchange, message.key, message.body, properties, message.mandatory)
        self.post(lambda: self.amqp.basic_publish(*what))
        return number

    def _on_answer(self, frame: Any) -> None:
        tag, multiple = frame.method.delivery_tag, frame.method.multiple
        if isinstance(frame.method, pika.spec.Basic.Ack):
            self.answers.add(streams.Confirm(tag, tag, multiple))
        else:
            self.answers.add(streams.Nack(tag, tag, multiple, None))

    def _on_return(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        self.answers.add(streams.Return(int(properties.message_id), body, method.reply_text))


class AmqpChannel(AmqpStream, dialect.Channel):
    """A channel with consumers and pulls."""

    def __init__(self, connection: AmqpConnection) -> None:
        super().__init__(connection, EventLog())
        self.deliveries: deque[Delivery] = deque()
        self._pulled: deque[Delivery | None] = deque()
        self.ended: deque[str] = deque()
        self._prefetch = 0
        self.post(self._listen).result(TIMEOUT_S)

    def consume(self, queue, *, prefetch=0, no_ack=False, outcomes=NEGATIVE):
        """Starts a consumer; returns its name. AMQP has no declaration of outcomes."""
        assert outcomes == NEGATIVE
        # Applies to consumers started from now on, so to this one; also lifts the channel's bound.
        self.call(self.amqp.basic_qos, prefetch_count=prefetch, global_qos=False)
        self.prefetch(self._prefetch)
        take = self._on_delivery(queue)
        started = self.call(self.amqp.basic_consume, queue, take, auto_ack=no_ack)
        return started.method.consumer_tag

    def cancel(self, consumer: str) -> None:
        self.call(self.amqp.basic_cancel, consumer)

    def prefetch(self, messages: int) -> None:
        self._prefetch = messages
        self.call(self.amqp.basic_qos, prefetch_count=messages, global_qos=True)

    def get(self, queue: str, messages: int = 1, *, no_ack: bool = False) -> list[Delivery]:
        """Pulls up to `messages` messages, one by one, as AMQP has no pull of several (C9)."""
        pulled = []
        for _ in range(messages):
            self.post(lambda: self.amqp.basic_get(queue, self._on_pulled(queue), auto_ack=no_ack))
            self.log.wait(lambda: True if self._pulled else None, what="the answer to a pull")
            delivery = self._pulled.popleft()
            if delivery is None:
                break
            pulled.append(delivery)
        return pulled

    def settle(self, delivery, outcome=Outcome.ACCEPTED, *, multiple=False, reason="", delay_ms=0):
        """Settles a delivery or a bare tag (C4).

        FAILED and RELEASED are both a nack with requeue: whether it counts against a delivery limit
        depends on the queue.
        """
        assert not reason, "AMQP has no reason for a settlement"
        assert not delay_ms, "AMQP has no delay for a settlement"
        tag = delivery if isinstance(delivery, int) else delivery.tag
        if outcome is Outcome.ACCEPTED:
            self.post(lambda: self.amqp.basic_ack(tag, multiple))
        else:
            requeue = outcome is not Outcome.REJECTED
            self.post(lambda: self.amqp.basic_nack(tag, multiple, requeue))
        # AMQP does not answer a settlement; a later call on the channel is answered after it.
        self.call(self.amqp.flow, active=True)

    def _listen(self) -> None:
        empty = [pika.spec.Basic.GetEmpty]
        self.amqp.add_callback(lambda _: self._note(self._pulled, None), empty, one_shot=False)
        self.amqp.add_on_cancel_callback(
            lambda frame: self._note(self.ended, frame.method.consumer_tag)
        )

    def _on_delivery(self, queue: str) -> Callable[..., None]:
        return lambda _, method, properties, body: self._note(
            self.deliveries, _delivery(queue, method.consumer_tag, method, properties, body)
        )

    def _on_pulled(self, queue: str) -> Callable[..., None]:
        return lambda _, method, properties, body: self._note(
            self._pulled, _delivery(queue, "", method, properties, body)
        )

    def _note(self, where: deque[Any], what: Any) -> None:
        where.append(what)
        self.log.add(what)


def _delivery(queue: str, consumer: str, method: Any, properties: Any, body: bytes) -> Delivery:
    headers = dict(properties.headers or {})
    before = headers.get("x-delivery-count")  # of a quorum queue
    return Delivery(
        tag=method.delivery_tag,
        body=body,
        queue=queue,
        redelivered=method.redelivered,
        count=None if before is None else before + 1,
        persistent=properties.delivery_mode == 2,
        expires=properties.expiration is not None,
        consumer=consumer,
        headers=headers,
        death=_death(headers),
    )


def _death(headers: dict[str, Any]) -> dialect.Death | None:
    if not headers.get("x-death"):
        return None
    last = headers["x-death"][0]
    at = last["time"]
    return dialect.Death(
        reason=last["reason"],
        queue=last["queue"],
        first_queue=headers["x-first-death-queue"],
        count=last["count"],
        at=(at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp(),
    )
