"""A publisher's stream in either mode: open, fencing, requests, answers, backpressure, end.

Invariant: a publisher id has one live stream; requests that a fenced stream still receives are not
handled (P10).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ackq import limits
from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    UnroutableError,
)
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands, views
from ackq_broker.core.checks import plural
from ackq_broker.engine.engine import Engine
from ackq_broker.security.callers import check_parts, current
from ackq_broker.service.blocks import coalescing, ingest, validation
from ackq_broker.service.transport.duplex import UNREAD_ANSWERS, BrokerStream, replaced
from ackq_broker.service.transport.fields import (
    check_attempt,
    check_id,
    error_detail,
    shorten,
)
from ackq_broker.service.transport.rpc import Denied, Read, Write

Request = frame.Frame[pb.PublishHeader]
Response = frame.Frame[pb.PublishAnswer]
Numbers = npt.NDArray[np.uint64]
# The answers that wait for the sync; their type depends on the mode.
A = TypeVar("A")

# Above this size, validating a frame takes longer than handing it to a thread (about 0.1 ms).
_THREAD_BYTES: Final = 64 * limits.KIB
# Bytes of returns, which hold messages, that a client may leave unread.
_RETURNED_BYTES: Final = 2 * limits.FRAME_TARGET_BYTES
# Time for requests that arrived together on one stream, before the other streams have a turn.
_TURN_S: Final = 0.005


class PublisherInfo(NamedTuple):
    """A publisher with a stream, as an operator sees it.

    `publisher` is a digest of its id, which only its owner may see (A10). `unsent_answers` counts
    answers that wait for the disk or the client; `blocked` is why the publisher is blocked (P14),
    empty if it is not; `since_us` is when the stream began.
    """

    publisher: str
    label: str
    transactional: bool
    unsent_answers: int
    blocked: str
    since_us: int


class PublisherStream(BrokerStream[Request, A, Response]):
    """A publisher's stream, from its open to its end.

    Args:
        engine: Decides and journals commands.
        live: The live stream of each publisher id, shared by all streams: a newer stream fences the
            older one (P10).
        opening: The result of `read_opening`.
        read: Reads the next request.
        write: Sends an answer.
    """

    KIND: ClassVar[str] = "publish"
    AGAIN: ClassVar[str] = "publish the unanswered messages again when it is back"
    TRANSACTIONAL: ClassVar[bool]

    def __init__(
        self,
        engine: Engine,
        live: dict[bytes, PublisherStream[A]],
        opening: pb.PublishHeader,
        read: Read[Request],
        write: Write[Response],
    ) -> None:
        super().__init__(engine, read, write)
        self._live = live
        self._opening = opening.open
        self._shown = max(opening.lowest_unanswered, 1)
        self._publisher_id = opening.open.publisher_id
        self._returned_bytes = 0
        self._blocked = ""
        self._since_us = engine.clock.now_us()
        self._finished = False  # the client sent a close: it will not come back

    @property
    def info(self) -> PublisherInfo:
        """The publisher as an operator sees it."""
        return PublisherInfo(
            publisher=blake2b(self._publisher_id, digest_size=8).hexdigest(),
            label=shorten(self._opening.label),
            transactional=self.TRANSACTIONAL,
            unsent_answers=len(self._responses),
            blocked=self._blocked,
            since_us=self._since_us,
        )

    async def run(self) -> None:
        """Serves the stream until the client half-closes and every request is answered.

        Raises:
            AckqError: The stream ends with this status.
        """
        # Decided first: a stream that is refused, for instance for its mode, fences no other.
        shown, opened = self._engine.decide(
            commands.OpenPublisher(
                self._publisher_id,
                self._opening.resume,
                shorten(self._opening.label),
                self.TRANSACTIONAL,
                current.get().user,
                self._shown,
                self._opening.next_number,
                self._opening.attempt,
                tuple(self._opening.attempts_before),
            )
        )
        self._shown = max(self._shown, shown)
        older = self._live.get(self._publisher_id)
        if older is not None:
            older.fence(replaced("publisher", self._publisher_id, "publish", self._opening.attempt))
            self._engine.buffering.discard(self._publisher_id)
        self._live[self._publisher_id] = self
        try:
            await self._engine.sync_gate.wait(opened)
            await self._write(_opened(self._engine))
            await self._serve()
        finally:
            if self._live.get(self._publisher_id) is self:
                del self._live[self._publisher_id]
                self._engine.buffering.discard(self._publisher_id)
                self._engine.end(commands.ClosePublisherStream(self._publisher_id, self._finished))
        if self._engine.alarms.stopping:
            raise self._shutting_down()

    @property
    def blocked(self) -> bool:
        """Whether the publisher is blocked (P14)."""
        return bool(self._blocked)

    # --- implemented by each mode ---

    @abstractmethod
    async def _handle_group(self, group: list[Request]) -> None:
        """Handles one request, or data frames that arrived together."""

    @abstractmethod
    def _notify(self, answer: Response) -> None:
        """Queues an answer that depends on no record."""

    # --- requests ---

    def _received(self, request: Request) -> int:
        return coalescing.size_of(request)

    def _stop(self) -> None:
        self._requests.close()  # requests already received are answered

    async def _handle(self, requests: list[Request]) -> None:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        for group in coalescing.groups(requests):
            if clock() > began_s + _TURN_S:
                await asyncio.sleep(0)  # let the other streams run
                began_s = clock()
            if self._fence is not None:
                break  # the next take raises
            await self._handle_next(group)
            self._in_flight.remove(sum(map(coalescing.size_of, group)))

    async def _handle_next(self, group: list[Request]) -> None:
        """Handles the next request or group of frames; a close must be the last (P10)."""
        if self._finished:
            self._finished = False  # the publisher goes on, and may send its publishes again
            raise InvalidArgumentError("A publisher sent more after its close; open another one.")
        if group[0].header.WhichOneof("kind") == "close":
            self._finished = True
        else:
            await self._handle_group(group)

    async def _prepare(self, group: list[Request]) -> ingest.Prepared | None:
        """The parts and refusals of frames that arrived together; None if the stream was fenced.

        If fenced, the next take raises, and the publisher sends the rows again on the newer stream.
        The caller may publish every part: if one is denied, none is published (A3).

        Raises:
            PermissionDeniedError: The caller may not publish to a target of a row.
        """
        await self._read_answers()
        await self._backpressure()
        exchange = group[0].header.data.exchange
        large = sum(len(request.block) for request in group) > _THREAD_BYTES
        while True:
            kind = views.exchange_kind(self._engine.core.state, exchange)
            work = partial(_prepared, group, self._engine.clock.now_us(), ingest.PART_KEYS[kind])
            prepared = await self._engine.run(work) if large else work()
            if (
                kind != "fanout" or views.exchange_kind(self._engine.core.state, exchange) == kind
            ):  # else it was declared again in the meantime, and needs the keys
                await check_parts(exchange, [part.routes for part in prepared.parts])
                return prepared if self._fence is None else None

    async def _ready(self, exchange: str, part: ingest.PreparedPart) -> bool:
        """Waits until a part can be decided in one step; False if fenced, as for `_prepare`."""
        await self._engine.ready(exchange, part.routes)
        return self._fence is None

    def _return(
        self, numbers: Numbers, rows: validation.Rows, part: ingest.PreparedPart, exchange: str
    ) -> Response:
        """Builds the return of a part's unroutable rows, with their messages (P7)."""
        block = ingest.take(part.block, rows)
        self._returned_bytes += len(block)
        return return_of(numbers.tolist(), exchange, block)

    # --- flow control (P14) ---

    async def _read_answers(self) -> None:
        """Backpressure: waits while the client leaves too many answers unread (I6)."""
        if self._returned_bytes > _RETURNED_BYTES or len(self._responses) > UNREAD_ANSWERS:
            await self._responses.drained()
            self._returned_bytes = 0

    async def _backpressure(self) -> None:
        """Backpressure: waits while too many bytes are not on disk (P14)."""
        journal = self._engine.journal
        if journal.unsynced_bytes <= journal.unsynced_limit:
            return
        self._alarm(
            f"{journal.unsynced_bytes} bytes wait for the broker's disk; the limit is "
            f"{journal.unsynced_limit}, as much as the disk takes in two seconds."
        )
        await self._engine.wait_writable()
        self._alarm(self._engine.alarms.reason)

    def _alarm(self, reason: str) -> None:
        """Notifies the publisher why it is blocked; an empty reason: it is unblocked."""
        known, self._blocked = self._blocked, reason
        if reason == known:
            return
        answer = pb.PublishAnswer(unblocked=pb.PublishUnblocked())
        if reason:
            answer = pb.PublishAnswer(blocked=pb.PublishBlocked(reason=reason))
        self._notify(frame.Frame(answer))


