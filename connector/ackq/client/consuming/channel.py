"""Consumes from queues with blocking calls or callbacks. Rules C1-C17.

Invariant: after `close` no thread of the channel is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self, TypeVar

import pyarrow as pa

from ackq import limits
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

    Messages that are unsettled when the channel ends, in whatever way, are redelivered (C12). After
    a lost connection it reconnects by itself: if the broker is back within its grace of 2 s, the
    application notices nothing (C11). Later, and after a restart of the broker, the channel is
    renewed: consumers go on, and messages that were unsettled are delivered again. To settle one of
    before has no effect, and its future says so (C17). A fork cannot use it: open one in each
    process.

    A callback runs on a thread of its consumer's own, one message at a time; leaving the block
    waits for the one that runs:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", seen.put)
        ...     seen.get(timeout=10).body
        b'a'

    The application may settle each message with its own outcome, and wait until it took effect:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode="client", outcomes=["failed", "rejected"])
        ...     message = consumer.receive(timeout_s=10)
        ...     message.fail("the ledger is closed", delay_ms=60_000).result()
        1

    Arrow batches cost nothing per message:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", mode="client")
        ...     batch = consumer.receive_batch(timeout_s=10)
        ...     consumer.settle(batch.slice(1)).result()
        2

    A pull takes what is there, prefetch or not (C9):

        >>> with Channel(endpoint) as channel:
        ...     [message.body for message in channel.get("orders", 10)]
        [b'a', b'b', b'c']

    For its arguments see `ChannelBase`.
    """

    # Not the consumers: a consumer keeps its channel alive, and not the other way round.
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
            queue: Its name. If it does not exist, the first `receive` raises, and the channel
                closes.
            callback: Called with each message, on a thread of the consumer's own. It may publish
                and settle; it must not close the channel. None: for `receive` and iteration.
            mode: Who accepts messages, and when (C10).
            outcomes: The negative outcomes it may settle with (C5).
            prefetch: Maximum of unacked messages; 0: unlimited (C8). Without acks (NONE) only the
                transport window bounds the messages on their way.
            prefetch_bytes: At this many unacked payload bytes nothing more is delivered; 0:
                unlimited (C8).
            columns: Of `receive_batch`, names of `ackq.wire.columns.DELIVERED`; None: all.
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
        arrived = threading.Condition(self._stream.lock)
        with arrived:
            self._wait(arrived, self._stream.ready)
            receiver = self._subscribe(arguments)
            receiver.inbox.wake = arrived.notify_all
            if callback is None:
                return Consumer(self, receiver, arrived, None)
            try:
                callback_thread = CallbackThread(receiver, callback, arrived)
            except BaseException:  # there is no thread for it
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
        """Pulls up to `messages` ready messages (C9). Prefetch does not bound it.

        They are settled like those of mode CLIENT, with any outcome.

        Args:
            queue: Its name.
            messages: Maximum number.
            no_ack: The broker removes them when it sends them (C10, NONE).
            timeout_s: Maximum wait for the answer, in seconds.

        Raises:
            InvalidArgumentError: An argument is out of its range.
            QueueNotFoundError: No such queue; the channel is closed.
            BrokerUnavailableError: No answer came in time.
            ClosedError: The channel is closed, or was disconnected for too long.
        """
        check_pull(queue, messages, no_ack)
        self._stream.refuse_fork()
        self._stream.refuse_own_thread()
        answered = threading.Condition(self._stream.lock)
        with answered:
            self._wait(answered, self._stream.ready)
            pull = self._pull(queue, messages, no_ack=no_ack)
            pull.inbox.wake = answered.notify_all
            pulled = wait_for(answered, pull.poll, timeout_s)
            if pulled is None:
                pull.cancel()
                raise self._pull_unanswered(queue, timeout_s)
        return pulled

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until every settlement so far took effect; sends lazy accepts at once.

        Args:
            timeout_s: Maximum wait in seconds; None waits without limit.

        Raises:
            BrokerUnavailableError: Not every settlement was answered within `timeout_s`.
            StaleDeliveryTagError, OutcomeUnknownError: The channel was renewed since the last
                flush, before something took effect that was settled (C17); raised once.
            ClosedError: The channel is closed, or was disconnected for too long.
        """
        self._stream.refuse_fork()
        self._stream.refuse_own_thread()
        answered = threading.Condition(self._stream.lock)
        with answered:
            self._stream.check()
            self._state.unsettled.flush_lazy()
            self._stream.nudge()
            if not self._wait(answered, lambda: self._stream.idle, timeout_s):
                raise self._settlements_unanswered(timeout_s)
            self._check_effects()

    def close(self, timeout_s: float | None = None) -> None:
        """Ends the channel and its threads. Waits for callbacks that run, and for settlements.

        Unsettled messages are redelivered (C12). Idempotent; does nothing in a fork.

        Args:
            timeout_s: Maximum wait in seconds; None waits without limit.

        Raises:
            AckqError: What the channel failed with, if no call has raised it.
            BrokerUnavailableError: Not every settlement was answered within `timeout_s`.
            PreconditionFailedError: This is the thread of a callback; or one runs for longer than
                `timeout_s`, and the channel ends without it.
        """
        if self._stream.inherited:
            return
        self._refuse_own_threads()
        self._finalizer.detach()
        if not self._stream.begin_close():
            return
        deadline = Deadline(timeout_s)
        timed_out: AckqError | None = None
        for callback_thread in self._callback_threads:
            if not callback_thread.wait(deadline.left_s):
                timed_out = PreconditionFailedError(
                    f"A callback still runs after {timeout_s:g} s. The channel ends without it, "
                    "and its message is delivered again."
                )
        self._stream.finish()
        answered = threading.Condition(self._stream.lock)
        with answered:
            if not self._wait(answered, lambda: self._stream.finished, deadline.left_s):
                timed_out = timed_out or self._settlements_unanswered(timeout_s)
        failure = self._stream.end() or timed_out
        if failure is not None:
            raise timed_out or failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes; after an exception with a short timeout."""
        if kind is None:
            self.close()
            return
        with suppress(AckqError):  # the exception that is being raised matters more
            self.close(limits.HEARTBEAT_SEND_MS / 1000)

    def _refuse_own_threads(self) -> None:
        self._stream.refuse_own_thread()
        if any(callback_thread.is_current for callback_thread in self._callback_threads):
            raise PreconditionFailedError(
                "close() of a channel waits for the thread that runs this callback; call it from "
                "another one. A callback may close its consumer."
            )

    def _wait(
        self,
        changed: threading.Condition,
        done: Callable[[], bool],
        timeout_s: float | None = None,
    ) -> bool:
        """Waits, under the lock, for a condition on the channel's state; False: timed out."""
        self._stream.wakers.add(changed.notify_all)
        try:
            return changed.wait_for(done, timeout_s)
        finally:
            self._stream.wakers.remove(changed.notify_all)


