"""Runs links in one process until a stop, or until one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ackq.errors import AckqError
from ackq_link.configuration import Link


async def run(links: Sequence[Link], stop: asyncio.Event) -> None:
    """Runs all links; the first that fails stops the others cleanly.

    Raises:
        AckqError: The error of the failed link, prefixed with the link's name.
    """
    tasks = [asyncio.create_task(_run(link, stop), name=f"link-{link.name}") for link in links]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        stop.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


async def _run(link: Link, stop: asyncio.Event) -> None:
    try:
        await link.run(stop)
    except AckqError as error:
        error.message = f"link {link.name}: {error.message}"
        raise
