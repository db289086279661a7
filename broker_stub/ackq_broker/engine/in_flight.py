"""The bytes in flight, which streams hold for their clients, and the memory alarm (P14).

Invariant: while the alarm is on no stream that brings messages is read from, and everything else is
served. A read takes everything the client sends, so room for it is reserved first: as much as the
stream has brought at once so far. A read without a result may be amid a message, of which gRPC
shows nothing: while memory grows it keeps its room, beyond which one large read goes on at a time.
A client that has brought little can bring more than was reserved; if the process reaches its limit,
the newest streams are ended until it is below.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final, NamedTuple, TypeVar

from ackq import limits
from ackq.errors import AckqError, BrokerUnavailableError

T = TypeVar("T")


class _Marks(NamedTuple):
    """Fractions of the memory limit above which memory is short.

    The memory that the process uses counts while more than `waiting` is in flight: else blocking
    publishers would free nothing, and would never end.
    """

    in_flight: float
    used: float
    waiting: float

    def short(self, used: float, in_flight: float) -> bool:
        """Whether memory is short; both arguments are fractions of the limit."""
        return in_flight > (self.waiting if used > self.used else self.in_flight)


# Where the alarm is turned on, and where it is turned off. Above `used` one read runs at a time.
_ON: Final = _Marks(in_flight=0.25, used=0.75, waiting=0.05)
_OFF: Final = _Marks(in_flight=0.125, used=0.65, waiting=0.025)
# At the limit a tenth of the streams is ended; and the seconds until that has an effect.
_ENDED_PART: Final = 10
_SHOWS_S: Final = 0.1
# Bytes reserved for the read of a stream that has brought nothing yet, and at least for any other
# read. A frame is in memory twice when gRPC hands it over.
_FIRST_BYTES: Final = 16 * limits.MIB
_LEAST_BYTES: Final = 128 * limits.KIB
_COPIES: Final = 2
# A read that has received nothing for `_QUIET_S` gives its turn to the next large one; its room,
# too, if its client is idle: memory has not grown by `_GROWN_PART` since it began, or after
# `_IDLE_S`. A small one gives its room at once.
_QUIET_S: Final = 0.5
_GROWN_PART: Final = 1 / 64
_IDLE_S: Final = limits.STALLED_MS / 1000
# The memory in use is polled at this interval, and when streams have brought this part of the
# limit; much sooner while much is in flight or reads wait. Each poll wakes up the event loop, which
# is noticeable when a client publishes one message at a time.
_POLL_S: Final = 0.25
_POLL_SOON_S: Final = 0.02
_POLLED_PART: Final = 1 / 64


class _Reservation(NamedTuple):
    """A read with room reserved, and the memory in use when it began."""

    began_s: float
    size: int
    used: int


class _Reads:
    """Reads with room reserved, oldest first, and others that wait."""

    def __init__(self) -> None:
        self.running: dict[StreamBytes, _Reservation] = {}
        self.room = 0
        self.waiting: deque[tuple[StreamBytes, asyncio.Future[None]]] = deque()

    def add(self, stream: StreamBytes, read: _Reservation) -> None:
        self.running[stream] = read
        self.room += read.size

    def remove(self, stream: StreamBytes) -> None:
        if stream in self.running:
            self.room -= self.running.pop(stream).size

    def older(self, than_s: float) -> list[tuple[StreamBytes, _Reservation]]:
        reads = self.running.items()
        return list(takewhile(lambda each: each[1].began_s <= than_s, reads))


class InFlight:
    """The bytes that all streams hold, and the gate before reads of streams that bring messages.

    Attributes:
        reason: Why publishers are not read from; empty while the alarm is off.
        limit: Memory that the process may use.
        held: Bytes that were received and not handled yet, or produced and not sent yet.
        used_bytes: Returns the memory that the process uses.

    Args:
        limit: Memory that the process may use.
        used_bytes: Returns the memory that the process uses.
        unsynced_bytes: Returns the bytes that were handled and wait for the disk.
        clock: Monotonic seconds.
        unsynced_limit: Returns how many of these bytes may wait before publishers have to wait.
    """

    def __init__(
        self,
        limit: int,
        used_bytes: Callable[[], int],
        unsynced_bytes: Callable[[], int],
        clock: Callable[[], float],
        unsynced_limit: Callable[[], int] = lambda: limits.MAX_UNSYNCED_BYTES,
    ) -> None:
        self.limit = limit
        self.reason = ""
        self.held = 0
        self.used_bytes = used_bytes
        self._unsynced_bytes = unsynced_bytes
        self._clock = clock
        self._unsynced_limit = unsynced_limit
        # Oldest first.
        self._streams: dict[StreamBytes, None] = {}
        # Small reads pass large ones that wait; quiet ones were large, and had their turn.
        self._small, self._large, self._quiet = _Reads(), _Reads(), _Reads()
        self._ended_s = -_SHOWS_S
        # As of the last poll.
        self._used = used_bytes()
        self._held_then = 0
        self._brought = 0  # since then

    @property
    def poll_s(self) -> float:
        """Seconds until `poll` is to be called again."""
        much = self.held + self._unsynced_bytes() > self.limit * _POLLED_PART
        waiting = self._small.waiting or self._large.waiting
        return _POLL_SOON_S if much or self.reason or waiting else _POLL_S

    def brought(self, size: int) -> None:
        """Counts bytes that a stream brought; polls if they are many, or much is in flight."""
        self._brought += size
        crowded = self.held + self._unsynced_bytes() > self.limit * _ON.in_flight
        if not self.reason and (crowded or self._brought > self.limit * _POLLED_PART):
            self.poll()

    def poll(self) -> str:
        """Turns the alarm on or off; ends streams where that is not enough. Returns `reason`."""
        used, held = self.used_bytes(), self.held + self._unsynced_bytes()
        marks = _OFF if self.reason else _ON
        self._used, self._held_then, self._brought = used, self.held, 0
        self._give_up_quiet()
        self.reason = ""
        if marks.short(used / self.limit, held / self.limit):
            self.reason = (
                f"The broker's memory is short: it uses {used} of {self.limit} bytes; {held} are "
                "on their way to its disk or to consumers. Wait, consume, or start the broker "
                "with a larger --memory-limit."
            )
            self._end_stalled()
        self._end_newest(used)
        self._admit()
        return self.reason

    async def reserve(self, stream: StreamBytes) -> None:
        """Returns when a stream may read its next request; `unreserve` must follow."""
        waiting = self._of(stream).waiting
        if not waiting and self._try_reserve(stream):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append((stream, admitted))
        await admitted

    def unreserve(self, stream: StreamBytes) -> None:
        """Releases the room of a stream's read."""
        for reads in (self._small, self._large, self._quiet):
            reads.remove(stream)
        self._admit()

    @contextmanager
    def stream(self, *, brings: bool) -> Iterator[StreamBytes]:
        """The bytes of the stream that the present task serves; they are released at its end.

        Args:
            brings: Whether the stream brings messages, or takes them.

        Raises:
            BrokerUnavailableError: It was ended because memory is short.
        """
        task = asyncio.current_task()
        assert task is not None
        part = StreamBytes(self, task, self._clock, brings=brings)
        self._streams[part] = None
        try:
            yield part
        except asyncio.CancelledError:
            if part.error is None or task.uncancel():
                raise
            raise part.error from None
        finally:
            del self._streams[part]
            part.remove(part.held)

    def _admit(self) -> None:
        """Admits waiting reads in order, as far as there is room for the bytes they may bring."""
        for waiting in (self._small.waiting, self._large.waiting):
            while waiting:
                stream, admitted = waiting[0]
                if not admitted.done():
                    if not self._try_reserve(stream):
                        break
                    admitted.set_result(None)
                waiting.popleft()

    def _try_reserve(self, stream: StreamBytes) -> bool:
        """Reserves the bytes that a stream's next read may bring; False if there is no room."""
        size = stream.expected
        room = self.limit * _ON.used - self._used - max(self.held - self._held_then, 0)
        small, large = self._small, self._large
        if self._of(stream) is small:
            fits = not (small.room or large.room) or small.room + large.room + size <= room
        else:
            fits = not large.room or small.room + large.room + self._quiet.room + size <= room
        if self.reason or not fits:
            return False
        self._of(stream).add(stream, _Reservation(self._clock(), size, self._used))
        return True

    def _of(self, stream: StreamBytes) -> _Reads:
        return self._small if stream.expected <= _LEAST_BYTES else self._large

    def _give_up_quiet(self) -> None:
        """Passes on turn and room of reads that have received nothing for a while."""
        now_s = self._clock()
        for stream, _ in self._small.older(now_s - _QUIET_S):
            self._small.remove(stream)
        for stream, read in self._large.older(now_s - _QUIET_S):
            self._large.remove(stream)
            self._quiet.add(stream, read)
        for stream, read in tuple(self._quiet.running.items()):
            grown = self._used - read.used > self.limit * _GROWN_PART
            if not grown or read.began_s <= now_s - _IDLE_S:
                self._quiet.remove(stream)

    def _end_newest(self, used: int) -> None:
        """Ends the newest streams that bring messages, if the process is over its limit."""
        if used > self.limit and self._clock() >= self._ended_s + _SHOWS_S:
            self._ended_s = self._clock()
            bringing = [stream for stream in self._streams if stream.brings]
            for stream in bringing[-max(1, len(bringing) // _ENDED_PART) :]:
                stream.end("it is one of the newest streams")

    def _end_stalled(self) -> None:
        """Ends streams that hold bytes and do not move, unless the disk is what they wait for."""
        if self._unsynced_bytes() > self._unsynced_limit():
            return
        since_s = self._clock() - limits.STALLED_MS / 1000
        for stream in self._streams:
            if stream.held and stream.moved_s < since_s:
                stream.end(f"nothing moved on it for {limits.STALLED_MS} ms")


class StreamBytes:
    """The bytes that one stream holds.

    Attributes:
        held: Number of bytes.
        moved_s: When `held` changed last.
        brings: Whether the stream brings messages.
        expected: Number of bytes that its next read may bring.
        error: Why it was ended; None if it was not.
    """

    def __init__(
        self,
        in_flight: InFlight,
        task: asyncio.Task[object],
        clock: Callable[[], float],
        *,
        brings: bool,
    ) -> None:
        self.held = 0
        self.moved_s = clock()
        self.brings = brings
        self.expected = _FIRST_BYTES
        self._largest = 0
        self.error: AckqError | None = None
        self._in_flight = in_flight
        self._task = task
        self._clock = clock

    async def next(self, read: Callable[[], Awaitable[T]]) -> T:
        """Calls `read` once the stream may be read from, and returns its result."""
        try:
            await self._in_flight.reserve(self)
            return await read()
        finally:
            self._in_flight.unreserve(self)

    def add(self, size: int) -> None:
        """Adds bytes that were received, or produced to be sent."""
        self._largest = max(self._largest, size)
        self.expected = max(_LEAST_BYTES, _COPIES * self._largest)
        self._change(size)
        self._in_flight.brought(size)

    def remove(self, size: int) -> None:
        """Removes bytes that were handled, or sent."""
        self._change(-size)

    def end(self, why: str) -> None:
        """Ends the stream, with an error that gives the reason `why`."""
        if self.error is None:
            self.error = BrokerUnavailableError(
                f"The broker's memory is short, and this stream was ended: {why}. Send the "
                "unanswered requests again."
            )
            self._task.cancel()

    def _change(self, by: int) -> None:
        self.held += by
        self._in_flight.held += by
        self.moved_s = self._clock()
