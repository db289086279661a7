"""Publishes messages with confirms on an asyncio event loop.

Invariant: nothing here blocks the event loop; the publisher's threads wake it by
`call_soon_threadsafe`. What was published has its answer, whoever stopped waiting for it (P3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Self, TypeVar, Unpack

import pyarrow as pa

from ackq.client.event_loop import LoopCallback, Waker, in_thread, refuse_coroutine
from ackq.client.publishing.base import MessageArguments
from ackq.client.publishing.confirmations import Confirmation, ConfirmationFuture
from ackq.client.publishing.confirming import ConfirmingPublisher
from ackq.errors import WindowFullError

T = TypeVar("T")


class AsyncPublisher(ConfirmingPublisher):
    """A `Publisher` for coroutines of one event loop.

    `publish` returns when the broker has taken responsibility. Many at once share their way to the
    disk, so publish from several coroutines, or without waiting for each confirm:

        >>> async def main():
        ...     async with AsyncPublisher(endpoint, routing_key="orders") as out:
        ...         confirmation = await out.publish(b"d")
        ...         waiting = [out.publish_nowait(b"e"), out.publish_nowait(b"f")]
        ...         await out.drain()  # room for more
        ...         return [confirmation.number, *[(await each).number for each in waiting]]
        >>> asyncio.run(main())
        [1, 2, 3]

    A coroutine that is cancelled while it waits for room has published nothing. One that is
    cancelled while it waits for the confirm has: `flush` and `close` wait for the answer, and raise
    if it is a failure. Leaving the block waits for all answers and raises the first failure; left
    by an exception it does not wait, and what is unanswered fails.

    `on_return` and `on_blocked` are functions, and run on the loop. Transactions have no asyncio
    form: give a TransactionalPublisher a thread, with `asyncio.to_thread`.

    For its arguments see `ConfirmingPublisher`.
    """

    _callbacks: tuple[LoopCallback[Any], ...] = ()
    _loop: asyncio.AbstractEventLoop | None = None

    @cached_property
    def _turn(self) -> asyncio.Lock:
        """Who waits for room, in turn.

        Coroutines that all woke at each confirm would cost the square of their number, and would
        overtake each other.
        """
        return asyncio.Lock()

    def _heard(self, callback: Callable[[T], None] | None, name: str) -> Callable[[T], None] | None:
        refuse_coroutine(callback, name, "give a function")
        if callback is None:
            return None
        on_loop = LoopCallback(callback)
        self._callbacks = (*self._callbacks, on_loop)
        return on_loop

    async def publish(
        self,
        body: bytes | str,
        *,
        ack_immediately: bool = False,
        **message: Unpack[MessageArguments],
    ) -> Confirmation:
        """Publishes one message and waits for its confirm, before that for room in the window.

        Coroutines that wait for room publish in the order in which they asked.

        Args:
            body: Bytes, or a string that goes as UTF-8.
            ack_immediately: As of `Publisher.publish`.
            **message: Likewise.

        Raises:
            AckqError: As `Publisher.publish`, or as its future.
        """
        most = self._stream.max_message_bytes
        prepared = self._defaults.prepare(body, most, ack_immediately, **message)
        return await (await self._admitted(partial(self._stream.publish_nowait, *prepared)))

    def publish_nowait(
        self,
        body: bytes | str,
        *,
        ack_immediately: bool = False,
        **message: Unpack[MessageArguments],
    ) -> ConfirmationFuture:
        """Publishes one message without waiting; called on the event loop.

        Returns:
            As `Publisher.publish`: a future that may be awaited, or left to itself.

        Raises:
            WindowFullError: The window is full, or others wait for room: `await drain()` first.
            AckqError: As `Publisher.publish`.
        """
        self._bind()
        most = self._stream.max_message_bytes
        prepared = self._defaults.prepare(body, most, ack_immediately, **message)
        future = None if self._turn.locked() else self._stream.publish_nowait(*prepared)
        if future is None:
            raise WindowFullError(
                f"{self.unconfirmed} messages are unconfirmed, and the publisher's window takes no "
                "more for now; await drain() before the next, or use publish().",
                unconfirmed=self.unconfirmed,
            )
        return future

    async def publish_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        queue: str | None = None,
    ) -> int:
        """Publishes the rows of an Arrow batch in order, and waits until all are confirmed.

        The arguments are those of `Publisher.publish_batch`. Of a call that is cancelled the first
        rows may have been published.

        Returns:
            The number of rows.

        Raises:
            AckqError: As `Publisher.publish_batch`, or as its future.
        """
        prepared = self._prepare_batch(batch, exchange, routing_key, queue)
        for rows in prepared.parts:
            await self._admitted(partial(self._stream.publish_part_nowait, prepared.part(rows)))
        return await prepared.future

    async def drain(self) -> None:
        """Waits until the window has room for a message (P14). Raises ClosedError."""
        await self._admitted(self._stream.has_room)

    async def flush(self, timeout_s: float | None = None) -> None:
        """As `Publisher.flush`: waits for the answer of every publish that was taken so far."""
        self._bind()
        answered = self._stream.flushing()

        def poll() -> bool:
            with self._stream.lock:
                return answered()

        try:
            async with asyncio.timeout(timeout_s):
                await self._wait(poll)
        except TimeoutError:
            raise self._stream.late(timeout_s) from None
        self._stream.raise_first_error()

    async def close(self, timeout_s: float | None = None) -> None:
        """As `Publisher.close`. Publishes that still wait for room raise ClosedError."""
        if self._stream.inherited:
            return
        self._finalizer.detach()
        if self._stream.begin_close():
            try:
                await self.flush(timeout_s)
            finally:
                await in_thread(self._stream.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes. Left by an exception, it does not wait: what is unanswered fails."""
        if kind is None:
            await self.close()
            return
        self._finalizer.detach()
        self._stream.abandon()
        await in_thread(self._stream.join)

    async def _admitted(self, attempt: Callable[[], T | None]) -> T:
        """The first result of `attempt` that is true: it is not while the window is full."""
        self._bind()
        if not self._turn.locked():
            done = attempt()
            if done:
                return done
        async with self._turn:
            return await self._wait(attempt)

    async def _wait(self, poll: Callable[[], T | None]) -> T:
        """The first result of `poll` that is true, asked again after each answer."""
        waker = Waker()
        with self._stream.lock:
            self._stream.wakers.add(waker.wake)
        try:
            return await waker.wait_for(lambda: poll() or None)
        finally:
            with self._stream.lock:
                self._stream.wakers.remove(waker.wake)

    def _bind(self) -> None:
        """Callbacks run on the loop that publishes."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            for callback in self._callbacks:
                callback.loop = self._loop
