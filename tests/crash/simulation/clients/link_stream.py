"""The real `AsyncLink` on the simulated network: its stream's threads are tasks of a virtual loop.

All decisions of the connector about a link's stream stay real: the opening, the state machine,
which errors may be retried. Only the transport of bytes, and the waits for it, are replaced.
"""

import asyncio
from types import SimpleNamespace

from ackq.client.connection import errors, retry
from ackq.client.connection.duplex import Finish, Wait
from ackq.errors import AckqError, from_code
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.link import AsyncLink
from ackq_link.edge.stream import LinkStream
from tests.crash.simulation.network import Cut, Refused

_END_S = 5.0
# It soon stops waiting while another process runs the link, as others remember its messages for
# less.
_HELD_MS = 300


class SimulatedLinkStream(LinkStream):
    """The stream of a link's process.

    Args:
        broker: Its endpoint is the process whose loop, connections and random generator it uses.
        opening: The first request of each call.
    """

    def __init__(self, broker, opening):
        super().__init__(broker, opening)
        self._process = process = broker.endpoint
        self._work = asyncio.Event()
        self._changed = SimpleNamespace(notify_all=self._work.set)
        clock = {"clock": process.now_s, "jitter": process.rng.random}
        self._backoff = retry.Backoff(broker.retry_ms, **clock)
        self._held = retry.HolderBackoff(retry.Backoff(_HELD_MS, **clock))
        self._task = None
        self.wakers = _Wakers()

    def _start(self):
        self._task = asyncio.get_running_loop().create_task(self._live())

    def _end(self, *, answered):
        """Waits for nothing; `gone` waits."""

    async def gone(self):
        """Returns when the stream has ended; abandons it after a time."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_END_S)
            self.abandon()

    async def _live(self):
        try:
            self._on_end(await self._calls())
        except AckqError as error:
            self._on_end(error)

    async def _calls(self):
        while True:
            error = await self._one_call()
            if error is None or self._abandoned:
                return None
            if not self._may_reconnect(error):
                return error
            wait_s = self._reconnect_wait_s()
            if wait_s is None:
                return self._given_up(error)
            until_s = self._process.now_s() + wait_s
            while not (self._abandoned or self._state.done):
                left_s = until_s - self._process.now_s()
                if left_s <= 0:
                    break
                await self._wait(left_s)

    async def _one_call(self):
        if self._abandoned or self._state.done:
            return None
        connection = self._process.connect()
        self._call = SimpleNamespace(cancel=connection.cut)
        error = sender = None
        try:
            stream = connection.open("Link")
            sender = asyncio.get_running_loop().create_task(self._send_all(stream))
            while (answer := await stream.read()) is not None:
                self._on_answer(answer)
        except Cut:
            error = errors.unavailable("the edge", "cut")
        except Refused as refusal:
            error = _error_of(refusal)
        except AckqError as broken:
            error = broken
        finally:
            if sender is not None:
                sender.cancel()
            late_s = self._process.late_s()
            if not connection.client_cut:  # else the local broker notices when it was to
                connection.cut(server_after_s=late_s)
            self._call = None
            done = self._state.done
            self._on_disconnect()
        if error is None and not done:
            error = errors.unavailable("the edge", "the broker ended the stream")
        self._outage = error
        return error

    async def _send_all(self, stream):
        try:
            self._opening.attempt = self._attempts.new()
            await stream.write(pb.LinkRequest(header=pb.LinkHeader(open=self._opening)))
            while True:
                now = self._process.now_s()
                action = self._state.next_action(now)
                if isinstance(action, Finish):
                    await stream.close_writes()
                    return
                if isinstance(action, Wait):
                    left_s = None if action.until is None else action.until - now
                    await self._wait(left_s)
                    continue
                await stream.write(pb.LinkRequest.FromString(self._encode(action)))
        except Cut:
            pass  # the reader raises the same error

    async def _wait(self, seconds):
        """Waits until something changed, or for `seconds`."""
        self._work.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._work.wait()
        except TimeoutError:
            pass


class _Wakers(dict):
    """A set whose members keep their order of insertion."""

    def add(self, wake):
        self[wake] = None

    def remove(self, wake):
        del self[wake]


def _error_of(refusal):
    if refusal.code:
        return from_code(refusal.code, refusal.message, refusal.fields)
    return errors.unavailable("the edge", refusal.status)


class WatchedLink(AsyncLink):
    """An `AsyncLink` that reports its answers to the books of its process."""

    def __init__(self, broker, **options):
        super().__init__(broker, **options)
        self._finalizer.detach()  # it would keep the whole world alive for good
        self._process = broker.endpoint

    async def __aenter__(self):
        """As in `AsyncLink`."""
        await super().__aenter__()
        self._process.books.opened(self.incarnation, self.epoch, self._process)
        return self

    async def store(self, first_number, rows, **beside):
        """As `AsyncLink.store`."""
        bodies = rows.column("body").to_pylist()
        stored = await super().store(first_number, rows, **beside)
        self._process.books.stored(bodies)
        return stored

    async def permits(self):
        """As `AsyncLink.permits`."""
        permits = await super().permits()
        count = sum(last - first + 1 for first, last in permits.ranges)
        self._process.books.permitted(self.incarnation, count)
        return permits


async def in_loop(work):
    """Replaces `in_thread` for the end of a stream."""
    work()
    await work.__self__.gone()
