"""A link against its own client library: RabbitMQ or JetStream to the local broker and back.

Invariant: both sides have the same window and the same messages, over one connection; the queues
are full before a clock starts, and it starts after the first tenth, so that no side's start counts.
With `ack=settled` a separate process takes the messages at the local broker and accepts them, as
Spark's source does, and counts with the link's side.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import cpu
import harness
import link_backlog
import link_remotes
import rabbitmq_sides
from harness import Measurement, Pair
from link_remotes import LIMIT_S, PREFETCH, Clock, Consume, RabbitMq, Remote, measured

from ackq.client import Admin
from ackq_broker.embedding import end_child, start_child

HELP = "messages/s of a link, in and out, as ratios to the bare client library of RabbitMQ or NATS"
FLOOR: Final = 0.7
MESSAGES: Final = 20_000
_POLL_S: Final = 0.02
# A side of a comparison, and one that needs endpoint, remote broker, messages and bytes of a body.
Side = Callable[[], Measurement]
Link = Callable[[str, Remote, int, int], Measurement]
_CONSUMER: Final = Path(__file__).with_name("settling_consumer.py")
_STORED: Final = ("--direction=in", "--ack=stored")
_SETTLED: Final = ("--direction=in", "--ack=settled")


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
    """Three comparisons per remote broker and body size."""
    if args.backlog:
        with rabbitmq_sides.running() as port:
            if port:
                yield _backlog(args, endpoint, port)
        return
    with link_remotes.running() as remotes:
        for remote, size in itertools.product(remotes, args.sizes):
            given = (endpoint, remote, args.messages, size)
            bare = {
                name: functools.partial(consume, *given, consumer)
                for name, consumer in remote.consumers.items()
            }
            sides: dict[str, tuple[Link, Mapping[str, Side]]] = {
                "in, ack=stored": (link_stored, bare),
                "in, ack=settled": (link_settled, bare),
                "out": (link_out, {"bare": functools.partial(publish, *given)}),
            }
            for name, (link, anchors) in sides.items():
                title = f"link {name}, {remote.title}, {size:,} B"
                yield from harness.compare(
                    {"link": functools.partial(link, *given), **anchors},
                    {
                        f"{title} / {anchor}": Pair(
                            "link", anchor, args.floor if anchor == "bare" else None
                        )
                        for anchor in anchors
                    },
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
                _link(endpoint, here, *RabbitMq(port).flags(there, "in"), *_SETTLED) as pid,
            ):
                yield pid

        title = f"memory, {count:,} messages of {size:,} B in a {kind} queue"
        return link_backlog.measure(endpoint, here, count, run, title)


# --- in ---


def link_stored(endpoint: str, remote: Remote, count: int, size: int) -> Measurement:
    """A link from a full remote queue to an empty local one, which keeps the messages."""
    with (
        remote.queue(count, bytes(size)) as there,
        Admin(endpoint) as admin,
        _link(endpoint, here := _new_queue(admin), *remote.flags(there, "in"), *_STORED) as pid,
    ):
        return _timed(count, lambda: admin.queue(here).published, _servers(remote, link=pid))


def link_settled(endpoint: str, remote: Remote, count: int, size: int) -> Measurement:
    """A link through the local broker to a consumer, whose accepts acknowledge at the remote."""
    with (
        remote.queue(count, bytes(size)) as there,
        Admin(endpoint) as admin,
        settling(endpoint, here := _new_queue(admin), count) as consumer,
        _link(endpoint, here, *remote.flags(there, "in"), *_SETTLED) as pid,
    ):
        parts = _servers(remote, link=pid, consumer=consumer)
        return _timed(count, lambda: admin.queue(here).accepted, parts)


def consume(_: str, remote: Remote, count: int, size: int, consumer: Consume) -> Measurement:
    """A bare consumer."""
    with remote.queue(count, bytes(size)) as there:
        return measured(remote, count, lambda clock: consumer(clock, there, count))


# --- out ---


def link_out(endpoint: str, remote: Remote, count: int, size: int) -> Measurement:
    """A link from a full local queue to an empty remote one."""
    with remote.queue(0, b"") as there, harness.queue(endpoint) as here:
        harness.fill(endpoint, here, rows=count, size=size)
        flags = (*remote.flags(there, "out"), "--direction=out")
        with Admin(endpoint) as admin, _link(endpoint, here, *flags) as pid:
            return _timed(count, lambda: admin.queue(here).accepted, _servers(remote, link=pid))


def publish(_: str, remote: Remote, count: int, size: int) -> Measurement:
    """A bare publisher that waits for every confirm, with the link's window."""
    body = bytes(size)
    with remote.queue(0, b"") as there:
        return measured(remote, count, lambda clock: remote.publish(clock, there, count, body))


# --- parts ---


def _servers(remote: Remote, **others: int) -> Mapping[str, int]:
    """The process ids of what moves messages: both brokers, and the given ones."""
    servers = {"edge": cpu.SERVERS[cpu.ACKQ], remote.server: cpu.SERVERS[remote.server]}
    return {**others, **servers}


def _new_queue(admin: Admin) -> str:
    """A durable local queue; it stays, because a link's queue cannot be deleted."""
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    admin.declare_queue(name)
    return name


def _timed(count: int, done: Callable[[], int], parts: Mapping[str, int]) -> Measurement:
    """Measures the progress of a polled count until it reaches `count`."""
    clock = Clock(count, parts)
    deadline = time.monotonic() + LIMIT_S
    while (now := done()) < count:
        clock.note(now)
        assert time.monotonic() < deadline, f"{now} of {count} in time"
        time.sleep(_POLL_S)
    clock.note(count)
    return clock.measured()


@contextlib.contextmanager
def _link(endpoint: str, here: str, *flags: str) -> Iterator[int]:
    """Runs a link as a process within the context; yields its process id."""
    flags += (f"--queue={here}", f"--name={here}")
    flags += (f"--prefetch={PREFETCH}", f"--edge-endpoint={endpoint}")
    with tempfile.TemporaryFile() as log:
        child = start_child(["link", *flags, "--stop-at-eof"], log, stdout=log)
        try:
            yield child.pid
            assert child.poll() is None, "the link ended"
        finally:
            child.terminate()
            end_child(child)


@contextlib.contextmanager
def settling(endpoint: str, queue: str, count: int, limit_s: float = LIMIT_S) -> Iterator[int]:
    """Runs a consumer of the local broker as a process; yields its process id."""
    command = [sys.executable, str(_CONSUMER), endpoint, queue, str(count)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        try:
            yield child.pid
            assert child.wait(limit_s) == 0, "the consumer failed"
        finally:
            child.kill()
