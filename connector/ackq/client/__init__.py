"""Python client of an ackq broker, without Spark.

Publishes with confirms or in transactions, consumes with acknowledgements, reads sessions, stages
writer batches and administers the broker.

Names are imported on first use, so that a process that only needs `Security` does not import gRPC
and Arrow (0.2 s and more in each of Spark's Python processes).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackq.client.admin import Admin as Admin
    from ackq.client.connection.broker import Broker as Broker
    from ackq.client.connection.grpc_channels import close_channels as close_channels
    from ackq.client.connection.grpc_channels import grpc_channel as grpc_channel
    from ackq.client.connection.health import wait_ready as wait_ready
    from ackq.client.connection.security import Security as Security
    from ackq.client.consuming.async_channel import AsyncChannel as AsyncChannel
    from ackq.client.consuming.async_channel import AsyncConsumer as AsyncConsumer
    from ackq.client.consuming.channel import Channel as Channel
    from ackq.client.consuming.channel import Consumer as Consumer
    from ackq.client.consuming.message import Message as Message
    from ackq.client.consuming.settlement import Settlement as Settlement
    from ackq.client.consuming.stream import Reconnected as Reconnected
    from ackq.client.outcomes import AcknowledgeMode as AcknowledgeMode
    from ackq.client.outcomes import ModeName as ModeName
    from ackq.client.publishing.async_publisher import AsyncPublisher as AsyncPublisher
    from ackq.client.publishing.confirmations import Confirmation as Confirmation
    from ackq.client.publishing.publisher import Publisher as Publisher
    from ackq.client.publishing.receipts import Returned as Returned
    from ackq.client.publishing.stage import Stage as Stage
    from ackq.client.publishing.stage import StageWriter as StageWriter
    from ackq.client.publishing.stage import abort_batch as abort_batch
    from ackq.client.publishing.stage import commit_batch as commit_batch
    from ackq.client.publishing.stage import prepare_batch as prepare_batch
    from ackq.client.publishing.transaction_state import Committed as Committed
    from ackq.client.publishing.transactional import (
        TransactionalPublisher as TransactionalPublisher,
    )
    from ackq.client.sessions.liveness_stream import LivenessStream as LivenessStream
    from ackq.client.sessions.liveness_stream import holder as holder
    from ackq.client.sessions.outcomes import OutcomeStage as OutcomeStage
    from ackq.client.sessions.outcomes import outcome_group as outcome_group
    from ackq.client.sessions.session import Session as Session
    from ackq.info import DeathCause as DeathCause
    from ackq.info import ExchangeKind as ExchangeKind
    from ackq.info import OverflowName as OverflowName
    from ackq.outcomes import Outcome as Outcome
    from ackq.outcomes import OutcomeName as OutcomeName

# The messages that gRPC's C library writes to stderr are in the error of the call as well. It reads
# this variable when `grpc` is imported, which all imports below do after this line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_HOME = {
    "AcknowledgeMode": "outcomes",
    "Admin": "admin",
    "AsyncChannel": "consuming.async_channel",
    "AsyncConsumer": "consuming.async_channel",
    "AsyncPublisher": "publishing.async_publisher",
    "Broker": "connection.broker",
    "Channel": "consuming.channel",
    "Committed": "publishing.transaction_state",
    "Confirmation": "publishing.confirmations",
    "Consumer": "consuming.channel",
    "DeathCause": "admin",
    "ExchangeKind": "admin",
    "LivenessStream": "sessions.liveness_stream",
    "Message": "consuming.message",
    "ModeName": "outcomes",
    "Outcome": "outcomes",
    "OutcomeName": "outcomes",
    "OutcomeStage": "sessions.outcomes",
    "OverflowName": "admin",
    "Publisher": "publishing.publisher",
    "Reconnected": "consuming.stream",
    "Returned": "publishing.receipts",
    "Security": "connection.security",
    "Session": "sessions.session",
    "Settlement": "consuming.settlement",
    "Stage": "publishing.stage",
    "StageWriter": "publishing.stage",
    "TransactionalPublisher": "publishing.transactional",
    "abort_batch": "publishing.stage",
    "close_channels": "connection.grpc_channels",
    "commit_batch": "publishing.stage",
    "prepare_batch": "publishing.stage",
    "grpc_channel": "connection.grpc_channels",
    "holder": "sessions.liveness_stream",
    "outcome_group": "sessions.outcomes",
    "wait_ready": "connection.health",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the one table above names them


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for notebooks and shells that complete them."""
    return sorted({*globals(), *_HOME})
