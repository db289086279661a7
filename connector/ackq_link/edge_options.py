"""The edge as a link uses it: its address, what its queue is, what of its errors passes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from ackq.client import Admin, Security
from ackq.errors import (
    BrokerUnavailableError,
    NackError,
    UnroutableError,
)
from ackq.info import QueueInfo

# What a link waits through: the edge is away or full, or its queue is being made anew (L20).
PASSING: Final = (NackError, UnroutableError, BrokerUnavailableError)


@dataclass(frozen=True, slots=True)
class Edge:
    """The ackq broker of a link, and its queue there."""

    endpoint: str
    queue: str
    security: Security | None = None

    async def queue_info(self) -> QueueInfo:
        """Raises AckqError: without a broker, without the queue, without a permission."""

        def ask() -> QueueInfo:
            with Admin(self.endpoint, security=self.security) as admin:
                return admin.queue(self.queue)

        return await asyncio.to_thread(ask)
