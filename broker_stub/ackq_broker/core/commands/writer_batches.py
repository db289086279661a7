"""Commands of writers, whose batches become visible as a whole (K3, K12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands.decision import Command, Routes
from ackq_broker.core.fields import Expiry
from ackq_broker.core.stages import EdgeStages, StageRef


class BatchKey(NamedTuple):
    """Key of a batch: its writer and its batch id."""

    writer: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class OpenStage(Command):
    """Opens a stage of a writer's batch. Reply: None.

    Errors: BatchOrderError (batch already passed), FencedError (stage id used), LimitError,
    HistoryChangedError (Q8), WriterForgottenError, PermissionDeniedError (another user's writer),
    InvalidArgumentError (a batch id above 2^62). A `single` writer commits only this batch, and
    nobody can run it again. `user` is empty where there are no users (A10), in this command and the
    following ones.
    """

    stage_id: bytes
    writer: str
    batch_id: int
    run_id: str
    label: str = ""
    mandatory: bool = True
    single: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class StageBlock(Command):
    """Adds a block to a stage. Reply: `StagedBlock`.

    Rows that match no queue go to `unroutable_queue`, if one is named. Errors: UnroutableError,
    QueueFullError, QueueNotFoundError (no such `unroutable_queue`), ExchangeNotFoundError,
    FencedError (the stage was dropped meanwhile). On an error nothing of the block is kept. `sizes`
    are the payload bytes of each row; None when all are equal (Q3).
    """

    stage_id: bytes
    exchange: str
    routes: Routes
    rows: int
    payload_bytes: int
    expiries: tuple[Expiry, ...] = ()
    unroutable_queue: str = ""
    sizes: Int64s | None = None


class StagedBlock(NamedTuple):
    """Reply to `StageBlock`; `block_id` is None when no row matched a queue (not mandatory)."""

    rows: int
    block_id: int | None


@dataclass(frozen=True, slots=True)
class SealStage(Command):
    """Seals a stage, which is complete then. Reply: None.

    Errors: StageMismatchError (counts differ from what arrived), FencedError.
    """

    stage_id: bytes
    rows: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class DropStage(Command):
    """Drops a stage whose upload ended without a seal. Reply: None.

    Unknown or sealed stages are left alone.
    """

    stage_id: bytes


@dataclass(frozen=True, slots=True)
class CommitBatch(Command):
    """Commits a writer's batch. Reply: `CommittedBatch`.

    Errors: StageMismatchError, BatchOrderError, BatchChangedError, HistoryChangedError, LimitError,
    WriterForgottenError, OutcomeUnknownError (a `single` writer that was forgotten since),
    PermissionDeniedError (another user's writer), InvalidArgumentError (a number above 2^62).

    Attributes:
        single: The writer commits no other batch, so that it can be forgotten.
        target: Where the rows go, as far as the writer fixes it; empty: nothing is compared.
        keep_changed: Treat a repetition with another target, count or run as done; with `finish`,
            pass over stages that an operator dropped.
        prepare: Keep the stages until the batch is finished, and make nothing visible (K14).
        finish: The batch is committed at its home.
        edges: The edges of the batch; empty: one broker, or with `prepare` only a look.
        others: At the home: the stages at the other edges.
    """

    writer: str
    batch_id: int
    run_id: str
    execution_id: str
    stages: tuple[StageRef, ...]
    single: bool = False
    target: str = ""
    keep_changed: bool = False
    user: str = ""
    prepare: bool = False
    finish: bool = False
    edges: str = ""
    others: tuple[EdgeStages, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of all stages, as their writer counted them."""
        return sum(stage.rows for stage in self._every_stage())

    @property
    def payload_bytes(self) -> int:
        """Payload bytes of all stages, as their writer counted them."""
        return sum(stage.payload_bytes for stage in self._every_stage())

    def _every_stage(self) -> Iterator[StageRef]:
        return chain(self.stages, *(edge.stages for edge in self.others))


class CommittedBatch(NamedTuple):
    """Reply to `CommitBatch`: the batch as committed, now or before, or as prepared."""

    rows: int
    repeated: bool
    target: str = ""
    edges: str = ""
    others: tuple[EdgeStages, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortBatch(Command):
    """Drops stages of a writer's batch. Reply: int, stages dropped.

    Errors: PermissionDeniedError (another user's writer).
    """

    writer: str
    batch_id: int
    stage_ids: tuple[bytes, ...]
    user: str = ""


@dataclass(frozen=True, slots=True)
class DropBatch(Command):
    """An operator drops a staged batch. Reply: `DroppedBatch`.

    Errors: BatchNotFoundError; InUseError while a task writes to it, unless `force`.
    """

    batch: BatchKey
    force: bool = False


class DroppedBatch(NamedTuple):
    """Reply to `DropBatch`."""

    stages: int
    rows: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class ForgetWriter(Command):
    """An operator forgets a writer. Reply: bool, False when it was forgotten before.

    Errors: WriterNotFoundError, LimitError; InUseError when it has stages, or when it was active
    within a day, unless `force`.
    """

    writer: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class AssignWriter(Command):
    """An operator assigns a writer to a user. Reply: str, the previous owner; empty for nobody.

    Errors: WriterNotFoundError.
    """

    writer: str
    user: str
