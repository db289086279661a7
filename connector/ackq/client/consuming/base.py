"""Base classes of blocking and asynchronous channels and consumers, and argument checks."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Iterable, Sequence
from copy import copy

import pyarrow as pa

from ackq import limits
from ackq.client.blocks import decoding, encoding
from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.client.consuming.message import Message, tag_runs
from ackq.client.consuming.receiver import PendingPull, Receiver, Settler
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.state import ChannelSettings, ChannelState
from ackq.client.consuming.stream import DeliveryStream, OnReconnect
from ackq.client.consuming.unsettled import unknown_tag
from ackq.client.event_loop import refuse_coroutine
from ackq.client.outcomes import (
    AcknowledgeMode,
    ModeName,
    declared,
    disposition,
    mode_of,
    outcome_of,
)
from ackq.errors import BrokerUnavailableError, InvalidArgumentError
from ackq.outcomes import Outcome, OutcomeName
from ackq.wire import columns as wire_columns


class ChannelBase:
    """Base class of `Channel` and `AsyncChannel`. A channel connects when it is first used.

    Args:
        endpoint: `host:port`, or a `Broker`, which includes security and the bound on retries.
        window_messages: Maximum number of messages the broker sends without a transport ack (C11).
        transport_ack_percent: A transport ack is sent at this percentage of the window.
        transport_ack_delay_ms: A transport ack is sent this long after the first message without
            one arrived.
        retry_total_ms: Maximum wait for a broker that answers the first open.
        reconnect_timeout_ms: Maximum time without a broker afterwards; then every call raises
            ClosedError. 0: the channel is not renewed (C17), and ends when the broker no longer
            has it.
        on_reconnect: Called with a `Reconnected` when the channel was renewed (C17), on the
            channel's thread, or for an AsyncChannel on its event loop; it must not block.
        label: Name that operators see; empty: host and process id.
        security: Transport security.

    Raises:
        InvalidArgumentError: An argument is out of its range.
    """

    def __init__(
        self,
        endpoint: str | Broker,
        *,
        window_messages: int = limits.CHANNEL_WINDOW_MESSAGES,
        transport_ack_percent: int = limits.TRANSPORT_ACK_AT_PERCENT,
        transport_ack_delay_ms: float = limits.TRANSPORT_ACK_DELAY_MS,
        retry_total_ms: int = limits.RETRY_TOTAL_MS,
        reconnect_timeout_ms: int = limits.RETRY_TOTAL_MS,
        on_reconnect: OnReconnect | None = None,
        label: str = "",
        security: Security | None = None,
    ) -> None:
        broker = Broker.of(endpoint, security, retry_total_ms)
        grpc_channel(broker)  # raises for a bad address or certificate
        encoding.text_bytes("label", label)
        check_count("window_messages", window_messages)
        check_count("reconnect_timeout_ms", reconnect_timeout_ms, least=0)
        check_callback(on_reconnect, "on_reconnect")
        refuse_coroutine(on_reconnect, "on_reconnect", "give a function")
        settings = ChannelSettings(
            window_messages, transport_ack_percent, transport_ack_delay_ms / 1000
        )
        self._state = ChannelState(settings)
        self._stream = DeliveryStream(
            broker,
            self._state,
            label=label or f"{socket.gethostname()}:{os.getpid()}",
            reconnect_timeout_ms=reconnect_timeout_ms,
            on_reconnect=None if on_reconnect is None else self._heard(on_reconnect),
        )
        self._finalizer = weakref.finalize(self, self._stream.abandon)

    def _heard(self, on_reconnect: OnReconnect) -> OnReconnect:
        """The callback that the channel's thread calls; it must not refer to the channel."""
        return on_reconnect

    @property
    def unacked(self) -> int:
        """Number of messages delivered to the application and not settled."""
        self._stream.refuse_fork()
        with self._stream.lock:
            return len(self._state.unsettled.unacked)

    @property
    def outcomes(self) -> frozenset[Outcome]:
        """Outcomes that the broker supports (C5); empty until the channel is open."""
        return self._state.announced

    def acknowledge(self, message: Message) -> Settlement:
        """Accepts all messages delivered on this channel up to and including `message` (C3).

        For mode CLIENT and pulled messages (C10). Messages that are not yet delivered to the
        application are left out.

        Returns:
            A future with the number of messages, once the accept took effect (C15).

        Raises:
            UnknownDeliveryTagError: The message belongs to another channel, or no message up to it
                is unsettled; the channel is closed (C2). (For a message delivered before the
                channel was renewed, the future fails with StaleDeliveryTagError, C17.)
            PreconditionFailedError: The message's consumer settles automatically.
            ClosedError: The channel is closed.
        """
        self._stream.refuse_fork()
        if not message.settler.belongs_to(self._stream):
            error = unknown_tag(message.delivery_tag)
            with self._stream.lock:
                self._stream.fail(copy(error))
            raise error
        return message.settler.settle_up_to(message.delivery_tag)

    def set_prefetch(self, messages: int) -> None:
        """Bounds the unacked messages of all consumers of the channel together; 0: unlimited (C8).

        Raises ClosedError if the channel is closed.
        """
        check_count("messages", messages, least=0)
        self._stream.refuse_fork()
        with self._stream.lock:
            self._stream.check()
            self._state.set_prefetch(None, messages)
            self._stream.nudge()

    def _check_effects(self) -> None:
        """Raises why a settlement since the last check had no effect (C17); under the lock."""
        error = self._stream.take_without_effect()
        if error is not None:
            raise error
        self._stream.check()

    def _subscribe(self, arguments: ConsumeArguments) -> Receiver:
        """Starts a consumer on an open channel; under the lock."""
        subscription = self._state.subscribe(
            arguments.queue,
            prefetch=arguments.prefetch,
            outcomes=arguments.outcomes,
            no_ack=arguments.mode is AcknowledgeMode.NONE,
            message_ids=arguments.message_ids,
            prefetch_bytes=arguments.prefetch_bytes,
        )
        self._stream.nudge()
        settler = Settler(self._stream, self._state, arguments.mode, arguments.outcomes)
        return Receiver(settler, self._state, subscription, arguments.columns)

    def _pull(self, queue: str, messages: int, *, no_ack: bool) -> PendingPull:
        """Starts a pull on an open channel; under the lock."""
        mode = AcknowledgeMode.NONE if no_ack else AcknowledgeMode.CLIENT
        settler = Settler(self._stream, self._state, mode, declared(self._state.announced))
        pull = self._state.pull(queue, messages, no_ack=no_ack)
        self._stream.nudge()
        return PendingPull(settler, self._state, pull)

    def _pull_unanswered(self, queue: str, timeout_s: float) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"The broker at {self._stream.endpoint} left a pull of queue '{queue}' unanswered for "
            f"{timeout_s:g} s. Wait longer, or check its disk and load.",
            endpoint=self._stream.endpoint,
            cause="no answer",
        )

    def _settlements_unanswered(self, timeout_s: float | None) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"The broker at {self._stream.endpoint} left settlements unanswered for "
            f"{timeout_s:g} s. Messages that it did not settle are delivered again. Wait longer, "
            "or check its disk and load.",
            endpoint=self._stream.endpoint,
            cause="no answer",
        )


