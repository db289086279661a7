"""Consumes from queues on an asyncio event loop. Rules C1-C17.

Invariant: no call blocks the event loop; the channel's threads wake it by `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

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
from ackq.client.consuming.callbacks import settle_raised, settle_returned
from ackq.client.consuming.inbox import RowSlice
from ackq.client.consuming.message import Message
from ackq.client.consuming.receiver import Receiver
from ackq.client.consuming.stream import Handover, OnReconnect, Reconnected
from ackq.client.event_loop import LoopCallback, Waker, in_thread
from ackq.client.outcomes import AcknowledgeMode, ModeName
from ackq.errors import (
    AckqError,
    ClosedError,
    PreconditionFailedError,
)
from ackq.outcomes import Outcome, OutcomeName

AsyncCallback = Callable[[Message], object]


class AsyncChannel(ChannelBase):
    """Consumes from queues of one broker, from coroutines of one event loop.

        >>> async def main():
        ...     async with AsyncChannel(endpoint) as channel:
        ...         consumer = await channel.consume("orders", mode="client", outcomes=["rejected"])
        ...         async for message in consumer:
        ...             if message.body == b"a":
        ...                 await message.accept()
        ...             else:
        ...                 return await message.reject("not an a")
        >>> asyncio.run(main())
        1

    Otherwise like `Channel`. For its arguments see `ChannelBase`. A settlement need not be awaited.
    """

    _tasks: tuple[asyncio.Task[None], ...] = ()
    _told: LoopCallback[Reconnected] | None = None

    def _heard(self, on_reconnect: OnReconnect) -> OnReconnect:
        self._told = LoopCallback(on_reconnect)
        return self._told

    async def consume(
        self,
        queue: str,
        callback: AsyncCallback | None = None,
        *,
        mode: AcknowledgeMode | ModeName = AcknowledgeMode.AUTO,
        outcomes: Iterable[Outcome | OutcomeName] | OutcomeName = (),
        prefetch: int = limits.CONSUMER_PREFETCH_MESSAGES,
        prefetch_bytes: int = 0,
        columns: Sequence[str] | None = None,
        message_ids: bool = False,
    ) -> AsyncConsumer:
        """Starts a consumer, like `Channel.consume`; a task runs and awaits the callback."""
        arguments = ConsumeArguments(
            queue, mode, outcomes, prefetch, prefetch_bytes, columns, message_ids=message_ids
        )
        check_callback(callback)
        self._stream.refuse_fork()
        await self._until(self._stream.ready)
        waker = Waker()
        with self._stream.lock:
            self._stream.check()
            receiver = self._subscribe(arguments)
            receiver.inbox.wake = waker.wake
        consumer = AsyncConsumer(self, receiver, waker, callback)
        if consumer.task is not None:
            alive = (each for each in self._tasks if not each.done())
            self._tasks = (*alive, consumer.task)
        return consumer

    async def get(
        self,
        queue: str,
        messages: int = 1,
        *,
        no_ack: bool = False,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> list[Message]:
        """Pulls up to `messages` ready messages; see `Channel.get`."""
        check_pull(queue, messages, no_ack)
        self._stream.refuse_fork()
        await self._until(self._stream.ready)
        waker = Waker()
        with self._stream.lock:
            self._stream.check()
            pull = self._pull(queue, messages, no_ack=no_ack)
            pull.inbox.wake = waker.wake
        try:
            async with asyncio.timeout(timeout_s):
                return await waker.wait_for(pull.poll)
        except TimeoutError:
            raise self._pull_unanswered(queue, timeout_s) from None
        finally:
            pull.cancel()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Waits until every settlement so far took effect; see `Channel.flush`."""
        self._stream.refuse_fork()
        with self._stream.lock:
            answered = self._stream.flushing()
        await self._until(answered, timeout_s)
        with self._stream.lock:
            self._check_effects()

    async def close(self, timeout_s: float | None = None) -> None:
        """Closes the channel, like `Channel.close`, but cancels running callbacks.

        The message of a cancelled callback is redelivered. If the call itself is cancelled, the
        channel ends nevertheless.
        """
        if self._stream.inherited:
            return
        if asyncio.current_task() in self._tasks:
            raise PreconditionFailedError(
                "close() of a channel ends the task that runs this callback; call it from another "
                "task. A callback may close its consumer."
            )
        self._finalizer.detach()
        if not self._stream.begin_close():
            return
        for task in self._tasks:
            task.cancel()
        try:
            try:
                await asyncio.gather(*self._tasks, return_exceptions=True)
            finally:
                self._stream.finish()
            await self._until(lambda: self._stream.finished, timeout_s)
        finally:
            failure = await in_thread(self._stream.end)
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the channel; after an exception with a short timeout."""
        if kind is None:
            await self.close()
            return
        with suppress(AckqError):  # the exception that is being raised matters more
            await self.close(limits.HEARTBEAT_SEND_MS / 1000)

    async def _until(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Waits for a condition on the channel's state.

        Raises BrokerUnavailableError after `timeout_s`.
        """
        waker = Waker()
        stream = self._stream
        if self._told is not None:
            self._told.loop = asyncio.get_running_loop()

        def poll() -> bool | None:
            with stream.lock:
                return done() or None

        with stream.lock:
            stream.wakers.add(waker.wake)
        try:
            async with asyncio.timeout(timeout_s):
                await waker.wait_for(poll)
        except TimeoutError:
            raise self._settlements_unanswered(timeout_s) from None
        finally:
            with stream.lock:
                stream.wakers.remove(waker.wake)