async def read_opening(read: Read[Request]) -> pb.PublishHeader:
    """Reads the first request of a stream; raises InvalidArgumentError if it is not an open."""
    request = await read()
    if isinstance(request, Denied):
        raise request.error
    if request is None or request.header.WhichOneof("kind") != "open":
        raise InvalidArgumentError("The first request on a publish stream must be an open.")
    opening = request.header.open
    check_id("A publisher id", opening.publisher_id)
    check_attempt(opening.attempt)
    return request.header


def numbers_of(group: list[Request]) -> Numbers:
    """The publish number of each row of data frames; raises InvalidArgumentError."""
    for request in group:
        first = request.header.data.first_number
        check_numbers(first, first + coalescing.rows_of(request) - 1)
    return coalescing.numbers_of(group)


def check_numbers(first: int, last: int) -> None:
    """Checks the range of publish numbers; raises InvalidArgumentError."""
    if not 1 <= first <= limits.LARGEST_NUMBER or last > limits.LARGEST_NUMBER:
        raise InvalidArgumentError(
            f"Publish numbers start at 1 and end at 2^62; this request names {first} to {last}."
        )


def return_of(numbers: Sequence[int], exchange: str, block: bytes = b"") -> Response:
    """Builds the return of unroutable messages; `block` is empty in a repeated one (P7, P13)."""
    reason = UnroutableError(
        f"No queue is bound to {exchange or 'the default exchange'} for the routing key of"
        f" {plural(len(numbers), 'message')}; declare the queue or the binding first.",
        exchange=exchange,
    )
    answer = pb.PublishReturn(numbers=numbers, reason=error_detail(reason))
    return frame.Frame(pb.PublishAnswer(returned=answer), block)


def too_many_rows(group: list[Request]) -> AckqError | None:
    """The refusal of frames with too many rows, before they are decoded; None if accepted."""
    return validation.too_many_rows(sum(map(coalescing.rows_of, group)))


def _prepared(group: list[Request], now_us: int, part_keys: int) -> ingest.Prepared:
    return ingest.prepare(*coalescing.coalesce(group, now_us), now_us, part_keys=part_keys)


def _opened(engine: Engine) -> Response:
    opened = pb.PublishOpened(
        history_id=engine.history_id,
        max_frame_bytes=limits.MAX_FRAME_BYTES,
        max_message_bytes=limits.MAX_MESSAGE_BYTES,
        commit_with_data=True,
    )
    return frame.Frame(pb.PublishAnswer(opened=opened))
