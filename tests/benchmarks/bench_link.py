"""A link against its own client library: RabbitMQ to the local broker and back.

Invariant: both sides have the same window, the same messages and the same acknowledgements, over
one connection; the queues are full before a clock starts, and it starts after the first tenth, so
that no side's start counts. With `ack=settled` a separate process takes the messages at the local
broker and accepts them, as Spark's source does, and counts with the link's side.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import cpu
import harness
import link_backlog
import rabbitmq_sides
from harness import Measurement, Pair

from ackq.client import Admin
from ackq_broker.embedding import end_child, start_child

HELP = "messages/s of a link with RabbitMQ, in and out, as ratios to its bare client library"
FLOOR: Final = 0.7
MESSAGES: Final = 20_000
PREFETCH: Final = 5_000
# Messages in a batch, a quarter of the window, and deliveries per acknowledgement.
_SHARE: Final = PREFETCH // 4
_POLL_S: Final = 0.02
_LIMIT_S: Final = 300
_CONSUMER: Final = Path(__file__).with_name("settling_consumer.py")
_STORED: Final = ("--direction=in", "--ack=stored")
_SETTLED: Final = ("--direction=in", "--ack=settled")
# The names of the processes in a measurement, with their process ids.
_Parts = Mapping[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.set_defaults(repetitions=3)
    parser.add_argument(
        "--messages", type=int, default=MESSAGES, help=f"of each measurement ({MESSAGES})"
    )
    parser.add_argument("--floor", type=float, default=FLOOR, help=f"least median ratio ({FLOOR})")
    parser.add_argument(
        "--backlog",
        type=int,
        default=0,
        metavar="N",
        help="instead: the memory of link and edge while they pass so many messages of the first "
        "size (with 10 million: 2 GB on disk at RabbitMQ, and half an hour)",
    )
    parser.add_argument(
        "--backlog-queue",
        choices=link_backlog.QUEUE_KINDS,
        default="lazy",
        help="the kind of RabbitMQ's queue: classic and lazy (default), or quorum",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[harness.Result]:
    """Three comparisons per body size; without RabbitMQ there are none."""
    with rabbitmq_sides.running() as port:
        harness.NOTES["aiormq"] = version("aiormq")
        if args.backlog and port:
            yield _backlog(args, endpoint, port)
            return
        for size in args.sizes if port else ():
            sides: dict[str, tuple[Callable[..., Measurement], Callable[..., Measurement]]] = {
                "link in, ack=stored": (link_stored, consume),
                "link in, ack=settled": (link_settled, consume),
                "link out": (link_out, publish),
            }
            for name, (subject, anchor) in sides.items():
                yield from harness.compare(
                    {
                        "link": functools.partial(subject, endpoint, port, args.messages, size),
                        "bare": functools.partial(anchor, endpoint, port, args.messages, size),
                    },
                    {f"{name}, {size:,} B": Pair("link", "bare", args.floor)},
                    args.repetitions,
                )


def _backlog(args: argparse.Namespace, endpoint: str, port: int) -> harness.Figures:
    """The memory of a link and its local broker while they pass a backlog, with `ack=settled`."""
    kind, count, size = args.backlog_queue, args.backlog, args.sizes[0]
    with link_backlog.backlog(port, kind, count, size) as there, Admin(endpoint) as admin:
        here = _new_queue(admin)

        @contextlib.contextmanager
        def run() -> Iterator[int]:
            with (
                settling(endpoint, here, count, link_backlog.LIMIT_S),
                _link(endpoint, port, here, there, *_SETTLED) as pid,
            ):
                yield pid

        title = f"memory, {count:,} messages of {size:,} B in a {kind} queue"
        return link_backlog.measure(endpoint, here, count, run, title)


# --- in ---


def link_stored(endpoint: str, port: int, count: int, size: int) -> Measurement:
    """A link from a full queue of RabbitMQ to an empty local one, which keeps the messages."""
    with (
        rabbitmq_sides.full_queue(port, count, bytes(size)) as there,
        Admin(endpoint) as admin,
        _link(endpoint, port, here := _new_queue(admin), there, *_STORED) as pid,
    ):
        return _timed(count, lambda: admin.queue(here).published, _servers(link=pid))


def link_settled(endpoint: str, port: int, count: int, size: int) -> Measurement:
    """A link through the local broker to a consumer, whose accepts acknowledge at RabbitMQ."""
    with (
        rabbitmq_sides.full_queue(port, count, bytes(size)) as there,
        Admin(endpoint) as admin,
        settling(endpoint, here := _new_queue(admin), count) as consumer,
        _link(endpoint, port, here, there, *_SETTLED) as pid,
    ):
        parts = _servers(link=pid, consumer=consumer)
        return _timed(count, lambda: admin.queue(here).accepted, parts)


def consume(_: str, port: int, count: int, size: int) -> Measurement:
    """A consumer that counts messages, and acknowledges as the link does."""
    with rabbitmq_sides.full_queue(port, count, bytes(size)) as there:
        return asyncio.run(_consume(port, count, there))


async def _consume(port: int, count: int, queue: str) -> Measurement:
    taken = 0
    clock = _Clock(count, {"consumer": os.getpid(), "rabbitmq": cpu.SERVERS[rabbitmq_sides.NAME]})
    done = asyncio.Event()
    async with _channel(port) as channel:

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
        async with asyncio.timeout(_LIMIT_S):
            await done.wait()
    return clock.measured()


# --- out ---


def link_out(endpoint: str, port: int, count: int, size: int) -> Measurement:
    """A link from a full local queue to an empty one of RabbitMQ."""
    with rabbitmq_sides.full_queue(port, 0, b"") as there, harness.queue(endpoint) as here:
        harness.fill(endpoint, here, rows=count, size=size)
        with (
            Admin(endpoint) as admin,
            _link(endpoint, port, here, there, "--direction=out") as pid,
        ):
            return _timed(count, lambda: admin.queue(here).accepted, _servers(link=pid))


def publish(_: str, port: int, count: int, size: int) -> Measurement:
    """A publisher that waits for every confirm, with the link's window."""
    with rabbitmq_sides.full_queue(port, 0, b"") as there:
        return asyncio.run(_publish(port, count, bytes(size), there))


