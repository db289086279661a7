"""What the core can be asked (commands) and what it answers (replies).

It is the whole interface between service and core, and holds no behaviour.

Commands that change state go through `Core.decide`, which returns a `Decision`; queries are plain
methods that read. Times are microseconds since the Unix epoch by the broker's own clock, which
never runs backwards (Q8).
"""

from __future__ import annotations

from ackq_broker.core.commands.consuming import (
    CloseChannel,
    Deliver,
    Delivery,
    Redrive,
    Redriven,
    Settle,
    Settlement,
)
from ackq_broker.core.commands.decision import (
    Decision,
    Route,
)
from ackq_broker.core.commands.lifecycle import (
    AcceptHistory,
    HeldBack,
    Housekeep,
    Start,
    Started,
    Tick,
    Ticked,
)
from ackq_broker.core.commands.publishing import (
    ClosePublisherStream,
    CommittedTransaction,
    CommitTransaction,
    Nack,
    OpenPublisher,
    Publish,
    Published,
    RollbackTransaction,
    TransactedBlock,
    TransactionBlock,
)
from ackq_broker.core.commands.queues import (
    Bind,
    DeclaredQueue,
    DeclareExchange,
    DeclareQueue,
    DeletedQueue,
    DeleteExchange,
    DeleteQueue,
    PurgeQueue,
    Unbind,
)
from ackq_broker.core.commands.sessions import (
    AbortOutcomes,
    Advance,
    Advanced,
    Attach,
    Attached,
    Backlog,
    Chunk,
    CommitOutcomes,
    CommittedOutcomes,
    DetachSession,
    HeldElsewhere,
    HolderInfo,
    NoteFetch,
    OutcomeGroup,
    Owner,
    Released,
    ReleaseSession,
    SettledLease,
    SettleLease,
    StageOutcomes,
)
from ackq_broker.core.commands.views import (
    BrowseChunk,
    ExchangeInfo,
    FetchLabel,
    Origin,
    Piece,
    QueueInfo,
    Run,
    SessionInfo,
)
from ackq_broker.core.commands.writer_batches import (
    AbortBatch,
    CommitBatch,
    CommittedBatch,
    DropStage,
    OpenStage,
    SealStage,
    StageBlock,
    StagedBlock,
    StageRef,
)
from ackq_broker.core.values import Expiry, QueueProperties

Command = (
    DeclareQueue
    | DeleteQueue
    | PurgeQueue
    | DeclareExchange
    | DeleteExchange
    | Bind
    | Unbind
    | OpenPublisher
    | ClosePublisherStream
    | Publish
    | TransactionBlock
    | CommitTransaction
    | RollbackTransaction
    | OpenStage
    | StageBlock
    | SealStage
    | DropStage
    | CommitBatch
    | AbortBatch
    | Advance
    | Attach
    | ReleaseSession
    | DetachSession
    | NoteFetch
    | StageOutcomes
    | CommitOutcomes
    | AbortOutcomes
    | SettleLease
    | Deliver
    | Settle
    | CloseChannel
    | Redrive
    | Tick
    | Start
    | AcceptHistory
    | Housekeep
)

__all__ = [
    "AbortBatch",
    "AbortOutcomes",
    "AcceptHistory",
    "Advance",
    "Advanced",
    "Attach",
    "Attached",
    "Backlog",
    "Bind",
    "BrowseChunk",
    "Chunk",
    "CloseChannel",
    "ClosePublisherStream",
    "Command",
    "CommitBatch",
    "CommitOutcomes",
    "CommitTransaction",
    "CommittedBatch",
    "CommittedOutcomes",
    "CommittedTransaction",
    "Decision",
    "DeclareExchange",
    "DeclareQueue",
    "DeclaredQueue",
    "DeleteExchange",
    "DeleteQueue",
    "DeletedQueue",
    "Deliver",
    "Delivery",
    "DetachSession",
    "DropStage",
    "ExchangeInfo",
    "Expiry",
    "FetchLabel",
    "HeldBack",
    "HeldElsewhere",
    "HolderInfo",
    "Housekeep",
    "Nack",
    "NoteFetch",
    "OpenPublisher",
    "OpenStage",
    "Origin",
    "OutcomeGroup",
    "Owner",
    "Piece",
    "Publish",
    "Published",
    "PurgeQueue",
    "QueueInfo",
    "QueueProperties",
    "Redrive",
    "Redriven",
    "ReleaseSession",
    "Released",
    "RollbackTransaction",
    "Route",
    "Run",
    "SealStage",
    "SessionInfo",
    "Settle",
    "SettleLease",
    "SettledLease",
    "Settlement",
    "StageBlock",
    "StageOutcomes",
    "StageRef",
    "StagedBlock",
    "Start",
    "Started",
    "Tick",
    "Ticked",
    "TransactedBlock",
    "TransactionBlock",
    "Unbind",
]
