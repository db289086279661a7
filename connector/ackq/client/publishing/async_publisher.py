"""Publishes messages with confirms on an asyncio event loop.

Invariant: nothing in this module blocks the event loop; the publisher's threads wake it by
`call_soon_threadsafe`. Every publish is answered, even if no coroutine waits for it (P3).
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

    `publish` returns when the broker has taken responsibility. Concurrent publishes share a sync
    of the disk, so publish from several coroutines, or without waiting for each confirm:

        >>> async def main():
        ...     async with AsyncPublisher(endpoint, routing_key="orders") as out:
        ...         confirmation = await out.publish(b"d")
        ...         waiting = [out.publish_nowait(b"e"), out.publish_nowait(b"f")]
        ...         await out.drain()  # room for more
        ...         return [confirmation.number, *[(await each).number for each in waiting]]
        >>> asyncio.run(main())
        [1, 2, 3]

    A coroutine that is cancelled while it waits for room has published nothing. One that is
    cancelled while it waits for the confirm has published its message: `flush` and `close` wait for
    the answer, and raise if it is a failure. Leaving the block waits for all answers and raises the
    first failure; after an exception it does not wait, and unanswered publishes fail.

    `on_return` and `on_blocked` are functions, and run on the event loop. Transactions have no
    asyncio form: run a TransactionalPublisher in a thread, with `asyncio.to_thread`.

    For its arguments see `ConfirmingPublisher`.
    """

    _callbacks: tuple[LoopCallback[Any], ...] = ()
    _loop: asyncio.AbstractEventLoop | None = None

    @cached_property
    def _turn(self) -> asyncio.Lock:
        """Lock that coroutines take in turn to wait for room in the window.

        Waking all of them at each confirm would cost the square of their number, and they would
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
        """Publishes one message: waits for room in the window, then for the confirm.

        Coroutines that wait for room publish in the order of their calls.

        Args:
            body: Bytes, or a string that goes as UTF-8.
            ack_immediately: As in `Publisher.publish`.
            **message: Likewise.

        Raises:
            AckqError: As `Publisher.publish`, or as its future.
        """
        most = self._stream.max_message_bytes
        prepared = self._defaults.prepare(body, most, message, ack_immediately=ack_immediately)
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
            As `Publisher.publish`: a future that may be awaited, or ignored.

        Raises:
            WindowFullError: The window is full, or other publishes wait for room: `await drain()`
                first.
            AckqError: As `Publisher.publish`.
        """
        self._bind()
        most = self._stream.max_message_bytes
        prepared = self._defaults.prepare(body, most, message, ack_immediately=ack_immediately)
        future = None if self._turn.locked() else self._stream.publish_nowait(*prepared)
        if future is None:
            raise WindowFullError(
                f"The publisher's window is full: {self.unconfirmed} messages are unconfirmed. "
                "Await drain() before the next publish, or use publish().",
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

        The arguments are those of `Publisher.publish_batch`. If the call is cancelled, the first
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
        """Waits until every publish accepted so far is answered, as `Publisher.flush`."""
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
        """Closes as `Publisher.close` does; publishes that wait for room raise ClosedError."""
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
        """Closes the publisher; after an exception without waiting: unanswered publishes fail."""
        if kind is None:
            await self.close()
            return
        self._finalizer.detach()
        self._stream.abandon()
        await in_thread(self._stream.join)

    async def _admitted(self, attempt: Callable[[], T | None]) -> T:
        """The first true result of `attempt`, which is false or None while the window is full."""
        self._bind()
        async with self._turn:
            if done := attempt():
                return done
            return await self._wait(attempt)

    async def _wait(self, poll: Callable[[], T | None]) -> T:
        """The first true result of `poll`, which is called again after each answer."""
        waker = Waker()
        with self._stream.lock:
            self._stream.wakers.add(waker.wake)
        try:
            return await waker.wait_for(lambda: poll() or None)
        finally:
            with self._stream.lock:
                self._stream.wakers.remove(waker.wake)

    def _bind(self) -> None:
        """Binds the callbacks to the event loop that publishes first."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            for callback in self._callbacks:
                callback.loop = self._loop