class AsyncConsumer(ConsumerBase):
    """A consumer of an `AsyncChannel`; see `AsyncChannel.consume`.

    Attributes:
        channel: Its channel.
        task: Task that runs the callback, if any; done when the consumer has ended, with the reason
            as its exception unless the consumer or its channel was closed.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        receiver: Receiver,
        waker: Waker,
        callback: AsyncCallback | None,
    ) -> None:
        super().__init__(receiver)
        self.channel = channel
        self._waker = waker
        self.task = None if callback is None else asyncio.create_task(self._run(callback))

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """Waits for the next message; see `Consumer.receive`.

        A cancelled call loses no message: the next call returns it.
        """
        taken = await self._take(1, timeout_s)
        return None if taken is None else self._receiver.message(taken)

    async def receive_batch(
        self, max_messages: int = limits.FRAME_TARGET_ROWS, timeout_s: float | None = None
    ) -> pa.RecordBatch | None:
        """Waits for messages and returns them as Arrow; see `Consumer.receive_batch`."""
        check_count("max_messages", max_messages)
        taken = await self._take(max_messages, timeout_s)
        return None if taken is None else self._receiver.batch(taken)

    async def close(self) -> None:
        """Ends the consumer, like `Consumer.close`; its task ends after the current message."""
        self._receiver.close()
        if self.task is not None and self.task is not asyncio.current_task():
            await asyncio.wait([self.task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends when the consumer or its channel is closed."""
        try:
            message = await self.receive()
        except ClosedError:
            if self._receiver.ended:
                raise StopAsyncIteration from None
            raise
        assert message is not None, "waiting has no end"
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take(self, limit: int, timeout_s: float | None) -> RowSlice | None:
        if self.task is not None:
            raise PreconditionFailedError(
                "The consumer has a callback, which gets its messages; consume without a callback "
                "to receive them."
            )
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    given = await self._waker.wait_for(lambda: self._receiver.poll(limit))
            except TimeoutError:
                return None
            if await self._is_accepted(given):
                return given.taken

    async def _is_accepted(self, given: Handover, *, callback: bool = False) -> bool:
        """Waits for the accept of messages if the mode accepts before delivery (C10).

        Returns False if the messages are not to be delivered.
        """
        if given.accepted is not None:
            try:
                await given.accepted
            except AckqError as error:
                return self._receiver.deliverable(error, callback=callback)
            except BaseException:  # in particular, cancellation of the task
                self._receiver.return_undelivered(given)
                raise
        return True

    async def _run(self, callback: AsyncCallback) -> None:
        receiver = self._receiver
        try:
            while True:
                given = await self._waker.wait_for(receiver.poll_for_callback)
                if not await self._is_accepted(given, callback=True):
                    continue
                message = receiver.message(given.taken)
                try:
                    called = callback(message)
                    if inspect.isawaitable(called):
                        await called
                except (Exception, asyncio.CancelledError) as error:
                    if _is_cancelled(error):
                        raise
                    settle_raised(receiver, message, error)
                else:
                    settle_returned(receiver, message)
        except AckqError:
            if not receiver.ended:
                raise


def _is_cancelled(error: BaseException) -> bool:
    """Whether the running task was cancelled.

    False: what a callback awaited was cancelled by another part of the program, or `error` is
    another exception.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