class Consumer(ConsumerBase):
    """One of a channel's consumers; see `Channel.consume`. It ends with `close` or its channel."""

    def __init__(
        self,
        channel: Channel,
        receiver: Receiver,
        arrived: threading.Condition,
        callback_thread: CallbackThread | None,
    ) -> None:
        super().__init__(receiver)
        self.channel = channel
        self._arrived = arrived
        self._callback_thread = callback_thread

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; waits for one.

        Args:
            timeout_s: Maximum wait in seconds; 0 returns at once, None waits without limit.

        Returns:
            The message, or None: there was none in time.

        Raises:
            QueueNotFoundError: There is no such queue; the channel is closed, or after a reconnect
                the consumer alone. Or it was deleted, and the consumer has ended.
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
        """The messages that have arrived, as Arrow; waits for the first. Otherwise as `receive`.

        Returns:
            1 to `max_messages` rows of one frame, with the consumer's columns.
        """
        check_count("max_messages", max_messages)
        taken = self._take(max_messages, timeout_s)
        return None if taken is None else self._receiver.batch(taken)

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until a consumer with a callback has ended; False: timed out.

        Raises:
            AckqError: Why it ended, unless it or its channel was closed.
        """
        if self._callback_thread is None:
            raise PreconditionFailedError("The consumer has no callback; there is nothing to join.")
        return self._callback_thread.join(timeout_s)

    def close(self) -> None:
        """Ends the consumer; waits for its callback. Unread messages are requeued.

        Messages it delivered can still be settled. Idempotent; does nothing in a fork.
        """
        self._receiver.close()
        if self._callback_thread is not None and not self._callback_thread.is_current:
            self._callback_thread.wait(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """As `receive`; the iteration ends when the consumer or its channel is closed."""
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
        """Waits for messages, and until they are accepted where the mode asks for it (C10)."""
        if self._callback_thread is not None:
            raise PreconditionFailedError("The consumer has a callback, which gets its messages.")
        self._receiver.settler.stream.refuse_own_thread()
        deadline = Deadline(timeout_s)
        while True:
            with self._arrived:
                given = wait_for(self._arrived, lambda: self._receiver.poll(limit), deadline.left_s)
            if given is None:
                return None
            if self._is_accepted(given):
                return given.taken

    def _is_accepted(self, given: Handover) -> bool:
        """Waits for the accept of messages, where the mode asks for it; False: they come again."""
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
    """A point in time `timeout_s` from now; None: never."""

    def __init__(self, timeout_s: float | None) -> None:
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Seconds until then, 0 afterwards; None: never."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


def wait_for(
    changed: threading.Condition, poll: Callable[[], T | None], timeout_s: float | None
) -> T | None:
    """The first result of `poll`, waited for under the lock; None: timed out."""
    found = poll()
    if found is not None:
        return found
    deadline = Deadline(timeout_s)
    while (left_s := deadline.left_s) is None or left_s > 0:
        changed.wait(left_s)
        found = poll()
        if found is not None:
            return found
    return None