async def _publish(port: int, count: int, body: bytes, queue: str) -> Measurement:
    import aiormq

    clock = _Clock(count, {"publisher": os.getpid(), "rabbitmq": cpu.SERVERS[rabbitmq_sides.NAME]})
    confirmed = 0
    async with _channel(port) as channel:

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

        async with asyncio.timeout(_LIMIT_S):
            await asyncio.gather(*map(batch, range(0, count, _SHARE)))
    return clock.measured()


# --- parts ---


class _Clock:
    """Measures from the first tenth of `count` to the last, by wall clock and CPU of each part."""

    def __init__(self, count: int, parts: _Parts) -> None:
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


def _servers(**others: int) -> _Parts:
    """The processes that move messages: both brokers, and the given ones."""
    return {**others, "edge": cpu.SERVERS[cpu.ACKQ], "rabbitmq": cpu.SERVERS[rabbitmq_sides.NAME]}


def _new_queue(admin: Admin) -> str:
    """A durable local queue; it stays, because a link's queue cannot be deleted."""
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    admin.declare_queue(name)
    return name


def _timed(count: int, done: Callable[[], int], parts: _Parts) -> Measurement:
    """Measures the progress of a polled count until it reaches `count`."""
    clock = _Clock(count, parts)
    deadline = time.monotonic() + _LIMIT_S
    while (now := done()) < count:
        clock.note(now)
        assert time.monotonic() < deadline, f"{now} of {count} in time"
        time.sleep(_POLL_S)
    clock.note(count)
    return clock.measured()


@contextlib.contextmanager
def _link(endpoint: str, port: int, here: str, there: str, *flags: str) -> Iterator[int]:
    """Runs a link as a process within the context; yields its process id."""
    flags += (f"--queue={here}", f"--broker-queue={there}", f"--broker=amqp://127.0.0.1:{port}")
    flags += (f"--name={here}", f"--prefetch={PREFETCH}", f"--edge-endpoint={endpoint}")
    with tempfile.TemporaryFile() as log:
        child = start_child(["link", *flags, "--stop-at-eof"], log, stdout=log)
        try:
            yield child.pid
            assert child.poll() is None, "the link ended"
        finally:
            child.terminate()
            end_child(child)


@contextlib.contextmanager
def settling(endpoint: str, queue: str, count: int, limit_s: float = _LIMIT_S) -> Iterator[int]:
    """Runs a consumer of the local broker as a process; yields its process id."""
    command = [sys.executable, str(_CONSUMER), endpoint, queue, str(count)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        try:
            yield child.pid
            assert child.wait(limit_s) == 0, "the consumer failed"
        finally:
            child.kill()


@contextlib.asynccontextmanager
async def _channel(port: int) -> Any:
    import aiormq

    connection = await aiormq.connect(f"amqp://127.0.0.1:{port}")
    try:
        yield await connection.channel(on_return_raises=False)
    finally:
        await connection.close()
