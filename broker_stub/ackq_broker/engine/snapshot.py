"""Snapshots taken during live traffic; they contain the broker's time and the core's state.

    +-------------------------+------+
    | broker time, us, u64 LE | Core |
    +-------------------------+------+

The core's cut is encoded on the event loop, a slice at a time. A thread would gain nothing, since
encoding holds the interpreter's lock in any thread, and would need locks around all state. Work
that needs no such lock, checksum and disk, is done in the journal's thread.

Invariants: the loop is not blocked for much longer than a slice, and is free for others between
two; the clock of a broker that starts from a snapshot begins no earlier than its time (Q8).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from ackq import limits
from ackq.errors import ClosedError
from ackq_broker.core.core import Core
from ackq_broker.core.snapshot.cut import Cut
from ackq_broker.engine.clock import BrokerClock
from ackq_broker.engine.events import event
from ackq_broker.journal import Backup, Journal

_log = logging.getLogger(__name__)

T = TypeVar("T")

_TIME: Final = struct.Struct("<Q")
# How long the loop may be blocked at once: a small state is encoded in the first slice.
_SLICE_S: Final = 0.003
# The pause between two slices is as long as a lone publish takes from its arrival to its answer. A
# client that waits for each answer decides far more often than `_LATELY_S`.
_PAUSE_S: Final = 0.001
_LATELY_S: Final = 0.1
_CHUNK_BYTES: Final = limits.MIB


def pack_time(now_us: int) -> bytes:
    """The head of a snapshot, before the core's state: a broker time in microseconds."""
    return _TIME.pack(now_us)


def unpack_state(data: bytes) -> tuple[Core, int]:
    """The core of a snapshot, and its broker time in microseconds.

    Raises:
        UnsupportedError: A newer broker wrote it.
    """
    (now_us,) = _TIME.unpack_from(data)
    return Core.restore(data[_TIME.size :]), now_us


class Pacing:
    """Pauses between the slices of long work, in which short requests pass (I6).

    A short request takes several turns of the event loop: its arrival, its decision, the end of its
    sync, its answer. If each turn ran a slice, the request would wait for several slices. Without
    short requests there are no pauses.

    Args:
        clock: Monotonic seconds.

    Attributes:
        decisions: The number of all decisions.
        long: The number of decisions that were long work.
    """

    __slots__ = ("_clock", "_short", "_until_s", "decisions", "long")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.decisions = self.long = 0
        self._short = 0
        self._until_s = 0.0

    def pause_s(self) -> float:
        """Seconds until the next slice of long work; 0 if no short decision was made lately."""
        short = self.decisions - self.long
        if short != self._short:
            self._short, self._until_s = short, self._clock() + _LATELY_S
        return _PAUSE_S if self._clock() < self._until_s else 0.0


class _Chunks:
    """The bytes of a snapshot on their way to the journal's thread, which waits for them."""

    def __init__(self) -> None:
        self._queue = SimpleQueue[bytes | None]()
        self._ended = False

    def put(self, chunk: bytes) -> None:
        self._queue.put(chunk)

    def end(self) -> None:
        self._ended = True
        self._queue.put(None)

    def abandon(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := self._queue.get()) is not None:
            yield chunk
        if not self._ended:
            raise ClosedError("The snapshot was abandoned before it was complete.")


class _Encoding:
    """A cut that is being encoded, after `head`, into chunks for the journal."""

    def __init__(self, head: bytes, cut: Cut) -> None:
        self.chunks = _Chunks()
        self.cut = cut
        self._pieces = cut.pieces()
        self._chunk = bytearray(head)

    def go_on(self, seconds: float) -> None:
        """Encodes until the whole cut is encoded, which closes it, or the time is over."""
        deadline = time.perf_counter() + seconds
        for piece in self._pieces:
            self._chunk += piece
            if len(self._chunk) >= _CHUNK_BYTES:
                self.chunks.put(bytes(self._chunk))
                self._chunk.clear()
            if time.perf_counter() > deadline:
                return
        self.chunks.put(bytes(self._chunk))
        self.chunks.end()

    def abandon(self) -> None:
        """Ends the encoding without a snapshot."""
        self.cut.close()
        self.chunks.abandon()


