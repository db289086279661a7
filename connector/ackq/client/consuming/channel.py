"""Consumes from queues with blocking calls or callbacks. Rules C1-C17.

Invariant: after `close` no thread of the channel is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self, TypeVar

import pyarrow as pa

from ackq import limits
from ackq.client.condition import StreamCondition
from ackq.client.connection.calls import REQUEST_TIMEOUT_S
from ackq.client.consuming.base import (
    ChannelBase,
    ConsumeArguments,
    ConsumerBase,
    check_callback,
    check_count,
    check_pull,
)
from ackq.client.consuming.callbacks import Callback, CallbackThread
from ackq.client.consuming.inbox import RowSlice
from ackq.client.consuming.message import Message
from ackq.client.consuming.receiver import Receiver
from ackq.client.consuming.stream import Handover
from ackq.client.event_loop import refuse_coroutine
from ackq.client.futures import wait_s
from ackq.client.outcomes import AcknowledgeMode, ModeName
from ackq.errors import (
    AckqError,
    ClosedError,
    PreconditionFailedError,
)
from ackq.outcomes import Outcome, OutcomeName

T = TypeVar("T")


class Channel(ChannelBase):
    """Consumes from queues of one broker, from any number of threads (C1-C17).

    Messages that are unsettled when the channel ends, for whatever reason, are redelivered (C12).
    After a lost connection the channel reconnects by itself: if the broker is back within its grace
    of 2 s, the application notices nothing (C11). Later, and after a restart of the broker, the
    channel is renewed: consumers continue, and messages that were unsettled are redelivered.
    Settling a message received before the renewal has no effect and fails its future (C17). A
    forked process cannot use the channel: open one in each process.

    A callback runs on a thread of its consumer, one message at a time; leaving the block waits for
    a running callback:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", seen.put)
        ...     seen.get(timeout=10).body
        b'a'

    The application may settle each message with its own outcome, and wait until this took effect:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode="client", outcomes=["failed", "rejected"])
        ...     message = consumer.receive(timeout_s=10)
        ...     message.fail("the ledger is closed", delay_ms=60_000).result()
        1

    Arrow batches have no cost per message:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode="client")
        ...     batch = consumer.receive_batch(timeout_s=10)
        ...     consumer.settle(batch.slice(1)).result()
        2

    A pull takes the ready messages, whatever the prefetch (C9):

        >>> with Channel(endpoint) as channel:
        ...     [message.body for message in channel.get("orders", 10)]
        [b'a', b'b', b'c']

    For its arguments see `ChannelBase`.
    """

    # Threads, not consumers: a consumer keeps its channel alive, but a channel not its consumers.
    _callback_threads: tuple[CallbackThread, ...] = ()

    def consume(
        self,
        queue: str,
        callback: Callback | None = None,
        *,
        mode: AcknowledgeMode | ModeName = AcknowledgeMode.AUTO,
        outcomes: Iterable[Outcome | OutcomeName] | OutcomeName = (),
        prefetch: int = limits.CONSUMER_PREFETCH_MESSAGES,
        prefetch_bytes: int = 0,
        columns: Sequence[str] | None = None,
        message_ids: bool = False,
    ) -> Consumer:
        """Starts a consumer; waits until the channel is open.

        Args:
            queue: Name of the queue. If it does not exist, the first `receive` raises, and the
                channel closes.
            callback: Called with each message, on a thread of the consumer's own. It may publish
                and settle; it must not close the channel. None: for `receive` and iteration.
            mode: Who accepts messages, and when (C10).
            outcomes: The negative outcomes with which it may settle (C5).
            prefetch: Maximum number of unacked messages; 0: unlimited (C8). Without acks (NONE)
                only the transport window bounds the messages in flight.
            prefetch_bytes: The broker stops delivery at this many unacked payload bytes; 0:
                unlimited (C8).
            columns: Columns of `receive_batch`, names of `ackq.wire.columns.DELIVERED`; None: all.
            message_ids: A message that was published without an id is delivered with one, the same
                each time (L23).

        Raises:
            InvalidArgumentError: An argument is out of its range.
            SchemaError: A column does not exist.
            InvalidOperationError: The broker does not support an outcome (C5).
            BrokerUnavailableError: No broker answered within the bound.
            ClosedError: The channel is closed, or was disconnected for too long.
        """
        arguments = ConsumeArguments(
            queue, mode, outcomes, prefetch, prefetch_bytes, columns, message_ids=message_ids
        )
        check_callback(callback)
        refuse_coroutine(callback, "callback", "use AsyncChannel")
        self._stream.refuse_fork()
        arrived = StreamCondition(self._stream.lock)
        with self._stream.lock:
            self._wait(arrived, self._stream.ready)
            receiver = self._subscribe(arguments)
            receiver.inbox.wake = arrived.notify_all
            if callback is None:
                return Consumer(self, receiver, arrived, None)
            try:
                callback_thread = CallbackThread(receiver, callback, arrived)
            except BaseException:  # no thread could be started
                receiver.close()
                raise
            alive = (each for each in self._callback_threads if each.alive)
            self._callback_threads = (*alive, callback_thread)
        return Consumer(self, receiver, arrived, callback_thread)

    def get(
        self,
        queue: str,
        messages: int = 1,
        *,
        no_ack: bool = False,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> list[Message]:
        """Pulls up to `messages` ready messages (C9). Prefetch does not bound a pull.

        They are settled like messages of mode CLIENT, with any outcome.

        Args:
            queue: Name of the queue.
            messages: Maximum number of messages.
            no_ack: The broker removes the messages when it sends them (C10, NONE).
            timeout_s: Maximum wait for the answer, in seconds.

        Raises:
            InvalidArgumentError: An argument is out of its range.
            QueueNotFoundError: No such queue; the channel is closed.
            BrokerUnavailableError: No answer arrived in time.
            ClosedError: The channel is closed, or was disconnected for too long.
        """
        check_pull(queue, messages, no_ack)
        self._stream.refuse_fork()
        self._stream.refuse_own_thread()
        answered = StreamCondition(self._stream.lock)
        with self._stream.lock:
            self._wait(answered, self._stream.ready)
            pull = self._pull(queue, messages, no_ack=no_ack)
            pull.inbox.wake = answered.notify_all
            try:
                pulled = wait_for(answered, pull.poll, timeout_s)
            finally:  # also after a KeyboardInterrupt
                pull.cancel()
            if pulled is None:
                raise self._pull_unanswered(queue, timeout_s)
        return pulled

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until every settlement so far took effect; sends lazy accepts at once.

        Args:
            timeout_s: Maximum wait in seconds; None waits without limit.

        Raises:
            BrokerUnavailableError: Not every settlement was answered within `timeout_s`.
            StaleDeliveryTagError, OutcomeUnknownError: The channel was renewed since the last
                flush, before a settlement took effect (C17); raised once.
            ClosedError: The channel is closed, or was disconnected for too long.
        """
        self._stream.refuse_fork()
        self._stream.refuse_own_thread()
        answered = StreamCondition(self._stream.lock)
        with self._stream.lock:
            if not self._wait(answered, self._stream.flushing(), timeout_s):
                raise self._settlements_unanswered(timeout_s)
            self._check_effects()

    def close(self, timeout_s: float | None = None) -> None:
        """Ends the channel and its threads. Waits for running callbacks and for settlements.

        Unsettled messages are redelivered (C12). If the call is interrupted, as by Ctrl-C, the
        channel ends without waiting. Idempotent; does nothing in a forked process.

        Args:
            timeout_s: Maximum wait in seconds; None waits without limit.

        Raises:
            AckqError: Why the channel failed, if no call has raised it.
            BrokerUnavailableError: Not every settlement was answered within `timeout_s`.
            PreconditionFailedError: The caller is the thread of a callback; or a callback runs for
                longer than `timeout_s`, and the channel ends without it.
        """
        if self._stream.inherited:
            return
        self._refuse_own_threads()
        self._finalizer.detach()
        try:
            failure = self._close(timeout_s) if self._stream.begin_close() else None
        except BaseException:  # for instance a KeyboardInterrupt
            self._stream.abandon()
            raise
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the channel; after an exception with a short timeout."""
        if kind is None:
            self.close()
            return
        with suppress(AckqError):  # the exception that is being raised matters more
            self.close(limits.HEARTBEAT_SEND_MS / 1000)

    def _close(self, timeout_s: float | None) -> AckqError | None:
        """Waits for callbacks and settlements, and ends the stream; returns what `close` raises."""
        deadline = Deadline(timeout_s)
        timed_out: AckqError | None = None
        for callback_thread in self._callback_threads:
            if not callback_thread.wait(deadline.left_s):
                timed_out = PreconditionFailedError(
                    f"A callback still runs after {timeout_s:g} s. The channel ends without it, "
                    "and its message is delivered again."
                )
        self._stream.finish()
        answered = StreamCondition(self._stream.lock)
        with self._stream.lock:
            if not self._wait(answered, lambda: self._stream.finished, deadline.left_s):
                timed_out = timed_out or self._settlements_unanswered(timeout_s)
        failure = self._stream.end()
        return timed_out or failure

    def _refuse_own_threads(self) -> None:
        self._stream.refuse_own_thread()
        if any(callback_thread.is_current for callback_thread in self._callback_threads):
            raise PreconditionFailedError(
                "close() of a channel waits for the thread that runs this callback; call it from "
                "another thread. A callback may close its consumer."
            )

    def _wait(
        self,
        changed: StreamCondition,
        done: Callable[[], bool],
        timeout_s: float | None = None,
    ) -> bool:
        """Waits, under the lock, for a condition on the channel's state; False: timed out."""
        self._stream.wakers.add(changed.notify_all)
        try:
            return wait_for(changed, lambda: done() or None, timeout_s) is not None
        finally:
            self._stream.wakers.remove(changed.notify_all)


