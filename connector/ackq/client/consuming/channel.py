"""Consumes from queues with blocking calls or callbacks. Rules C1-C16.

Invariant: after `close` no thread of the channel is left.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from ackq import limits
from ackq.client.connection.calls import REQUEST_TIMEOUT_S
from ackq.client.consuming.callbacks import Callback, CallbackThread
from ackq.client.consuming.channel_base import ConsumerChannel, check_pull
from ackq.client.consuming.inbox import RowSlice
from ackq.client.consuming.message import Message
from ackq.client.consuming.receiver import ConsumeArguments, Receiver, check_callback, check_count
from ackq.client.consuming.settlement import Settlement
from ackq.client.outcomes import AcknowledgeMode, disposition, outcome_of
from ackq.errors import (
    AckqError,
    ClosedError,
    InvalidArgumentError,
    PreconditionFailedError,
)
from ackq.outcomes import Outcome

T = TypeVar("T")


class Channel(ConsumerChannel):
    """Consumes from queues of one broker, from any number of threads (C1-C16).

    What is unsettled when the channel ends, in whatever way, is delivered again (C12). A connection
    that was cut is renewed by itself if the broker is back within its grace of 2 s, and the
    application notices nothing (C11). Later its delivery tags are gone: every call raises
    ClosedError, and a new channel is to be opened. A fork cannot use it: open one in each process.

    A callback runs on a thread of its consumer's own, one message at a time; leaving the block
    waits for the one that runs:

        >>> with Channel(endpoint) as channel:
        ...     consumer = channel.consume("orders", seen.put)
        ...     seen.get(timeout=10).body
        b'a'

    The application may settle each message with its own outcome, and look at what became of it:

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

    For its arguments see `ConsumerChannel`.
    """

    # Not the consumers: who holds one keeps its channel, and not the other way round.
    _callback_threads: tuple[CallbackThread, ...] = ()

    def consume(
        self,
        queue: str,
        callback: Callback | None = None,
        *,
        mode: AcknowledgeMode | str = AcknowledgeMode.AUTO,
        outcomes: Iterable[Outcome | str] = (),
        prefetch: int = limits.CONSUMER_PREFETCH_MESSAGES,
        columns: Sequence[str] | None = None,
    ) -> Consumer:
        """Starts a consumer; waits until the channel is open.

        Args:
            queue: Its name. That it does not exist is told by the first `receive`, and closes the
                channel.
            callback: Called with each message, on a thread of the consumer's own. It may publish
                and settle; it must not close the channel. None: for `receive` and iteration.
            mode: Who accepts messages, and when (C10).
            outcomes: The negative outcomes that will be used (C5).
            prefetch: At most so many messages are unsettled; 0: unlimited (C8). Without acks
                (NONE) the transport window alone bounds what is on its way.
            columns: Of `receive_batch`, names of `ackq.wire.columns.DELIVERED`; None: all.

        Raises:
            InvalidArgumentError: An argument is out of its range.
            SchemaError: A column does not exist.
            InvalidOperationError: The broker does not support an outcome (C5).
            BrokerUnavailableError: No broker answered within the bound.
            ClosedError: The channel is closed, or was cut for too long.
        """
        arguments = ConsumeArguments(queue, mode, outcomes, prefetch, columns)
        check_callback(callback)
        if _awaits(callback):
            raise InvalidArgumentError(
                "'callback' is a coroutine function, which nobody would await here; "
                "use AsyncChannel.",
                argument="callback",
            )
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
        """Pulls up to so many messages, those that are ready now (C9). Prefetch does not count.

        They are settled like those of mode CLIENT, with any outcome.

        Args:
            queue: Its name.
            messages: At most so many.
            no_ack: They are removed when they are sent (C10, NONE).
            timeout_s: For the answer.

        Raises:
            InvalidArgumentError: An argument is out of its range.
            QueueNotFoundError: No such queue; the channel is closed.
            BrokerUnavailableError: No answer came in time.
            ClosedError: The channel is closed, or was cut for too long.
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
        """Waits until everything settled so far is answered; what was accepted lazily leaves.

        Raises:
            BrokerUnavailableError: Not everything was answered within `timeout_s`.
            ClosedError: The channel is closed, or was cut for too long.
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
            self._stream.check()

    def close(self, timeout_s: float | None = None) -> None:
        """Ends the channel and its threads. Waits for callbacks that run, and for settlements.

        What is not settled is delivered again (C12). Repeating it does nothing, nor does it in a
        fork.

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes. Left by an exception, it waits for a short while only."""
        if kind is None:
            self.close()
            return
        with suppress(AckqError):  # the exception that is on its way says more
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
        """Waits, under the lock, until the channel's state says so; False: not in time."""
        self._stream.wakers.add(changed.notify_all)
        try:
            return changed.wait_for(done, timeout_s)
        finally:
            self._stream.wakers.remove(changed.notify_all)


