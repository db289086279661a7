"""A bidirectional stream of the broker, from its open to its end.

Invariant: requests are handled in order, and answers leave in order, only after the sync gate (I1).
A fenced stream handles no request that it still receives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from ackq import limits
from ackq.errors import AckqError, BrokerUnavailableError, FencedError
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.in_flight import StreamBytes
from ackq_broker.service.transport.rpc import Read, Write
from ackq_broker.service.transport.stream_buffers import RequestBuffer, ResponseBuffer, alongside

# Answers that a client may leave unread (I6).
UNREAD_ANSWERS: Final = 10_000

# Types of a request, of an answer waiting for the sync, and of a written message.
Q = TypeVar("Q")
A = TypeVar("A")
W = TypeVar("W")


class BrokerStream(ABC, Generic[Q, A, W]):
    """A stream that receives, handles and answers concurrently, until the client half-closes.

    Args:
        engine: Decides and journals commands.
        read: Reads the next request.
        write: Sends a message.
    """

    KIND: ClassVar[str]  # the kind of stream, as operators see it
    AGAIN: ClassVar[str]  # the client's action when the broker is back
    BRINGS: ClassVar[bool] = True  # whether it brings messages: not read while memory is short
    REQUESTS_BYTES: ClassVar[int] = 2 * limits.FRAME_TARGET_BYTES

    def __init__(self, engine: Engine, read: Read[Q], write: Write[W]) -> None:
        self._engine = engine
        self._read = read
        self._write = write
        self._requests = RequestBuffer[Q](self.REQUESTS_BYTES)
        self._responses = ResponseBuffer[A](engine.sync_gate)
        self._fence: AckqError | None = None
        self._in_flight: StreamBytes  # while it is served

    def fence(self, error: AckqError) -> None:
        """Ends the stream with an error before it handles another request."""
        self._fence = error
        self._requests.fail(error)

    async def _serve(self, *others: Coroutine[Any, Any, None]) -> None:
        """Serves an opened stream, alongside other coroutines, until all requests are answered."""
        with (
            self._engine.alarms.listening(self.KIND, self._alarm, self._stop),
            self._engine.in_flight.stream(brings=self.BRINGS) as self._in_flight,
        ):
            await alongside(self._handle_all(), self._receive(), self._send(), *others)

    # --- specific to each kind of stream ---

    @abstractmethod
    def _received(self, request: Q) -> int:
        """Notes a received request; returns its size in bytes."""

    @abstractmethod
    async def _handle(self, requests: list[Q]) -> None:
        """Handles requests that arrived together."""

    async def _answer(self, answers: list[A]) -> None:
        """Writes answers whose sequence is synced."""
        for answer in answers:
            await self._write(answer)  # type: ignore[arg-type] # else it is overridden

    def _alarm(self, reason: str) -> None:
        """Called when publishers are blocked for a reason, or unblocked (empty reason) (P14)."""

    def _wait_s(self) -> float | None:
        """Seconds until `_answer` must be called again at the latest; None: no deadline."""
        return None

    # --- common to all streams ---

    async def _receive(self) -> None:
        """Buffers requests, so that requests that arrive together are handled together."""
        brings, in_flight = self.BRINGS, self._in_flight
        read = partial(in_flight.next, self._read) if brings else self._read
        while (request := await read()) is not None:
            size = self._received(request)
            if brings:
                in_flight.add(size)
            await self._requests.put(request, size)
            del request  # do not keep it while waiting for the next one
        await self._half_closed()

    async def _half_closed(self) -> None:
        self._requests.close()

    async def _handle_all(self) -> None:
        """Handles requests in order until the half-close, then waits for their answers."""
        while requests := await self._requests.take():
            await self._handle(requests)
            del requests  # as in `_receive`
        self._engine.catch_up()  # their answers are due, too
        await self._responses.drained()

    async def _send(self) -> None:
        """Writes answers whose sequence is synced, in order; one turn per sync."""
        while True:
            answers = await self._responses.take(self._wait_s())
            await self._answer(answers)
            self._responses.written(len(answers))

    def _stop(self) -> None:
        self._requests.fail(self._shutting_down())

    def _shutting_down(self) -> BrokerUnavailableError:
        return BrokerUnavailableError(f"The broker is shutting down; {self.AGAIN}.")


def replaced(what: str, name: bytes, go_on: str, attempt: bytes) -> FencedError:
    """The error that fences an older stream of a publisher or a channel (P10, C11)."""
    return FencedError(
        f"A newer stream of {what} {name.hex()} replaced this one; {go_on} on that stream. If "
        f"this process has opened no newer stream, its {what} was copied with it, as on a "
        f"restored machine: open a new {what}.",
        **{what: name.hex(), "attempt": attempt.hex()},
    )