class Consumer(ConsumerBase):
    """A consumer of a `Channel`; see `Channel.consume`. It ends with `close` or its channel."""

    def __init__(
        self,
        channel: Channel,
        receiver: Receiver,
        arrived: StreamCondition,
        callback_thread: CallbackThread | None,
    ) -> None:
        super().__init__(receiver)
        self.channel = channel
        self._arrived = arrived
        self._callback_thread = callback_thread

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Waits for the next message.

        Args:
            timeout_s: Maximum wait for a message in seconds; 0 does not wait, None waits without
                limit. In modes AUTO and PRE a message that came is returned once its accept is
                answered (C10), for which a broker that is away is waited for: it would be lost to a
                program that ends after None.

        Returns:
            The message, or None if none arrived in time.

        Raises:
            QueueNotFoundError: The queue does not exist: the channel is closed, or after a
                reconnect only the consumer. Or the queue was deleted, and the consumer has ended.
            ClosedError: The consumer or its channel is closed, or was disconnected for too long.
            AckqError: Another error ended the channel.
            PreconditionFailedError: The consumer has a callback.
        """
        if self._callback_thread is None:
            message = self._receiver.next_message()
            if message is not None:
                return message
        taken = self._take(1, timeout_s)
        return None if taken is None else self._receiver.message(taken)

    def receive_batch(
        self, max_messages: int = limits.FRAME_TARGET_ROWS, timeout_s: float | None = None
    ) -> pa.RecordBatch | None:
        """The messages that have arrived, as Arrow; waits for the first like `receive`.

        In modes AUTO and PRE all of them are accepted when it returns (C10).

        Returns:
            1 to `max_messages` rows of one frame, with the consumer's columns; None if no message
            arrived in time.
        """
        check_count("max_messages", max_messages)
        taken = self._take(max_messages, timeout_s)
        return None if taken is None else self._receiver.batch(taken)

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until a consumer with a callback has ended; False: timed out.

        Raises:
            AckqError: Why the consumer ended, unless it or its channel was closed.
        """
        if self._callback_thread is None:
            raise PreconditionFailedError("The consumer has no callback; there is nothing to join.")
        return self._callback_thread.join(timeout_s)

    def close(self) -> None:
        """Ends the consumer; waits for its callback. Unread messages are requeued.

        Delivered messages can still be settled. Idempotent; does nothing in a forked process.
        """
        self._receiver.close()
        if self._callback_thread is not None and not self._callback_thread.is_current:
            self._callback_thread.wait(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next message; the iteration ends when the consumer or its channel is closed."""
        try:
            message = self.receive()
        except ClosedError:
            if self._receiver.ended:
                raise StopIteration from None
            raise
        assert message is not None, "waiting has no end"
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, limit: int, timeout_s: float | None) -> RowSlice | None:
        """Waits for messages, and for their accept if the mode requires it (C10)."""
        if self._callback_thread is not None:
            raise PreconditionFailedError(
                "The consumer has a callback, which gets its messages; consume without a callback "
                "to receive them."
            )
        self._receiver.settler.stream.refuse_own_thread()
        deadline = Deadline(timeout_s)
        while True:
            with self._arrived.lock:
                given = wait_for(self._arrived, lambda: self._receiver.poll(limit), deadline.left_s)
            if given is None:
                return None
            if self._is_accepted(given):
                return given.taken

    def _is_accepted(self, given: Handover) -> bool:
        """Waits for the accept of messages if the mode requires it; False: they are redelivered."""
        if given.accepted is not None:
            try:
                given.accepted.result()
            except AckqError as error:
                return self._receiver.deliverable(error)
            except BaseException:  # for instance a KeyboardInterrupt
                self._receiver.return_undelivered(given)
                raise
        return True


class Deadline:
    """A deadline `timeout_s` seconds from now; None means no deadline."""

    def __init__(self, timeout_s: float | None) -> None:
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline, 0 after it; None means no deadline."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


def wait_for(
    changed: StreamCondition, poll: Callable[[], T | None], timeout_s: float | None
) -> T | None:
    """Waits, under the lock, for the first result of `poll` that is not None; None: timed out."""
    found = poll()
    if found is not None:
        return found
    deadline = Deadline(timeout_s)
    while (left_s := deadline.left_s) is None or left_s > 0:
        changed.wait(wait_s(left_s))
        found = poll()
        if found is not None:
            return found
    return None
