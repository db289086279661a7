"""The client of a process that runs a link, on an asyncio event loop.

Invariant: no method blocks the event loop; the stream's threads wake it by `call_soon_threadsafe`.
Permits to acknowledge at the remote broker come from `permits` alone, in the one order in which the
edge gave them (L10).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self, TypeVar

import pyarrow as pa

from ackq.client.connection.broker import Broker
from ackq.client.event_loop import Waker, in_thread
from ackq.errors import AckqError, InvalidArgumentError, PreconditionFailedError
from ackq.v1 import links_pb2 as pb
from ackq.v1 import sessions_pb2
from ackq_link.edge.deliveries import (
    Columns,
    Complete,
    Permits,
    Proof,
    StoredDeliveries,
    parts,
)
from ackq_link.edge.stream import LinkStream

T = TypeVar("T")
R = TypeVar("R")

ACKS: Final = {"settled": pb.LINK_ACK_SETTLED, "stored": pb.LINK_ACK_STORED}


class AsyncLink:
    """An inbound link's connection to the edge; for coroutines of one event loop.

    It reconnects by itself: unanswered deliveries are sent again under their numbers, so a cut to
    the edge duplicates nothing (L5). Deliveries that the edge refuses for a while, because its
    queue or disk is full or it is being drained, are sent again until it takes them; `refusal` is
    the reason.

        >>> from ackq_link.edge import AsyncLink, Proof
        >>> async def main():
        ...     there = {"link": "there", "source": "amqp://there/orders", "queue": "orders"}
        ...     async with AsyncLink(endpoint, **there, ack="stored") as link:
        ...         await link.subscribe(Proof)  # nothing is proven yet
        ...         rows = pa.record_batch({"body": [b"d", b"e"]})
        ...         stored = await link.store(1, rows, keys=bytes(32), checks=bytes(16))
        ...         return stored.rows, (await link.permits()).ranges
        >>> asyncio.run(main())
        (2, [Range(first=1, last=2)])

    A link that another process took over, that was removed, or whose edge lost its history, has
    failed for good: every call raises the reason.

    Args:
        endpoint: The edge. `host:port` stands for a `Broker` without security or retry bound.
        link: The link's name.
        source: The remote broker's queue, in words without credentials; the same for the life of
            the link.
        queue: The queue of the edge.
        ack: What the acknowledgement at the remote broker waits for: `settled` or `stored` (L9).
        drop_ambiguous: Match a delivery with a message of the same content whose acknowledgement is
            in doubt, instead of storing it (L7).
        reject_there: Messages rejected at the edge are rejected at the remote broker, and are not
            dead letters of the edge; not with `stored` (L28).
        application: Shown to operators.

    Attributes:
        queue: As given.

    Raises:
        InvalidArgumentError: A bad address or certificate, or no such `ack`.
    """

    def __init__(
        self,
        endpoint: str | Broker,
        *,
        link: str,
        source: str,
        queue: str,
        ack: str = "settled",
        drop_ambiguous: bool = False,
        reject_there: bool = False,
        application: str = "ackq-broker link",
    ) -> None:
        if ack not in ACKS:
            raise InvalidArgumentError(
                f"'ack' is '{ack}'; it must be one of {', '.join(ACKS)}.", argument="ack"
            )
        holder = sessions_pb2.Holder(
            token=secrets.token_bytes(16),
            host=socket.gethostname(),
            pid=os.getpid(),
            application=application,
        )
        opening = pb.LinkOpen(
            link=link,
            holder=holder,
            source=source,
            queue=queue,
            ack=ACKS[ack],
            drop_ambiguous=drop_ambiguous,
            reject_there=reject_there,
        )
        broker = endpoint if isinstance(endpoint, Broker) else Broker(endpoint, retry_ms=None)
        self.queue = queue
        self._stream = LinkStream(broker, opening)
        self._state = self._stream.state
        self._told = self._snapshot()
        self._finalizer = weakref.finalize(self, self._stream.abandon)

    async def __aenter__(self) -> Self:
        """Opens the link, as soon as the edge is reachable.

        Raises:
            AlreadyHeldError: Another process runs it.
            AckqError: The edge refuses it.
        """
        self._stream.begin()
        try:
            await self._wait(lambda: self._state.opened)
        except BaseException:
            self._stream.abandon()
            raise
        self._told = self._snapshot()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the link."""
        await self.close()

    async def close(self) -> None:
        """Ends the stream; pending calls fail, and another process may run the link."""
        self._finalizer.detach()
        await in_thread(self._stream.end)

    # --- deliveries ---

    async def subscribe(self, proof: Callable[[], Proof]) -> int:
        """Begins a subscription, whose deliveries count from 1; the previous one ends (L17).

        Args:
            proof: Returns the acknowledgements of this subscription that the remote broker provably
                applied (L10); called on another thread.

        Returns:
            The number of the subscription.

        Raises:
            AckqError: The link has failed or was closed.
        """
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with self._stream.lock:
            self._stream.check()
            self._state.subscribe(proof, _resolver(result))
            self._stream.changed()
        return await result

    async def store(
        self,
        first_number: int,
        rows: pa.RecordBatch,
        *,
        keys: bytes,
        checks: bytes,
        content: Sequence[bool] | None = None,
        redelivered: Sequence[bool] | None = None,
        at_once: Sequence[bool] | None = None,
    ) -> StoredDeliveries:
        """Stores or matches deliveries, and waits until they are on the disk of the edge (L5).

        Several calls may be in flight; they are stored in the order of the calls. The deliveries of
        a cancelled call are stored nevertheless.

        Args:
            first_number: The number of the first row's delivery; it follows the previous delivery.
            rows: The messages, as `Publisher.publish_batch` takes them, without times to live.
            keys: 16 bytes for each row: its origin key, zeros for none (L2).
            checks: 8 bytes for each row: of its fingerprint (L4).
            content: Per row, whether its key is of its content (L7); None: of no row.
            redelivered: Per row, whether the remote broker marked the delivery redelivered.
            at_once: Per row, whether it may be acknowledged when it is stored, whatever the link
                waits for (L15); None: no row.

        Raises:
            InvalidArgumentError, SchemaError, MessageTooLargeError: The arguments are invalid;
                nothing was sent.
            ClosedError: Another subscription began, the edge ended this one, or the link was
                closed.
            AckqError: The link has failed.
        """
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[StoredDeliveries]] = []

        def complete() -> Complete:
            waiting.append(loop.create_future())
            return _resolver(waiting[-1])

        beside = Columns(keys, checks, content, redelivered, at_once)
        made = list(parts(first_number, rows, beside, self.queue, complete))
        with self._stream.lock:
            self._stream.check()
            if self._state.ended is not None:
                raise self._state.ended
            if not self._state.may_store:
                raise PreconditionFailedError("There is no subscription: subscribe first.")
            self._state.add(made)
            self._stream.changed()
        answers = await asyncio.gather(*waiting)
        return StoredDeliveries(tuple(run for answer in answers for run in answer.runs))

    async def permits(self) -> Permits:
        """Takes the permits to acknowledge or reject at the remote broker; waits for at least one.

        Each number of a subscription comes once, in the order in which it is to be settled.

        Raises:
            ClosedError: The edge ended the subscription.
            AckqError: The link has failed or was closed, and all permits were taken.
        """

        def taken() -> Permits | None:
            if self._state.permits:
                return Permits(self._state.subscription, *self._state.take_permits())
            if self._state.ended is not None:
                raise self._state.ended
            return None

        return await self._wait(taken)

    async def refresh(self) -> None:
        """Waits for a fresh state report from the edge: the permits and the held count as of now.

        Raises:
            AckqError: The link has failed or was closed.
        """
        with self._stream.lock:
            number = self._state.refresh()
            self._stream.changed()

        def told() -> bool | None:
            return self._state.refreshed(number) or None

        await self._wait(told)

    def report(self, report: pb.LinkReport) -> None:
        """Sets the link process's report to operators, sent with each heartbeat from now on."""
        with self._stream.lock:
            self._state.report = report

    # --- how it stands ---

    @property
    def subscription(self) -> int:
        """The number of the present subscription; 0 before the first."""
        return self._state.subscription

    @property
    def incarnation(self) -> str:
        """The link's incarnation; empty before the first open."""
        return self._state.opened.incarnation if self._state.opened else ""

    @property
    def epoch(self) -> int:
        """The epoch of this holder; 0 before the first open."""
        return self._state.opened.epoch if self._state.opened else 0

    @property
    def history(self) -> str:
        """The history of the edge; empty before the first open."""
        return self._state.opened.history if self._state.opened else ""

    @property
    def paused(self) -> bool:
        """Whether an operator paused the link: it takes no messages, but still acknowledges."""
        return self._state.paused

    @property
    def held(self) -> int:
        """Number of unsettled deliveries of the subscription, as last reported by the edge."""
        return self._state.held

    @property
    def missing(self) -> int:
        """Number of held messages not redelivered to this subscription, as last reported."""
        return self._state.missing

    @property
    def refusal(self) -> AckqError | None:
        """Why the edge refuses deliveries for now; None while it accepts them."""
        return self._state.refusal

    @property
    def connected(self) -> bool:
        """Whether the link has a stream to the edge now."""
        return self._state.connected

    @property
    def outage(self) -> AckqError | None:
        """Why the last call to the edge ended; None while one is open, or if none has ended."""
        return self._stream.outage

    async def changed(self) -> None:
        """Waits until `paused`, `held`, `refusal` or `connected` differs from the last call.

        Raises:
            AckqError: The link has failed or was closed.
        """

        def news() -> bool | None:
            before, self._told = self._told, self._snapshot()
            return before != self._told or None

        await self._wait(news)

    def _snapshot(self) -> tuple[object, ...]:
        state = self._state
        refusal = state.refusal.code if state.refusal is not None else ""
        return state.paused, state.held, refusal, state.connected

    async def _wait(self, poll: Callable[[], T | None]) -> T:
        """The first non-None result of `poll`, called under the lock after each answer."""
        waker = Waker()

        def asked() -> T | None:
            with self._stream.lock:
                found = poll()
                if found is None:
                    self._stream.check()
            return found

        with self._stream.lock:
            self._stream.wakers.add(waker.wake)
        try:
            return await waker.wait_for(asked)
        finally:
            with self._stream.lock:
                self._stream.wakers.remove(waker.wake)


def _resolver(future: asyncio.Future[R]) -> Callable[[R | AckqError], None]:
    """A callback that sets a future's result, or its error, from any thread."""
    loop = future.get_loop()

    def give(result: R | AckqError) -> None:
        if future.done():
            return  # the coroutine that waited for it was cancelled
        if isinstance(result, AckqError):
            future.set_exception(result)
            future.exception()  # nobody need wait for it
        else:
            future.set_result(result)

    def resolve(result: R | AckqError) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(partial(give, result))

    return resolve
