"""Helpers of a link's process: log lines, back-off, stop, access to its edge (L17, L20)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ackq.client import Admin
from ackq.client.connection.broker import Broker
from ackq.client.connection.retry import Backoff
from ackq.errors import BrokerUnavailableError, NackError, UnroutableError
from ackq.info import QueueInfo
from ackq.text import printable
from ackq_link.adapter import CutError

_log = logging.getLogger("ackq_link")
T = TypeVar("T")
# The first and the longest wait between attempts.
FIRST_S: Final = 0.1
MOST_S: Final = 30.0
# Errors that a link retries: the edge is away or full, or its queue is being declared again (L20).
PASSING: Final = (NackError, UnroutableError, BrokerUnavailableError)
# The time after a stop for batches in flight to be answered.
STOP_GRACE_S: Final = 10.0
# The client itself waits for the edge, however long it is away (L20).
EDGE_PATIENCE_MS: Final = 2**31 - 1


def log(level: int, link: str, name: str, sentence: str, **fields: object) -> None:
    """Logs an event of a link, as `link_` and the event's name, with its fields."""
    _log.log(
        level,
        "link %s: %s",
        link,
        sentence,
        extra={"event": f"link_{name}", "fields": {"link": link, **fields}},
    )


def back_off(first_s: float = FIRST_S, most_s: float = MOST_S) -> Backoff:
    """The waits of a link between attempts, in seconds; each is shortened by up to a quarter."""
    return Backoff(None, first_s=first_s, most_s=most_s, part=0.25, jitter=random.random)


class StoppedError(Exception):
    """The link was asked to stop."""


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T], grace_s: float = 0) -> T:
    """Awaits `work`, but cancels it if it is not done `grace_s` after a stop.

    Raises:
        StoppedError: It was cancelled.
    """
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and grace_s:
            await asyncio.wait((task,), timeout=grace_s)
        if not task.done():
            raise StoppedError
        return task.result()
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Edge:
    """The local ackq broker of a link, and the link's queue on it."""

    broker: Broker
    queue: str

    async def queue_info(self) -> QueueInfo:
        """The queue's description; raises AckqError without the broker, queue or permission."""

        def ask() -> QueueInfo:
            with Admin(self.broker) as admin:
                return admin.queue(self.queue)

        return await asyncio.to_thread(ask)


async def for_edge(link: str, edge: Edge, stop: asyncio.Event) -> QueueInfo:
    """Waits until the edge is reachable; returns its description of the queue.

    Args:
        link: The link's name, for the log.
        edge: Its address and the queue.
        stop: Ends the wait.

    Raises:
        AckqError: A failure that a retry cannot mend: no such queue, no permission.
        StoppedError: A stop was requested first.
    """
    retry = back_off()
    while True:
        try:
            return await unless(stop, edge.queue_info())
        except PASSING as error:
            log(logging.WARNING, link, "edge_unavailable", printable(error.message))
            await unless(stop, asyncio.sleep(retry.next_s()))


async def after_cut(
    link: str, retry: Backoff, stop: asyncio.Event, cut: CutError, cuts: int
) -> None:
    """Logs a cut and sleeps for the reconnect back-off; `cuts` is their number so far (L17).

    Raises:
        StoppedError: A stop was requested first.
    """
    wait_s = retry.next_s()
    log(
        logging.WARNING,
        link,
        "cut",
        f"cut, connects again in {wait_s:.1f} s: {printable(cut.reason)}",
        wait_s=wait_s,
        cuts=cuts,
        reason=cut.reason,
    )
    await unless(stop, asyncio.sleep(wait_s))
