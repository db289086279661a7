"""A queue of a remote broker for a job: starts a local broker (the edge) and a link to it.

Invariant: the remote queue is counted while no link runs, so that no message is in transit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final, Literal

from ackq.client import Admin, Broker
from ackq.errors import InvalidArgumentError
from ackq_broker import links
from kit import JobError, arguments, other_queues, say

_POLL_S: Final = 0.5
_PROGRESS_S: Final = 2.0
_NAMES: Final = (
    "queue",
    "data",
    "password_file",
    "declare",
    "temporary",
    "prefetch",
    "ack",
)


def add_arguments(made: argparse.ArgumentParser, direction: Literal["in", "out"]) -> None:
    """Adds the arguments of a job whose queue may be at a remote broker."""
    group = made.add_argument_group("a queue of RabbitMQ, Artemis, or a stream of NATS")

    def add(name: str, **rest: Any) -> None:
        """An argument of both kinds of broker."""
        names = (f"--{kind}-{name}" for kind in ("amqp", "nats"))
        group.add_argument(*names, dest=f"remote_{name.replace('-', '_')}", **rest)

    brokers = group.add_mutually_exclusive_group()
    brokers.add_argument(
        "--amqp",
        metavar="URL",
        help="the remote broker, amqp://[USER@]HOST[:PORT][/VHOST], instead of --endpoint",
    )
    brokers.add_argument(
        "--nats",
        metavar="URL",
        help="the server of a stream, nats://[USER@]HOST[:PORT], instead of --endpoint",
    )
    group.add_argument(
        "--amqp-protocol",
        choices=other_queues.PROTOCOLS,
        default=other_queues.AMQP091,
        help="the protocol of the remote broker: amqp091 (RabbitMQ; the default), or amqp1, AMQP "
        "1.0 (Artemis, Qpid)",
    )
    name = "STREAM/CONSUMER" if direction == "in" else "STREAM"
    add("queue", metavar="NAME", help=f"the queue of the remote broker; with --nats {name}")
    add(
        "data",
        metavar="DIR",
        help="the data directory of the local broker, which the job starts; it is for this queue "
        "alone, and must outlive the job's machine",
    )
    add(
        "password-file",
        metavar="FILE",
        help="the file with the user's password; default: the variable ACKQ_LINK_PASSWORD",
    )
    add(
        "declare",
        action="store_true",
        help="declare the remote queue as durable (amqp091), or create a work-queue stream, or its "
        "consumer (nats)",
    )
    add(
        "temporary",
        action="store_true",
        help="accept a data directory that does not last, for a trial: its messages are lost with "
        "it",
    )
    add(
        "prefetch",
        type=arguments.positive,
        metavar="N",
        help="the maximum number of messages in flight at the remote broker, which bounds a "
        "micro-batch and the messages that a cut may double; default: 5000",
    )
    if direction == "in":
        add(
            "ack",
            choices=("settled", "stored"),
            help="when a message is acknowledged at the remote broker: once the checkpoint covers "
            "it (settled, the default), or once it is on the local broker's disk (stored)",
        )


def check(made: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses arguments that do not go together; notes the remote broker as `args.remote`."""
    given = arguments.given(made, args) & {f"remote_{name}" for name in _NAMES}
    kind = kind_of(args)
    args.remote = args.nats or args.amqp
    if args.nats:
        args.amqp_protocol = other_queues.NATS
    if args.remote is None:
        if "amqp_protocol" in arguments.given(made, args):
            made.error("--amqp-protocol needs --amqp")
        if given:
            name = min(given).removeprefix("remote_").replace("_", "-")
            made.error(f"--amqp-{name} needs --amqp, and --nats-{name} needs --nats")
    elif args.endpoint is not None:
        made.error(f"--{kind} starts a broker of its own; leave --endpoint out")
    elif not (args.remote_queue and args.remote_data):
        made.error(f"--{kind} needs --{kind}-queue and --{kind}-data")
    elif args.remote_declare and args.amqp_protocol == other_queues.AMQP1:
        made.error(
            "--amqp-declare is for amqp091; AMQP 1.0 declares no queue: create it at the remote"
            " broker"
        )
    elif "once" in args.trigger:
        made.error(f"--{kind} needs --trigger availableNow, or an interval")