class ConsumerBase:
    """Base class of `Consumer` and `AsyncConsumer`."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    @property
    def queue(self) -> str:
        """Name of the queue from which the consumer reads."""
        return self._receiver.inbox.request.queue

    @property
    def mode(self) -> AcknowledgeMode:
        """The acknowledge mode: who accepts the consumer's messages, and when."""
        return self._receiver.settler.mode

    def settle(
        self,
        batch: pa.RecordBatch | pa.Table,
        outcome: Outcome | OutcomeName = Outcome.ACCEPTED,
        *,
        reason: str = "",
        delay_ms: int = 0,
    ) -> Settlement:
        """Settles all rows of a batch with one outcome, by their column `delivery_tag`.

        Args:
            batch: Rows that `receive_batch` returned, in any order and number.
            outcome: Their outcome (C4).
            reason: Why, for FAILED and REJECTED.
            delay_ms: Redelivery delay, for FAILED and RELEASED (C14).

        Returns:
            A future with the number of messages, once the settlement took effect (C15); in a
            coroutine, await it.

        Raises:
            SchemaError: The batch has no column `delivery_tag`.
            UnknownDeliveryTagError: A row was settled before; the channel is closed (C2).
            OutcomeNotSupportedError: The consumer did not declare the outcome (C5).
            PreconditionFailedError: The consumer settles automatically.
            InvalidArgumentError: An argument is out of its range.
            ClosedError: The channel is closed.
        """
        chosen = disposition(outcome_of(outcome), reason, delay_ms)
        runs = tag_runs(batch)
        if not runs:
            nothing = Settlement()
            nothing.succeed(0)
            return nothing
        return self._receiver.settler.settle(runs, chosen)

    def set_prefetch(self, messages: int) -> None:
        """Changes the bound on the consumer's unacked messages; 0 means unlimited (C8)."""
        check_count("prefetch", messages, least=0)
        self._receiver.set_prefetch(messages)


class ConsumeArguments:
    """Arguments of `consume`, validated before any request is sent.

    Raises:
        InvalidArgumentError: An argument is out of its range.
        SchemaError: A column does not exist.
    """

    def __init__(
        self,
        queue: str,
        mode: AcknowledgeMode | ModeName,
        outcomes: Iterable[Outcome | OutcomeName] | OutcomeName,
        prefetch: int,
        prefetch_bytes: int,
        columns: Sequence[str] | None,
        *,
        message_ids: bool,
    ) -> None:
        encoding.check_queue(queue)
        check_count("prefetch", prefetch, least=0)
        check_count("prefetch_bytes", prefetch_bytes, least=0)
        encoding.check_flag("message_ids", message_ids)
        self.message_ids = message_ids
        self.queue = queue
        self.mode = mode_of(mode)
        self.outcomes = declared(outcomes)
        self.prefetch = prefetch
        self.prefetch_bytes = prefetch_bytes
        self.columns = tuple(wire_columns.DELIVERED) if columns is None else tuple(columns)
        decoding.schema(self.columns)


def check_pull(queue: str, messages: int, no_ack: object) -> None:
    """Raises InvalidArgumentError for an invalid argument of a pull."""
    encoding.check_queue(queue)
    check_count("messages", messages)
    encoding.check_flag("no_ack", no_ack)


def check_callback(callback: object, name: str = "callback") -> None:
    """Raises InvalidArgumentError for a callback that is not callable."""
    if callback is not None and not callable(callback):
        raise InvalidArgumentError(
            f"'{name}' is a {type(callback).__name__}; it must be a function.", argument=name
        )


def check_count(name: str, value: int, *, least: int = 1) -> None:
    """Raises InvalidArgumentError for an invalid number of messages."""
    most = 2**32 - 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgumentError(
            f"'{name}' is {value!r}; it must be an int from {least} to {most}.", argument=name
        )
