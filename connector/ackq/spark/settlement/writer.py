"""The settling write: tasks stage what becomes of messages, the driver commits it (S6, K8).

Nothing of it counts before the commit, and then only with Spark's checkpoint: the broker applies
the outcomes in the record that accepts the batch.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ackq.errors import BrokerUnavailableError, InvalidArgumentError
from ackq.spark import connections, task
from ackq.spark.options.options import Connection, SettleOptions
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
class Owner:
    """Whose lease is settled: a session's, or the one that a query's run reads for a batch."""

    session: str
    query_id: str
    run_id: str
    batch_id: int

    @classmethod
    def of(cls, session: str, now: Task) -> Owner:
        """The owner of the rows that a task settles.

        Raises:
            InvalidArgumentError: Neither the option nor the task says whose rows they are.
        """
        if not session and not (now.query_id and now.run_id):
            raise InvalidArgumentError(
                "settle without a session: these rows are settled outside of a query's"
                " foreachBatch, so nothing says whose messages they are. Name the session"
                " that leases them: .option('session', 'name') (`ackq session list` shows it)."
                " Inside foreachBatch that is needed on Spark Connect, and in threads that do not"
                " inherit Spark's local properties.",
                option="session",
            )
        return cls(session, now.query_id, now.run_id, now.batch_id)

    def message(self) -> pb.LeaseOwner:
        """As the broker takes it."""
        return pb.LeaseOwner(
            session=self.session,
            query_id=self.query_id,
            run_id=self.run_id,
            batch_id=self.batch_id,
        )


@dataclass(frozen=True)
class Settled(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        owner: Whose lease it settled.
        stage: The sealed stage; None when the task had no rows.
    """

    owner: Owner
    stage: OutcomeStage | None


class AckqSettlementWriter(DataSourceArrowWriter):
    """A settling write. Spark pickles this one instance into the tasks and the commit.

    Args:
        options: What holds for all rows.
        schema: The rows' columns.
        connect: Gives the client of a connection.

    Raises:
        SchemaError: A column is missing, unknown, or of the wrong type.
    """

    def __init__(
        self,
        options: SettleOptions,
        schema: StructType,
        connect: Callable[[Connection], Session] = connections.session,
    ) -> None:
        self._options = options
        self._names = rows.check(options, schema)
        self._connect = connect

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages what becomes of one task's messages.

        The stage id is random for each call, so an attempt that lost is never named by the commit.

        Raises:
            InvalidArgumentError: No session is known, `foreachBatch` hides the run of its query, or
                a row says what it cannot.
            SchemaError: A row has no tag or no outcome.
            SessionNotFoundError: No such session, or this query leases no messages for this batch.
            FencedError: Another reader has the session by now (S3).
            UnknownDeliveryTagError: A tag is not in the lease.
            PreconditionFailedError: REJECTED on a queue without a dead-letter queue, no `discard`.
            BrokerUnavailableError: As it says.
        """
        now = task.current()
        now.check_run("settle")
        owner = Owner.of(self._options.session, now)
        frames = rows.frames(self._options, self._names, iterator)
        first = next(frames, None)
        if first is None:
            return Settled(owner, None)
        stage = self._connect(self._options.connection).stage_outcomes(
            owner.message(),
            secrets.token_bytes(_ID_BYTES),
            now.label,
            chain([first], frames),
            discard=self._options.discard,
        )
        return Settled(owner, stage)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the outcomes of all tasks effective together; repeating it changes nothing.

        Without a single row too: it takes back what an older run of the batch said (S6).

        Raises:
            StageMismatchError: A stage is missing or short; nothing became effective.
            AckqError: As `write`.
        """
        owner, stages = _gathered(messages)
        if owner is None:
            return
        answer = self._connect(self._options.connection).commit_outcomes(owner.message(), stages)
        if answer.accepted_before and owner.query_id:
            _log.info(
                "Batch %d is run again and was accepted before, with the outcomes it had then.",
                owner.batch_id,
            )
        elif answer.accepted_before:
            _log.warning(
                "The batch of session '%s' with these %d rows was accepted before, with the"
                " outcomes it had then; nothing of what was settled now counts. That is right if"
                " the batch is run again.",
                owner.session,
                answer.tags,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drops the stages of this try. Asked of the broker once: the rest goes with the lease."""
        _, stages = _gathered(messages)
        if not stages:
            return
        once = replace(self._options.connection, retry_ms=0)
        try:
            self._connect(once).abort_outcomes([stage.stage_id for stage in stages])
        except BrokerUnavailableError as error:
            _log.warning(
                "%d stages of outcomes were not dropped, as no broker answered at %s (%s). They go"
                " when their batch is accepted.",
                len(stages),
                once.endpoint,
                error.fields.get("cause"),
            )


def _gathered(
    messages: list[WriterCommitMessage | None],
) -> tuple[Owner | None, list[OutcomeStage]]:
    """The one owner, and the stages by partition; a failed task has none."""
    settled = [message for message in messages if isinstance(message, Settled)]
    if not settled:
        return None, []
    owner = settled[0].owner
    assert all(message.owner == owner for message in settled), "tasks of one write disagree on it"
    return owner, [message.stage for message in settled if message.stage is not None]
