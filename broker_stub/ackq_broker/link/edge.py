"""The edge as a link uses it: its address, what its queue is, what of its errors passes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from ackq.client import Admin, Security
from ackq.errors import (
    BrokerUnavailableError,
    NackError,
    PreconditionFailedError,
    UnroutableError,
)
from ackq.v1 import admin_pb2

# What a link waits through: the edge is away or full, or its queue is being made anew (L20).
PASSING: Final = (NackError, UnroutableError, BrokerUnavailableError)


@dataclass(frozen=True, slots=True)
class Edge:
    """The ackq broker of a link, and its queue there."""

    endpoint: str
    queue: str
    security: Security | None = None

    async def queue_info(self) -> admin_pb2.QueueInfo:
        """Raises AckqError: without a broker, without the queue, without a permission."""

        def ask() -> admin_pb2.QueueInfo:
            with Admin(self.endpoint, security=self.security) as admin:
                return admin.queue(self.queue)

        return await asyncio.to_thread(ask)


def is_bounded(info: admin_pb2.QueueInfo) -> bool:
    """Whether the queue may take some rows of a batch and refuse others."""
    return bool(info.properties.max_length or info.properties.max_bytes)


def check_target(info: admin_pb2.QueueInfo) -> None:
    """Raises PreconditionFailedError for a queue that loses what a link has acknowledged (L13)."""
    properties = info.properties
    if not properties.durable:
        raise PreconditionFailedError(
            f"The queue '{info.queue}' is not durable: a restart of the broker would lose what the"
            " link has acknowledged. Delete it, and declare it durable."
        )
    if properties.overflow == admin_pb2.OVERFLOW_DROP_HEAD:
        raise PreconditionFailedError(
            f"The queue '{info.queue}' drops its oldest messages when it is full, which the link"
            " has acknowledged. Declare it with overflow=reject-publish: then the link waits."
        )
    if properties.message_ttl_ms and not properties.dead_letter_queue:
        raise PreconditionFailedError(
            f"Messages of the queue '{info.queue}' expire and go nowhere, though the link has"
            " acknowledged them. Declare it with a dead-letter queue, or without a TTL."
        )