class Snapshots:
    """Takes snapshots of a core, one at a time, and gives them to the journal.

    Args:
        core: The state.
        journal: Writes snapshots in a thread.
        clock: The broker's clock.
        or_fail: Wraps callbacks of the event loop (`Engine.or_fail`).
        run: Runs blocking work in a thread (`Engine.run`).
        pause_s: Seconds between two slices (`Pacing.pause_s`).
    """

    def __init__(
        self,
        core: Core,
        journal: Journal,
        clock: BrokerClock,
        or_fail: Callable[[Callable[[], object]], Callable[[], None]],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        pause_s: Callable[[], float],
    ) -> None:
        self._core = core
        self._journal = journal
        self._clock = clock
        self._run = run
        self._pause_s = pause_s
        self._step = or_fail(self._next_slice)
        self._finish = or_fail(partial(self._encode, float("inf")))
        self._encoding: _Encoding | None = None
        self._written: Future[Any] = Future()

    def write(self) -> Future[None]:
        """Begins a snapshot of the present state; one that is being encoded is finished first.

        It bounds the next recovery. A failure is logged: the previous snapshot stays in force.

        Returns:
            As `Journal.write_snapshot`.
        """
        written = self._begin(self._journal.write_snapshot)
        written.add_done_callback(partial(_log_snapshot, self._core.sequence))
        return written

    async def back_up(self, target: Path) -> Backup:
        """Makes a backup of the present state, in a directory that does not exist yet (O5).

        A snapshot that is being encoded is waited for: to finish it here would stop the loop.

        Raises:
            PreconditionFailedError: There is a directory of that name.
            OSError: The backup was not made.
        """
        while self._encoding is not None:
            await asyncio.wait((asyncio.wrap_future(self._written),))
        return await asyncio.wrap_future(
            self._begin(lambda state, sequence: self._journal.back_up(state, sequence, target))
        )

    async def forget_lost(self) -> None:
        """Writes a snapshot without the lost blocks, so that recovery does not find them again."""
        try:
            await asyncio.wrap_future(self.write())
        except OSError:
            return  # it was logged; the next start drops the blocks again, which is idempotent
        await self._run(self._journal.forget_lost)

    async def delete_segments(self) -> None:
        """Writes a snapshot if that deletes a segment; in an idle broker nothing else does."""
        if await self._run(lambda: self._journal.deletable_segments):
            await asyncio.wrap_future(self.write())

    def _begin(self, store: Callable[[Iterable[bytes], int], Future[T]]) -> Future[T]:
        self._finish()
        encoding = self._encoding = _Encoding(pack_time(self._clock.now_us()), self._core.cut())
        self._written = written = store(encoding.chunks, self._core.sequence)
        self._step()
        return written

    def abandon(self) -> None:
        """Ends a snapshot that is being encoded: the previous one stays in force."""
        if self._encoding is not None:
            self._encoding.abandon()
            self._encoding = None

    def _next_slice(self) -> None:
        self._encode(_SLICE_S)
        if self._encoding is not None:
            asyncio.get_running_loop().call_later(self._pause_s(), self._step)

    def _encode(self, seconds: float) -> None:
        """Encodes for a time slice; abandons a snapshot whose writing has already ended.

        One that fails is abandoned, too: what was encoded of it must not count as the whole.
        """
        if self._written.done():
            self.abandon()
        elif self._encoding is not None:
            try:
                self._encoding.go_on(seconds)
            except BaseException:
                self.abandon()
                raise
            if not self._encoding.cut.open:
                self._encoding = None


def _log_snapshot(sequence: int, written: Future[None]) -> None:
    if (error := written.exception()) is not None:
        _log.error("no snapshot was written: %s", error, extra=event("snapshot_failed"))
    else:
        _log.debug(
            "a snapshot was written after record %d",
            sequence,
            extra=event("snapshot", sequence=sequence),
        )
