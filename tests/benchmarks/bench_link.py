"""A link against its own client library: RabbitMQ to the edge and back, beside a bare consumer.

Invariant: both sides have the same window, the same messages and the same acknowledgements, over
one connection; the queues are full before a clock starts, and it starts behind the first tenth,
so that no side's start counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, Final

import harness
import rabbitmq_sides
from harness import Measurement, Pair

from ackq.client import Admin
from ackq_broker.embedding import end_child, start_child

HELP = "messages/s of a link with RabbitMQ, in and out, as ratios to its bare client library"
FLOOR: Final = 0.7
MESSAGES: Final = 20_000
PREFETCH: Final = 5_000
# So many batches share a window, and so many deliveries have one acknowledgement.
_SHARE: Final = PREFETCH // 4
_POLL_S: Final = 0.02
_LIMIT_S: Final = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.set_defaults(repetitions=3)
    parser.add_argument(
        "--messages", type=int, default=MESSAGES, help=f"of each measurement ({MESSAGES})"
    )
    parser.add_argument("--floor", type=float, default=FLOOR, help=f"least median ratio ({FLOOR})")


def run(args: argparse.Namespace, endpoint: str) -> Iterator[harness.Comparison]:
    """Two comparisons per body size; without RabbitMQ there are none."""
    with rabbitmq_sides.running() as port:
        harness.NOTES["aiormq"] = version("aiormq")
        for size in args.sizes if port else ():
            sides: dict[str, tuple[Callable[..., Measurement], Callable[..., Measurement]]] = {
                "link in, ack=stored": (link_in, consume),
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


# --- in ---


def link_in(endpoint: str, port: int, count: int, size: int) -> Measurement:
    """A link from a full queue of RabbitMQ to an empty one of the edge."""
    with (
        rabbitmq_sides.full_queue(port, count, bytes(size)) as there,
        Admin(endpoint) as admin,
        _link(endpoint, port, here := _new_queue(admin), there, "--direction=in", "--ack=stored"),
    ):
        return _timed(count, lambda: admin.queue(here).published)


def consume(_: str, port: int, count: int, size: int) -> Measurement:
    """A consumer that counts, and acknowledges as the link does."""
    with rabbitmq_sides.full_queue(port, count, bytes(size)) as there:
        return asyncio.run(_consume(port, count, there))


async def _consume(port: int, count: int, queue: str) -> Measurement:
    taken = 0
    clock = _Clock(count)
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
    """A link from a full queue of the edge to an empty one of RabbitMQ."""
    with rabbitmq_sides.full_queue(port, 0, b"") as there, harness.queue(endpoint) as here:
        harness.fill(endpoint, here, rows=count, size=size)
        with (
            Admin(endpoint) as admin,
            _link(endpoint, port, here, there, "--direction=out"),
        ):
            return _timed(count, lambda: admin.queue(here).accepted)


def publish(_: str, port: int, count: int, size: int) -> Measurement:
    """A publisher that waits for every confirm, with the link's window."""
    with rabbitmq_sides.full_queue(port, 0, b"") as there:
        return asyncio.run(_publish(port, count, bytes(size), there))


async def _publish(port: int, count: int, body: bytes, queue: str) -> Measurement:
    import aiormq

    clock = _Clock(count)
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
    """From the first tenth of so many on to the last."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began: tuple[int, float] | None = None
        self._ended_s = 0.0

    def note(self, done: int) -> None:
        """So many are done."""
        if self._began is None:
            if done * 10 >= self._count:
                self._began = done, time.perf_counter()
        elif done == self._count:
            self._ended_s = time.perf_counter()

    def measured(self) -> Measurement:
        """What was counted while it ran."""
        assert self._began is not None
        first, began_s = self._began
        return Measurement(self._count - first, {"wall": self._ended_s - began_s})


def _new_queue(admin: Admin) -> str:
    """A durable queue of the edge; it stays, because a queue of a link cannot be deleted."""
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    admin.declare_queue(name)
    return name


def _timed(count: int, done: Callable[[], int]) -> Measurement:
    """What a count that is asked for again and again did until it was reached."""
    clock = _Clock(count)
    deadline = time.monotonic() + _LIMIT_S
    while (now := done()) < count:
        clock.note(now)
        assert time.monotonic() < deadline, f"{now} of {count} in time"
        time.sleep(_POLL_S)
    clock.note(count)
    return clock.measured()


@contextlib.contextmanager
def _link(endpoint: str, port: int, here: str, there: str, *flags: str) -> Iterator[None]:
    """A link as a process, for as long as it takes."""
    flags += (f"--queue={here}", f"--broker-queue={there}", f"--broker=amqp://127.0.0.1:{port}")
    flags += (f"--name={here}", f"--prefetch={PREFETCH}", f"--edge-endpoint={endpoint}")
    with tempfile.TemporaryFile() as log:
        child = start_child(["link", *flags, "--stop-at-eof"], log, stdout=log)
        try:
            yield
            assert child.poll() is None, "the link ended"
        finally:
            child.terminate()
            end_child(child)


@contextlib.asynccontextmanager
async def _channel(port: int) -> Any:
    import aiormq

    connection = await aiormq.connect(f"amqp://127.0.0.1:{port}")
    try:
        yield await connection.channel(on_return_raises=False)
    finally:
        await connection.close()