class Consumer:
    """One of a channel's consumers; see `Channel.consume`. It ends with `close` or its channel."""

    def __init__(
        self,
        channel: Channel,
        receiver: Receiver,
        arrived: threading.Condition,
        callback_thread: CallbackThread | None,
    ) -> None:
        self.channel = channel
        self._receiver = receiver
        self._arrived = arrived
        self._callback_thread = callback_thread

    @property
    def queue(self) -> str:
        """The queue it reads."""
        return self._receiver.inbox.request.queue

    @property
    def mode(self) -> AcknowledgeMode:
        """Who accepts its messages, and when."""
        return self._receiver.settler.mode

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; waits for one.

        Args:
            timeout_s: Wait at most so long, 0: do not wait, None: as long as it takes.

        Returns:
            The message, or None: there was none in time.

        Raises:
            QueueNotFoundError: There is no such queue; the channel is closed. Or it was deleted,
                and the consumer has ended.
            ClosedError: The consumer or its channel is closed, or was cut for too long.
            AckqError: What else ended the channel.
            PreconditionFailedError: The consumer has a callback.
        """
        taken = self._take(1, timeout_s)
        return None if taken is None else self._receiver.message(taken)

    def receive_batch(
        self, max_messages: int = limits.FRAME_TARGET_ROWS, timeout_s: float | None = None
    ) -> pa.RecordBatch | None:
        """The messages that have arrived, as Arrow; waits for the first. Otherwise as `receive`.

        Returns:
            1 to `max_messages` rows of what one frame brought, with the consumer's columns.
        """
        check_count("max_messages", max_messages)
        taken = self._take(max_messages, timeout_s)
        return None if taken is None else self._receiver.batch(taken)

    def settle(
        self,
        batch: pa.RecordBatch | pa.Table,
        outcome: Outcome | str = Outcome.ACCEPTED,
        *,
        reason: str = "",
        delay_ms: int = 0,
    ) -> Settlement:
        """Settles the rows of a batch, all alike, by their column `delivery_tag`.

        Args:
            batch: Rows that `receive_batch` gave, in any order and number.
            outcome: What becomes of them (C4).
            reason: For FAILED and REJECTED.
            delay_ms: For FAILED and RELEASED (C14).

        Returns:
            A future with the number of messages, once it took effect (C15).

        Raises:
            SchemaError: There is no column `delivery_tag`.
            UnknownDeliveryTagError: A row was settled before; the channel is closed (C2).
            OutcomeNotSupportedError: The consumer did not declare the outcome (C5).
            PreconditionFailedError: The consumer settles by itself.
            InvalidArgumentError: An argument is out of its range.
            ClosedError: The channel is closed.
        """
        return self._receiver.settle_batch(
            batch, disposition(outcome_of(outcome), reason, delay_ms)
        )

    def set_prefetch(self, messages: int) -> None:
        """Changes the bound on what it may have unsettled; 0: unlimited (C8)."""
        self._receiver.set_prefetch(messages)

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until a consumer with a callback has ended; False: not in time.

        Raises:
            AckqError: Why it ended, unless it or its channel was closed.
        """
        if self._callback_thread is None:
            raise PreconditionFailedError("The consumer has no callback; there is nothing to join.")
        return self._callback_thread.join(timeout_s)

    def close(self) -> None:
        """Ends the consumer; waits for its callback. What it did not read goes back.

        What the application got from it can still be settled. Repeating it does nothing, nor does
        it in a fork.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, limit: int, timeout_s: float | None) -> RowSlice | None:
        """Takes messages, and waits until they are accepted where the mode says so (C10)."""
        if self._callback_thread is not None:
            raise PreconditionFailedError("The consumer has a callback, which gets its messages.")
        self._receiver.settler.stream.refuse_own_thread()
        with self._arrived:
            given = wait_for(self._arrived, lambda: self._receiver.poll(limit), timeout_s)
        if given is None:
            return None
        if given.accepted is not None:
            try:
                given.accepted.result()
            except AckqError as error:
                self._receiver.raise_unless_deliverable(error)
            except BaseException:  # for instance a KeyboardInterrupt
                self._receiver.return_undelivered(given.taken)
                raise
        return given.taken


class Deadline:
    """A moment that is so long away; None: never."""

    def __init__(self, timeout_s: float | None) -> None:
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Seconds until then, 0 afterwards; None: never."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


def _awaits(callback: object) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    called = getattr(callback, "__call__", None)  # noqa: B004 - an instance may have an async one
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called)


def wait_for(
    changed: threading.Condition, poll: Callable[[], T | None], timeout_s: float | None
) -> T | None:
    """Waits, under the lock, until `poll` gives something; None: not in time."""
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
