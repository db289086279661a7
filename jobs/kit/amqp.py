"""A queue of an AMQP 0-9-1 broker in place of one of ackq's: an edge and a link beside the job.

Invariant: what the job counts there is counted while no link runs, so that nothing is on its way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any, Final, Literal

from ackq.client import Admin
from ackq_broker import links
from kit import JobError, arguments, say
from kit.connection import Broker

_POLL_S: Final = 0.5
_PROGRESS_S: Final = 2.0
_NAMES: Final = ("queue", "data", "password_file", "declare", "temporary", "ack")


def add_arguments(made: argparse.ArgumentParser, direction: Literal["in", "out"]) -> None:
    """Adds the arguments of a job whose queue may be another broker's."""
    group = made.add_argument_group("a queue of RabbitMQ, or of another AMQP 0-9-1 broker")
    add = group.add_argument
    add("--amqp", metavar="URL", help="amqp://[USER@]HOST[:PORT][/VHOST], instead of --endpoint")
    add("--amqp-queue", metavar="NAME", help="the queue there")
    add(
        "--amqp-data",
        metavar="DIR",
        help="the data directory of the edge, an ackq broker that the job starts; it belongs to "
        "this queue, and must outlive the job's machine",
    )
    add(
        "--amqp-password-file",
        metavar="FILE",
        help="the user's password; or in the environment, ACKQ_LINK_PASSWORD",
    )
    add("--amqp-declare", action="store_true", help="declare the queue there, durable")
    add(
        "--amqp-temporary",
        action="store_true",
        help="take a directory that does not last, to try it: what it holds is lost with it",
    )
    if direction == "in":
        add(
            "--amqp-ack",
            choices=("settled", "stored"),
            help="when it is acknowledged there: once the checkpoint covers it, or once it is on "
            "the edge's disk; default: that of the link",
        )


def check(made: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses arguments that do not go together."""
    given = arguments.given(made, args) & {f"amqp_{name}" for name in _NAMES}
    if args.amqp is None:
        if given:
            made.error(f"--{min(given).replace('_', '-')} needs --amqp")
    elif args.endpoint is not None:
        made.error("--amqp starts a broker of its own; leave --endpoint out")
    elif not (args.amqp_queue and args.amqp_data):
        made.error("--amqp needs --amqp-queue and --amqp-data")
    elif "once" in args.trigger:
        made.error("--amqp goes with --trigger availableNow, or an interval")


class LinkedQueue:
    """The edge's queue with its link, and the other broker's queue behind it.

    Attributes:
        broker: The edge.
        name: The edge's queue.
        ready_before: Messages that were ready there before the link took any.

    Args:
        args: The command line.
        direction: Of the link.
    """

    def __init__(self, args: argparse.Namespace, direction: Literal["in", "out"]) -> None:
        self.name: str = args.queue or args.amqp_queue
        self._there = _OtherQueue(args)
        keys: dict[str, Any] = {
            "name": f"{direction}-{self.name}",
            "direction": direction,
            "broker": args.amqp,
            "broker-queue": args.amqp_queue,
            "queue": self.name,
        }
        if args.amqp_password_file:
            keys["password-file"] = args.amqp_password_file
        if getattr(args, "amqp_ack", None):
            keys["ack"] = args.amqp_ack
        self._edge = links.embedded(args.amqp_data, [keys], temporary=args.amqp_temporary)
        self._admin: Admin | None = None
        self.ready_before, self.consumers_before = self._there.count(declare=args.amqp_declare)

    @contextlib.contextmanager
    def running(self) -> Iterator[LinkedQueue]:
        """Starts edge and link; stops them at the end."""
        for line in self._edge.guarantees:
            say(line)
        with self._edge as edge:
            self.broker = Broker(edge.endpoint)
            say(f"An edge is up at {edge.endpoint}, with its data in {edge.broker.data_dir}.")
            with self.broker.admin() as self._admin:
                yield self

    @property
    def admin(self) -> Admin:
        """A client of the edge's administration."""
        assert self._admin is not None, "the edge is not running"
        return self._admin

    @property
    def waiting(self) -> int:
        """Messages in the edge's queue."""
        queue = self.admin.queue(self.name)
        return queue.ready + queue.delayed + queue.unacked

    def ended(self) -> bool:
        """False: only a signal ends it. Raises AckqError when edge or link has ended."""
        self._edge.check()
        return False

    def drained(self) -> bool:
        """Whether nothing is left here or there; the link is stopped then.

        What the link has in hand is in neither queue, so it is stopped to count.
        """
        self._edge.check()
        if self.waiting or self._there.count()[0]:
            return False
        self._edge.stop_links()
        if not self.waiting and not self._there.count()[0]:
            return True
        self._edge.start_links()
        return False

    def send_all(self) -> None:
        """Waits until the edge's queue is empty, with a line now and then; stops the link.

        Raises AckqError when the link has ended.
        """
        began = said = time.monotonic()
        while left := self.waiting:
            self._edge.check()
            if time.monotonic() - said >= _PROGRESS_S:
                said = time.monotonic()
                say(f"  {left:>11,} messages to send, after {said - began:6.1f} s")
            time.sleep(_POLL_S)
        self._edge.stop_links()

    def count_there(self) -> tuple[int, int]:
        """Messages that are ready there, and consumers; exact while no link runs."""
        return self._there.count()


class _OtherQueue:
    """The other broker's queue, asked by a connection for each question."""

    def __init__(self, args: argparse.Namespace) -> None:
        # aiormq may be missing; `links.embedded` has the words for that.
        from ackq_broker.link.amqp091.address import BrokerAddress, parse_url  # noqa: PLC0415

        url, user, password = parse_url(args.amqp)
        self._queue = args.amqp_queue
        self._address = BrokerAddress(
            url,
            user or "guest",
            password or os.environ.get("ACKQ_LINK_PASSWORD", "guest"),
            args.amqp_password_file or "",
        )

    def count(self, *, declare: bool = False) -> tuple[int, int]:
        """Messages that are ready, and consumers; raises JobError."""
        return asyncio.run(self._count(declare=declare))

    async def _count(self, *, declare: bool) -> tuple[int, int]:
        from ackq_broker.link.adapter import CutError  # noqa: PLC0415 - as above
        from ackq_broker.link.amqp091.address import connect, cut_of  # noqa: PLC0415

        try:
            connection = await connect(self._address, "job", confirms=False)
        except CutError as cut:
            raise JobError(cut.reason) from None
        try:
            found = await connection.channel.queue_declare(
                self._queue, passive=not declare, durable=declare
            )
        except Exception as error:  # noqa: BLE001 - the library's errors have no common class
            raise JobError(cut_of(error, self._address, self._queue).reason) from None
        finally:
            await connection.close()
        return found.message_count or 0, found.consumer_count or 0