def kind_of(args: argparse.Namespace) -> str:
    """The argument that names the remote broker, without dashes."""
    return "nats" if args.nats else "amqp"


class LinkedQueue:
    """The local broker's queue with its link, and the remote queue at the link's other end.

    Attributes:
        broker: The local broker.
        name: Name of the local broker's queue.
        before: Counts of the remote queue before the link took any message.

    Args:
        args: The command line.
        direction: Direction of the link.
    """

    def __init__(self, args: argparse.Namespace, direction: Literal["in", "out"]) -> None:
        self.name: str = args.queue or (
            args.remote_queue.partition("/")[0] if args.nats else args.remote_queue
        )
        keys: dict[str, Any] = {
            "name": f"{direction}-{self.name}",
            "direction": direction,
            "broker": args.remote,
            "protocol": args.amqp_protocol,
            "broker-queue": args.remote_queue,
            "queue": self.name,
        }
        if args.remote_password_file:
            keys["password-file"] = args.remote_password_file
        if getattr(args, "remote_ack", None):
            keys["ack"] = args.remote_ack
        if args.remote_prefetch:
            keys["prefetch"] = args.remote_prefetch
        # First, because it reports which library is missing.
        try:
            self._edge = links.embedded(args.remote_data, [keys], temporary=args.remote_temporary)
        except InvalidArgumentError as error:
            remedy = f"set --{kind_of(args)}-temporary"
            message = error.message.replace("set temporary=True", remedy)
            raise JobError(message) from None
        self._there = other_queues.other_queue(
            args.amqp_protocol,
            args.remote,
            args.remote_queue,
            args.remote_password_file or "",
            declare=args.remote_declare,
        )
        self._admin: Admin | None = None
        self.before = self.count_there()

    @contextlib.contextmanager
    def running(self) -> Iterator[LinkedQueue]:
        """Starts the local broker and the link; stops them at the end."""
        for line in self._edge.guarantees:
            say(line)
        with self._edge as edge:
            self.broker = Broker(edge.endpoint)
            say(
                f"The local broker is up at {edge.endpoint}, with its data in"
                f" {edge.broker.data_dir}."
            )
            with Admin(self.broker) as self._admin:
                yield self

    @property
    def admin(self) -> Admin:
        """An administration client of the local broker."""
        assert self._admin is not None, "the edge is not running"
        return self._admin

    @property
    def waiting(self) -> int:
        """Number of messages in the local broker's queue."""
        queue = self.admin.queue(self.name)
        return queue.ready + queue.delayed + queue.unacked

    def ended(self) -> bool:
        """Always False: only a signal ends the job. Raises AckqError if broker or link ended."""
        self._edge.check()
        return False

    def drained(self) -> bool:
        """Whether the local and the remote queue are empty; the link is stopped then.

        Messages that the link has in flight are in neither queue, so it is stopped to count.
        """
        self._edge.check()
        if self.waiting or not self._empty_there():
            return False
        self._edge.stop_links()
        if not self.waiting and self._empty_there():
            return True
        self._edge.start_links()
        return False

    def send_all(self) -> None:
        """Waits until the local queue is empty, with a progress line now and then; stops the link.

        Raises AckqError if the local broker or the link has ended.
        """
        began = said = time.monotonic()
        while left := self.waiting:
            self._edge.check()
            if time.monotonic() - said >= _PROGRESS_S:
                said = time.monotonic()
                say(f"  {left:>11,} messages to send, after {said - began:6.1f} s")
            time.sleep(_POLL_S)
        self._edge.stop_links()

    def count_there(self) -> other_queues.Depth:
        """Counts of the remote queue; exact while no link runs. Raises JobError."""
        return asyncio.run(self._there.depth())

    def _empty_there(self) -> bool:
        return not asyncio.run(self._there.depth(1)).messages
