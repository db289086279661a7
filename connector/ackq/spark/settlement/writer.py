"""The settling write: tasks stage outcomes, the driver commits them (S6, K8).

Invariant: outcomes take effect only after the commit and with Spark's checkpoint, as the broker
applies them in the record that accepts the batch.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ackq.client.connection.broker import Broker
from ackq.errors import BrokerUnavailableError, InvalidArgumentError, SessionNotFoundError
from ackq.spark import connections, task
from ackq.spark.options.options import SettleOptions
from ackq.spark.schema import EDGE
from ackq.spark.settlement import rows
from ackq.spark.task import Task
from ackq.v1 import sessions_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ackq.client import OutcomeStage, Session

_log: Final = logging.getLogger("ackq.spark")
_ID_BYTES: Final = 16


@dataclass(frozen=True)
class TaskSettled(WriterCommitMessage):
    """Commit message of a task.

    Attributes:
        owner: The lease that it settles: a session's, or the one that a query's run reads for a
            batch.
        stages: The sealed stages by endpoint; none of an edge of which the task had no rows.
    """

    owner: pb.LeaseOwner
    stages: dict[str, OutcomeStage]


class AckqSettlementWriter(DataSourceArrowWriter):
    """Writer of outcomes. Spark pickles one instance into the tasks and the commit.

    Args:
        options: The write's options, which hold for all rows.
        schema: The rows' columns.
        connect: Returns the client of a broker.

    Raises:
        SchemaError: A column is missing, unknown, or of the wrong type.
    """

    def __init__(
        self,
        options: SettleOptions,
        schema: StructType,
        connect: Callable[[Broker], Session] = connections.session,
    ) -> None:
        self._options = options
        self._names = rows.check(options, schema)
        self._connect = connect

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the outcomes of one task's messages.

        The stage id is random for each call, so the commit never names a losing attempt's stage.

        Raises:
            InvalidArgumentError: No session is known, `foreachBatch` hides the run of its query, or
                a row has an invalid value.
            SchemaError: A row has no tag or no outcome.
            SessionNotFoundError: No such session, or this query leases no messages for this batch.
            FencedError: Another reader has taken the session over (S3).
            UnknownDeliveryTagError: A tag is not in the lease.
            PreconditionFailedError: REJECTED on a queue without a dead-letter queue, no `discard`.
            BrokerUnavailableError: As named.
        """
        now = task.current()
        now.check_run("settle")
        owner = _lease_owner(self._options.session, now)
        batches: Mapping[str, Iterable[pa.RecordBatch]] = {self._options.broker.endpoint: iterator}
        if EDGE in self._names:
            batches = rows.by_edge(self._options.endpoints, iterator)
        stages: dict[str, OutcomeStage] = {}
        for broker in self._options.edges:
            frames = rows.frames(self._options, self._names, batches[broker.endpoint])
            if (first := next(frames, None)) is not None:
                stages[broker.endpoint] = self._connect(broker).stage_outcomes(
                    owner,
                    secrets.token_bytes(_ID_BYTES),
                    now.label,
                    chain([first], frames),
                    discard=self._options.discard,
                )
        return TaskSettled(owner, stages)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the outcomes of all tasks effective together; idempotent.

        A commit without rows counts: it replaces the outcomes of an older run of the batch (S6).
        Several edges are committed one by one: the next run of the batch finishes a settle call
        that a crash ended between two (S12).

        Raises:
            StageMismatchError: A stage is missing or short; nothing of it became effective.
            AckqError: As `write`.
        """
        owner, stages = _gathered(messages)
        if owner is None:
            return
        for broker in self._options.edges:
            named = stages.get(broker.endpoint, [])
            try:
                self._note(owner, self._connect(broker).commit_outcomes(owner, named))
            except SessionNotFoundError:
                # An edge without rows in the batch has no lease for it.
                if named or len(self._options.edges) == 1:
                    raise

    def _note(self, owner: pb.LeaseOwner, answer: pb.CommitOutcomesResponse) -> None:
        """Logs that the settled batch was accepted before."""
        if answer.accepted_before and owner.query_id:
            _log.info(
                "Batch %d is run again and was accepted before; its earlier outcomes stay.",
                owner.batch_id,
            )
        elif answer.accepted_before:
            _log.warning(
                "The batch of session '%s' with these %d rows was accepted before; its"
                " earlier outcomes stay, and the outcomes of this write have no effect. This is"
                " right if the batch is run again.",
                owner.session,
                answer.tags,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drops the stages of this attempt; not retried, as the rest is dropped with the lease."""
        _, stages = _gathered(messages)
        for broker in self._options.edges:
            named = stages.get(broker.endpoint, [])
            try:
                if named:
                    once = self._connect(replace(broker, retry_ms=0))
                    once.abort_outcomes([stage.stage_id for stage in named])
            except BrokerUnavailableError as error:
                _log.warning(
                    "%d stages of outcomes were not dropped, as no broker answered at %s (%s)."
                    " They are dropped when their batch is accepted.",
                    len(named),
                    broker.endpoint,
                    error.fields.get("cause"),
                )


def _lease_owner(session: str, now: Task) -> pb.LeaseOwner:
    """The owner of the lease that a task settles.

    Raises:
        InvalidArgumentError: Neither the option nor the task identifies the lease.
    """
    if not session and not (now.query_id and now.run_id):
        raise InvalidArgumentError(
            "settle without a session: these rows are settled outside of a query's"
            " foreachBatch, so their lease is unknown. Name the session"
            " that leases them: .option('session', 'name') (`ackq session list` shows it)."
            " Inside foreachBatch that is needed on Spark Connect, and in threads that do not"
            " inherit Spark's local properties.",
            option="session",
        )
    return pb.LeaseOwner(
        session=session, query_id=now.query_id, run_id=now.run_id, batch_id=now.batch_id
    )


def _gathered(
    messages: list[WriterCommitMessage | None],
) -> tuple[pb.LeaseOwner | None, dict[str, list[OutcomeStage]]]:
    """The owner of the lease, and each edge's stages by partition; a failed task has none."""
    settled = [message for message in messages if isinstance(message, TaskSettled)]
    if not settled:
        return None, {}
    owner = settled[0].owner
    assert all(message.owner == owner for message in settled), "tasks of one write disagree on it"
    stages: dict[str, list[OutcomeStage]] = {}
    for message in settled:
        for endpoint, stage in message.stages.items():
            stages.setdefault(endpoint, []).append(stage)
    return owner, stages
