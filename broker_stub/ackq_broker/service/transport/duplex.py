"""A bidirectional stream of the broker, from its open to its end.

Invariant: requests are handled in their order, and answers leave in theirs, only from behind the
sync gate (I1). A fenced stream handles no request that it still receives.
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

# A request, an answer as it waits for the sync, and a message as it is written.
Q = TypeVar("Q")
A = TypeVar("A")
W = TypeVar("W")


class BrokerStream(ABC, Generic[Q, A, W]):
    """Receives, handles and answers side by side, until the client half-closes.

    Args:
        engine: Decides and journals.
        read: The next request.
        write: Sends a message.
    """

    KIND: ClassVar[str]  # of the stream, as operators see it
    AGAIN: ClassVar[str]  # what the client does when the broker is back
    BRINGS: ClassVar[bool] = True  # messages, so that it is not read from while memory is short
    REQUESTS_BYTES: ClassVar[int] = 4 * limits.FRAME_TARGET_BYTES

    def __init__(self, engine: Engine, read: Read[Q], write: Write[W]) -> None:
        self._engine = engine
        self._read = read
        self._write = write
        self._requests = RequestBuffer[Q](self.REQUESTS_BYTES)
        self._responses = ResponseBuffer[A](engine.sync_gate)
        self._fence: AckqError | None = None
        self._in_flight: StreamBytes  # while it is served

    def fence(self, error: AckqError) -> None:
        """Ends the stream with an error before it handles anything more."""
        self._fence = error
        self._requests.fail(error)

    async def _serve(self, *others: Coroutine[Any, Any, None]) -> None:
        """Serves an opened stream, with other coroutines alongside, until all is answered."""
        with (
            self._engine.alarms.listening(self.KIND, self._alarm, self._stop),
            self._engine.in_flight.stream(brings=self.BRINGS) as self._in_flight,
        ):
            await alongside(self._handle_all(), self._receive(), self._send(), *others)

    # --- what each stream does ---

    @abstractmethod
    def _received(self, request: Q) -> int:
        """Notes a request that came; returns its bytes."""

    @abstractmethod
    async def _handle(self, requests: list[Q]) -> None:
        """Handles requests that came together."""

    async def _answer(self, answers: list[A]) -> None:
        """Writes answers whose sequence is synced."""
        for answer in answers:
            await self._write(answer)  # type: ignore[arg-type] # else it is overridden

    def _alarm(self, reason: str) -> None:
        """Publishers are blocked for this reason; empty: no longer (P14)."""

    def _wait_s(self) -> float | None:
        """Seconds until `_answer` must be called again at the latest; None: it need not."""
        return None

    # --- what all of them do ---

    async def _receive(self) -> None:
        """Buffers requests, so that those that come together are handled together."""
        brings, in_flight = self.BRINGS, self._in_flight
        read = partial(in_flight.next, self._read) if brings else self._read
        while (request := await read()) is not None:
            size = self._received(request)
            if brings:
                in_flight.add(size)
            await self._requests.put(request, size)
            del request  # not to be kept while the next one is waited for
        await self._half_closed()

    async def _half_closed(self) -> None:
        self._requests.close()

    async def _handle_all(self) -> None:
        """Handles requests in their order until the half-close, and until all are answered."""
        while requests := await self._requests.take():
            await self._handle(requests)
            del requests  # as in `_receive`
        await self._responses.drained()

    async def _send(self) -> None:
        """Writes answers whose sequence is synced, in their order: one turn per sync."""
        while True:
            answers = await self._responses.take(self._wait_s())
            await self._answer(answers)
            self._responses.written(len(answers))

    def _stop(self) -> None:
        self._requests.fail(self._shutting_down())

    def _shutting_down(self) -> BrokerUnavailableError:
        return BrokerUnavailableError(f"The broker is shutting down; {self.AGAIN}.")


def replaced(what: str, name: bytes, go_on: str, attempt: bytes) -> FencedError:
    """What ends an older stream of a publisher or a channel: this opening is newer (P10, C11)."""
    return FencedError(
        f"A newer stream of {what} {name.hex()} replaced this one; {go_on} there. If this process"
        f" has no other, it was copied with its {what}, as a machine that is restored is: open a"
        " new one.",
        **{what: name.hex(), "attempt": attempt.hex()},
    )
