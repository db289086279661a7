"""What the links of both directions wait for: the edge, and another attempt after a cut."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ackq.info import QueueInfo
from ackq.text import printable
from ackq_link.adapter import CutError
from ackq_link.backoff import RetryDelay
from ackq_link.edge_options import PASSING, Edge
from ackq_link.events import log
from ackq_link.stopping import unless

# What is under way at a stop has so long to be answered.
STOP_GRACE_S: Final = 10.0
# The client itself waits for the edge, however long it is away (L20).
EDGE_PATIENCE_MS: Final = 2**31 - 1


async def for_edge(link: str, edge: Edge, stop: asyncio.Event) -> QueueInfo:
    """What the edge says of its queue, once it is there.

    Args:
        link: The link's name, for the log.
        edge: Its address and the queue.
        stop: Ends the wait.

    Raises:
        AckqError: What waiting does not mend: no such queue, no permission.
        StoppedError: A stop came first.
    """
    retry = RetryDelay()
    while True:
        try:
            return await unless(stop, edge.queue_info())
        except PASSING as error:
            log(logging.WARNING, link, "edge_unavailable", printable(error.message))
            await unless(stop, asyncio.sleep(retry.next_s()))


async def after_cut(
    link: str, retry: RetryDelay, stop: asyncio.Event, cut: CutError, cuts: int
) -> None:
    """Logs a cut, of which there were so many, and returns when it is time to connect again (L17).

    Raises:
        StoppedError: A stop came first.
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
