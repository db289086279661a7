"""Consumes from queues on an asyncio event loop. Rules C1-C16.

Invariant: nothing here blocks the event loop; what the channel's own thread has to say reaches it
by `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from ackq import limits
from ackq.client.connection.calls import REQUEST_TIMEOUT_S
from ackq.client.consuming.callbacks import settle_raised, settle_returned
from ackq.client.consuming.channel_base import ConsumerChannel, check_pull
from ackq.client.consuming.inbox import Taken
from ackq.client.consuming.message import Message
from ackq.client.consuming.receiver import Receiver, Wishes, check_callback, check_count
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.stream import Handover
from ackq.client.outcomes import BEFORE_CALLBACK, AcknowledgeMode, disposition, outcome_of
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    ClosedError,
    PreconditionFailedError,
)
from ackq.outcomes import Outcome

T = TypeVar("T")

AsyncCallback = Callable[[Message], object]


class AsyncChannel(ConsumerChannel):
    """A `Channel` for coroutines of one event loop.

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

    For its arguments see `ConsumerChannel`. Settlements are awaited, or left to themselves.
    """

    _tasks: tuple[asyncio.Task[None], ...] = ()

    async def consume(
        self,
        queue: str,
        callback: AsyncCallback | None = None,
        *,
        mode: AcknowledgeMode | str = AcknowledgeMode.AUTO,
        outcomes: Iterable[Outcome | str] = (),
        prefetch: int = limits.CONSUMER_PREFETCH_MESSAGES,
        columns: Sequence[str] | None = None,
    ) -> AsyncConsumer:
        """As `Channel.consume`; a task calls back, and awaits what it gets."""
        wishes = Wishes(queue, mode, outcomes, prefetch, columns)
        check_callback(callback)
        self._pump.refuse_fork()
        await self._until(self._pump.ready)
        bell = Bell()
        with self._pump.lock:
            self._pump.check()
            receiver = self._subscribe(wishes)
            receiver.inbox.ring = bell.ring
        consumer = AsyncConsumer(self, receiver, bell, callback)
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
        """As `Channel.get`."""
        check_pull(queue, messages, no_ack)
        self._pump.refuse_fork()
        await self._until(self._pump.ready)
        bell = Bell()
        with self._pump.lock:
            self._pump.check()
            pulling = self._pull(queue, messages, no_ack=no_ack)
            pulling.pull.ring = bell.ring
        try:
            async with asyncio.timeout(timeout_s):
                return await bell.wait_for(pulling.poll)
        except TimeoutError:
            raise BrokerUnavailableError(
                f"The broker at {self._pump.endpoint} left a pull of queue '{queue}' unanswered "
                f"for {timeout_s:g} s. Wait longer, or check its disk and load.",
                endpoint=self._pump.endpoint,
                cause="no answer",
            ) from None
        finally:
            pulling.give_up()

    async def flush(self, timeout_s: float | None = None) -> None:
        """As `Channel.flush`."""
        self._pump.refuse_fork()
        with self._pump.lock:
            self._pump.check()
            self._flow.settling.hurry()
            self._pump.nudge()
        await self._until(lambda: self._pump.idle, timeout_s)
        with self._pump.lock:
            self._pump.check()

    async def close(self, timeout_s: float | None = None) -> None:
        """As `Channel.close`; a callback that runs is cancelled, its message delivered again."""
        if self._pump.inherited:
            return
        if asyncio.current_task() in self._tasks:
            raise PreconditionFailedError(
                "close() of a channel ends the task that runs this callback; call it from another "
                "one. A callback may close its consumer."
            )
        self._finalizer.detach()
        if not self._pump.begin_close():
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pump.finish()
        try:
            await self._until(lambda: self._pump.finished, timeout_s)
        finally:
            failure = await _in_thread(self._pump.end)
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes. Left by an exception, it waits for a short while only."""
        if kind is None:
            await self.close()
            return
        with suppress(AckqError):  # the exception that is on its way says more
            await self.close(limits.HEARTBEAT_SEND_MS / 1000)

    async def _until(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Waits until the channel's state says so; raises BrokerUnavailableError when late."""
        bell = Bell()
        pump = self._pump

        def poll() -> bool | None:
            with pump.lock:
                return done() or None

        with pump.lock:
            pump.rings.add(bell.ring)
        try:
            async with asyncio.timeout(timeout_s):
                await bell.wait_for(poll)
        except TimeoutError:
            raise BrokerUnavailableError(
                f"The broker at {pump.endpoint} left settlements unanswered for {timeout_s:g} s. "
                "What it did not settle is delivered again. Wait longer, or check its disk and "
                "load.",
                endpoint=pump.endpoint,
                cause="no answer",
            ) from None
        finally:
            with pump.lock:
                pump.rings.remove(bell.ring)


class AsyncConsumer:
    """One of a channel's consumers; see `AsyncChannel.consume`.

    Attributes:
        channel: Its channel.
        task: Runs the callback, if there is one; done when the consumer has ended, with the reason
            unless it or its channel was closed.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        receiver: Receiver,
        bell: Bell,
        callback: AsyncCallback | None,
    ) -> None:
        self.channel = channel
        self._receiver = receiver
        self._bell = bell
        self.task = None if callback is None else asyncio.create_task(self._run(callback))

    @property
    def queue(self) -> str:
        """The queue it reads."""
        return self._receiver.inbox.request.queue

    @property
    def mode(self) -> AcknowledgeMode:
        """Who accepts its messages, and when."""
        return self._receiver.settler.mode

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """As `Consumer.receive`. When it is cancelled no message is lost: the next call gets it."""
        taken = await self._take(1, timeout_s)
        return None if taken is None else self._receiver.message(taken)

    async def receive_batch(
        self, max_messages: int = limits.FRAME_TARGET_ROWS, timeout_s: float | None = None
    ) -> pa.RecordBatch | None:
        """As `Consumer.receive_batch`."""
        check_count("max_messages", max_messages)
        taken = await self._take(max_messages, timeout_s)
        return None if taken is None else self._receiver.batch(taken)

    def settle(
        self,
        batch: pa.RecordBatch | pa.Table,
        outcome: Outcome | str = Outcome.ACCEPTED,
        *,
        reason: str = "",
        delay_ms: int = 0,
    ) -> Settlement:
        """As `Consumer.settle`; await what it gives to know that it took effect."""
        return self._receiver.settle_batch(
            batch, disposition(outcome_of(outcome), reason, delay_ms)
        )

    def set_prefetch(self, messages: int) -> None:
        """Changes the bound on what it may have unsettled; 0: unlimited (C8)."""
        self._receiver.set_prefetch(messages)

    async def close(self) -> None:
        """Ends the consumer, and its callback's task after the message it has."""
        self._receiver.close()
        if self.task is not None and self.task is not asyncio.current_task():
            await asyncio.wait([self.task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """As `receive`; the iteration ends when the consumer or its channel is closed."""
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _take(self, limit: int, timeout_s: float | None) -> Taken | None:
        if self.task is not None:
            raise PreconditionFailedError("The consumer has a callback, which gets its messages.")
        try:
            async with asyncio.timeout(timeout_s):
                given = await self._bell.wait_for(lambda: self._receiver.poll(limit))
        except TimeoutError:
            return None
        return await self._accepted(given)

    async def _accepted(self, given: Handover) -> Taken:
        """Waits until messages are accepted where the mode says so (C10)."""
        if given.accepted is not None:
            try:
                await given.accepted
            except AckqError as error:
                self._receiver.despite(error)
            except BaseException:  # above all that the task is cancelled
                self._receiver.keep(given.taken)
                raise
        return given.taken

    async def _run(self, callback: AsyncCallback) -> None:
        receiver = self._receiver
        pump = receiver.settler.pump
        before = BEFORE_CALLBACK[receiver.settler.mode]

        def poll() -> Handover | None:
            with pump.lock:
                return pump.take(receiver.inbox, 1, before, told=False)

        try:
            while True:
                given = await self._bell.wait_for(poll)
                if given.accepted is not None:
                    await given.accepted
                message = receiver.message(given.taken)
                try:
                    called = callback(message)
                    if inspect.isawaitable(called):
                        await called
                except Exception as error:  # noqa: BLE001 - what an application raises is its own
                    settle_raised(receiver, message, error)
                else:
                    settle_returned(receiver, message)
        except AckqError:
            if not receiver.ended:
                raise


class Bell:
    """Wakes coroutines of the running event loop from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Something changed."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait_for(self, poll: Callable[[], T | None]) -> T:
        """Waits until `poll` gives something."""
        while True:
            self._rung.clear()
            found = poll()
            if found is not None:
                return found
            await self._rung.wait()


async def _in_thread(work: Callable[[], T]) -> T:
    """Runs what blocks on a thread that ends with it; the loop's own threads would stay."""
    with ThreadPoolExecutor(1, thread_name_prefix="ackq-close") as one:
        return await asyncio.get_running_loop().run_in_executor(one, work)
