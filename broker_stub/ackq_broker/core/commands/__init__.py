"""What the core can be asked (commands) and what it answers (replies).

It is the whole interface between service and core, and holds no behaviour.

Commands that change state go through `Core.decide`, which returns a `Decision`; queries are plain
methods that read. Times are microseconds since the Unix epoch by the broker's own clock, which
never runs backwards (Q8).
"""

from __future__ import annotations

from ackq_broker.core.commands.decision import (
    Decision,
    Route,
)
from ackq_broker.core.commands.housekeeping import (
    Housekeep,
    Start,
    Started,
)
from ackq_broker.core.commands.publishing import (
    ClosePublisherStream,
    Nack,
    OpenPublisher,
    Publish,
    Published,
)
from ackq_broker.core.commands.sessions import (
    Advance,
    Advanced,
    Attach,
    Attached,
    Backlog,
    Chunk,
    HolderInfo,
    ReleaseSession,
)
from ackq_broker.core.commands.topology import (
    Bind,
    DeclaredQueue,
    DeclareExchange,
    DeclareQueue,
    DeletedQueue,
    DeleteExchange,
    DeleteQueue,
    PurgeQueue,
    QueueProperties,
    Unbind,
)
from ackq_broker.core.commands.views import (
    BrowseChunk,
    ExchangeInfo,
    FetchLabel,
    Piece,
    QueueInfo,
    Run,
    SessionInfo,
)
from ackq_broker.core.commands.writing import (
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
    | OpenStage
    | StageBlock
    | SealStage
    | DropStage
    | CommitBatch
    | AbortBatch
    | Advance
    | Attach
    | ReleaseSession
    | Start
    | Housekeep
)

__all__ = [
    "AbortBatch",
    "Advance",
    "Advanced",
    "Attach",
    "Attached",
    "Backlog",
    "Bind",
    "BrowseChunk",
    "Chunk",
    "ClosePublisherStream",
    "Command",
    "CommitBatch",
    "CommittedBatch",
    "Decision",
    "DeclareExchange",
    "DeclareQueue",
    "DeclaredQueue",
    "DeleteExchange",
    "DeleteQueue",
    "DeletedQueue",
    "DropStage",
    "ExchangeInfo",
    "FetchLabel",
    "HolderInfo",
    "Housekeep",
    "Nack",
    "OpenPublisher",
    "OpenStage",
    "Piece",
    "Publish",
    "Published",
    "PurgeQueue",
    "QueueInfo",
    "QueueProperties",
    "ReleaseSession",
    "Route",
    "Run",
    "SealStage",
    "SessionInfo",
    "StageBlock",
    "StageRef",
    "StagedBlock",
    "Start",
    "Started",
    "Unbind",
]
