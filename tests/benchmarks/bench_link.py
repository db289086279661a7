"""A link against its own client library: RabbitMQ or JetStream to the local broker and back.

Invariant: both sides have the same window and the same messages, over one connection; the queues
are full before a clock starts, and it starts after the first tenth, so that no side's start counts.
With `ack=settled` a separate process takes the messages at the local broker and accepts them, as
Spark's source does, and counts with the link's side.
"""

import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path

import cpu
import harness
import link_backlog
import link_remotes
import rabbitmq_sides
from harness import Pair
from link_remotes import LIMIT_S, PREFETCH, Clock, RabbitMq, measured

from ackq.client import Admin
from ackq_broker.embedding import end_child, start_child

HELP = "messages/s of a link, in and out, as ratios to the bare client library of RabbitMQ or NATS"
OPTIONS = {
    "reps": (3, "repetitions of each side"),
    "messages": (20_000, "of each measurement"),
    "backlog": (
        0,
        "instead: memory of link and edge while they pass so many messages of the first size",
    ),
    "backlog-queue": ("lazy", "the kind of RabbitMQ's queue: lazy or quorum"),
}
FLOOR = 0.7
_POLL_S = 0.02
_CONSUMER = Path(__file__).with_name("settling_consumer.py")


def run(args, endpoint):
    """Three comparisons per remote broker and body size."""
    if args.backlog:
        with rabbitmq_sides.running() as port:
            if port:
                yield _backlog(endpoint, port, args.backlog_queue, args.backlog, args.sizes[0])
        return
    with link_remotes.running() as remotes:
        for remote, size in itertools.product(remotes, args.sizes):
            given = (endpoint, remote, args.messages, size)
            bare = {
                name: partial(consume, remote, args.messages, size, consumer)
                for name, consumer in remote.consumers.items()
            }
            for name, link, anchors in (
                ("in, ack=stored", partial(link_in, "stored"), bare),
                ("in, ack=settled", partial(link_in, "settled"), bare),
                ("out", link_out, {"bare": partial(publish, *given[1:])}),
            ):
                title = f"link {name}, {remote.title}, {size:,} B"
                floors = {"bare": FLOOR}
                yield from harness.compare(
                    {"link": partial(link, *given), **anchors},
                    {f"{title} / {each}": Pair("link", each, floors.get(each)) for each in anchors},
                    args.reps,
                )


def _backlog(endpoint, port, kind, count, size):
    """The memory of a link and its local broker while they pass a backlog, with `ack=settled`."""
    title = f"memory, {count:,} messages of {size:,} B in a {kind} queue"
    with (
        rabbitmq_sides.full_queue(
            port, count, bytes(size), link_backlog.KINDS[kind], ids=True
        ) as there,
        Admin(endpoint) as admin,
        settling(endpoint, here := _new_queue(admin), count, link_backlog.LIMIT_S),
        _link(endpoint, here, *RabbitMq(port).flags(there, "in"), *_in("settled")) as pid,
    ):
        return link_backlog.measure(admin, here, count, pid, title)


# --- in ---


def _in(ack):
    return "--direction=in", f"--ack={ack}"


def link_in(ack, endpoint, remote, count, size):
    """A link from a full remote queue to an empty local one.

    There the messages stay, or a consumer takes them, whose accepts acknowledge at the remote.
    """
    with (
        remote.queue(count, bytes(size)) as there,
        Admin(endpoint) as admin,
        contextlib.ExitStack() as stack,
    ):
        here, parts, done = _new_queue(admin), {}, "published"
        if ack == "settled":
            parts["consumer"] = stack.enter_context(settling(endpoint, here, count))
            done = "accepted"
        flags = (*remote.flags(there, "in"), *_in(ack))
        parts["link"] = stack.enter_context(_link(endpoint, here, *flags))
        return _timed(count, lambda: getattr(admin.queue(here), done), _servers(remote, **parts))


def consume(remote, count, size, consumer):
    """A bare consumer."""
    with remote.queue(count, bytes(size)) as there:
        return measured(remote, count, lambda clock: consumer(clock, there, count))


# --- out ---


def link_out(endpoint, remote, count, size):
    """A link from a full local queue to an empty remote one."""
    with remote.queue(0, b"") as there, harness.queue(endpoint) as here:
        harness.fill(endpoint, here, rows=count, size=size)
        flags = (*remote.flags(there, "out"), "--direction=out")
        with Admin(endpoint) as admin, _link(endpoint, here, *flags) as pid:
            return _timed(count, lambda: admin.queue(here).accepted, _servers(remote, link=pid))


def publish(remote, count, size):
    """A bare publisher that waits for every confirm, with the link's window."""
    body = bytes(size)
    with remote.queue(0, b"") as there:
        return measured(remote, count, lambda clock: remote.publish(clock, there, count, body))


# --- parts ---


def _servers(remote, **others):
    """The process ids of what moves messages: both brokers, and the given ones."""
    servers = {"edge": cpu.SERVERS[cpu.ACKQ], remote.server: cpu.SERVERS[remote.server]}
    return {**others, **servers}


def _new_queue(admin):
    """A durable local queue; it stays, because a link's queue cannot be deleted."""
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    admin.declare_queue(name)
    return name


def _timed(count, done, parts):
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
def _link(endpoint, here, *flags):
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
def settling(endpoint, queue, count, limit_s=LIMIT_S):
    """Runs a consumer of the local broker as a process; yields its process id."""
    command = [sys.executable, str(_CONSUMER), endpoint, queue, str(count)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        try:
            yield child.pid
            assert child.wait(limit_s) == 0, "the consumer failed"
        finally:
            child.kill()
