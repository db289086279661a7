"""Speaks to an ackq broker without Spark.

Publish with confirms or in transactions, consume with acknowledgements, read sessions, stage
batches, administer.

Names are imported on first use, so that a process which only needs `Security` does not pay for gRPC
and Arrow (0.2 s and more in each of Spark's Python processes).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackq.client.admin import Admin as Admin
    from ackq.client.async_consumer import AsyncChannel as AsyncChannel
    from ackq.client.async_consumer import AsyncConsumer as AsyncConsumer
    from ackq.client.channels import channel as channel
    from ackq.client.channels import close_channels as close_channels
    from ackq.client.consumer import Channel as Channel
    from ackq.client.consumer import Consumer as Consumer
    from ackq.client.health import wait_ready as wait_ready
    from ackq.client.hold import Hold as Hold
    from ackq.client.hold import holder as holder
    from ackq.client.message import Message as Message
    from ackq.client.modes import AcknowledgeMode as AcknowledgeMode
    from ackq.client.modes import Outcome as Outcome
    from ackq.client.outcomes import OutcomeStage as OutcomeStage
    from ackq.client.outcomes import outcome_group as outcome_group
    from ackq.client.publisher import Publisher as Publisher
    from ackq.client.receipts import Confirmation as Confirmation
    from ackq.client.receipts import Returned as Returned
    from ackq.client.security import Security as Security
    from ackq.client.session import Session as Session
    from ackq.client.settlement import Settlement as Settlement
    from ackq.client.stage import Stage as Stage
    from ackq.client.stage import StageWriter as StageWriter
    from ackq.client.stage import abort_batch as abort_batch
    from ackq.client.stage import commit_batch as commit_batch
    from ackq.client.transaction_flow import Committed as Committed
    from ackq.client.transactional import TransactionalPublisher as TransactionalPublisher

_HOME = {
    "AcknowledgeMode": "modes",
    "Admin": "admin",
    "AsyncChannel": "async_consumer",
    "AsyncConsumer": "async_consumer",
    "Channel": "consumer",
    "Committed": "transaction_flow",
    "Confirmation": "receipts",
    "Consumer": "consumer",
    "Hold": "hold",
    "Message": "message",
    "Outcome": "modes",
    "OutcomeStage": "outcomes",
    "Publisher": "publisher",
    "Returned": "receipts",
    "Security": "security",
    "Session": "session",
    "Settlement": "settlement",
    "Stage": "stage",
    "StageWriter": "stage",
    "TransactionalPublisher": "transactional",
    "abort_batch": "stage",
    "channel": "channels",
    "close_channels": "channels",
    "commit_batch": "stage",
    "holder": "hold",
    "outcome_group": "outcomes",
    "wait_ready": "health",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the one table above names them


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
