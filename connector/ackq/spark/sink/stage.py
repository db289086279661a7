"""The sink's four steps towards the broker: stage, commit, abort, and for at-least-once publish.

Whatever a task has uploaded counts for nothing until a commit names it: an attempt may be killed
without a word, or go on after the batch was committed or aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

# Its names import gRPC at first use, so that Spark's planning workers, which call nobody, start
# fast.
from ackq import client, limits
from ackq.errors import BrokerUnavailableError
from ackq.spark.options.options import SinkOptions
from ackq.spark.sink.rows import Addressed

if TYPE_CHECKING:
    from ackq.client import Stage

_log: Final = logging.getLogger("ackq.spark")


@dataclass(frozen=True)
class Batch:
    """The batch that a stage belongs to.

    Attributes:
        writer: The streaming query's id, or for a batch write its transaction and target.
        batch_id: The micro-batch, or the transaction's version.
        run_id: This run of the query; outside of one, the write.
        execution_id: The SQL execution of a batch write, where the query's run is known (K12).
        single: A batch write without a transaction: its writer commits nothing else.
    """

    writer: str
    batch_id: int
    run_id: str
    execution_id: str = ""
    single: bool = False


def target(options: SinkOptions) -> str:
    """What a transaction writes to, as far as options fix it (K12).

    A queue and an exchange of one name are two targets, and so are two keys of one exchange.
    """
    if options.queue is not None:
        return f"queue/{options.queue}"
    # Of the parts only the last may hold a slash.
    fixed = "columns"
    if options.exchange is not None:
        fixed = f"exchange/{quote(options.exchange, safe='')}"
    return fixed if options.routing_key is None else f"{fixed}/{options.routing_key}"


def stage(
    options: SinkOptions, batch: Batch, label: str, parts: Iterator[Addressed]
) -> Stage | None:
    """Uploads one task's rows as a stage and seals it.

    Returns:
        The stage, on the broker's disk; None when there were no rows.

    Raises:
        UnroutableError: No queue wants a row, `mandatory` is on, and there is no `unroutableQueue`.
        QueueNotFoundError: A row should go to the `unroutableQueue`, and there is none.
        NackError: The broker cannot take the rows, for the reason it gives.
        BrokerUnavailableError: It is gone; the task may be tried again.
    """
    first = next(parts, None)
    if first is None:
        return None
    # An upload that was cut can not go on, and a failed task is tried again at once; so the wait
    # for a broker that restarts is here, before there is anything to lose. It costs one call.
    client.wait_ready(
        options.connection.endpoint,
        options.connection.retry_ms / 1000,
        security=options.connection.security,
    )
    writer = client.StageWriter(
        options.connection.endpoint,
        writer=batch.writer,
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        label=label,
        mandatory=options.mandatory,
        unroutable_queue=options.unroutable_queue or "",
        security=options.connection.security,
    )
    with writer:  # an upload that is left without a seal is dropped
        part: Addressed | None = first
        while part is not None:
            writer.write(part.batch, exchange=part.exchange, routing_key=part.routing_key)
            part = next(parts, None)
        return writer.seal()


def commit(options: SinkOptions, batch: Batch, stages: Sequence[Stage]) -> None:
    """Makes the stages visible together, once per (writer, batch), in this order (K3).

    A repetition writes nothing; what may be a mistake about it is told in the driver's log.

    Raises:
        StageMismatchError: A stage is missing or short: nothing became visible.
        BatchOrderError: A later batch of this writer is committed, or its version was used in this
            run (K12).
        BrokerUnavailableError: It is gone; committing again is safe.
    """
    answer = client.commit_batch(
        options.connection.endpoint,
        writer=batch.writer,
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        execution_id=batch.execution_id,
        stages=stages,
        single=batch.single,
        retry_total_ms=options.connection.retry_ms,
        security=options.connection.security,
    )
    if answer.repeated:
        _tell_repeated(options, batch, sum(stage.rows for stage in stages), answer.rows)


def _tell_repeated(options: SinkOptions, batch: Batch, rows: int, before: int) -> None:
    """Warns of a repetition that may be none (K12), or is one of other rows (K3)."""
    if options.txn_app_id is not None and not batch.execution_id and rows:
        # On Spark Connect, and outside of queries, two writes of one version can not be told apart.
        _log.warning(
            "%d rows were not written again: txnVersion %d of txnAppId '%s' was committed to '%s'"
            " before, with %d rows. If this is no repetition but a second write of the same batch,"
            " or another query, its rows are missing there: it needs a txnAppId of its own.",
            rows,
            batch.batch_id,
            options.txn_app_id,
            target(options),
            before,
        )
    elif rows != before:
        _log.warning(
            "Batch %d of writer '%s' was committed before, with %d rows. It was run again with %d"
            " rows, and they were not written: the batch is not the same each time it runs.",
            batch.batch_id,
            batch.writer,
            before,
            rows,
        )


def abort(options: SinkOptions, batch: Batch, stages: Sequence[Stage]) -> None:
    """Drops the stages of one try; the batch itself may be committed already, or come again.

    Asked of the broker once: what an abort cannot drop, the batch's next run does, and a query that
    stops must not wait for a broker that is gone.
    """
    try:
        client.abort_batch(
            options.connection.endpoint,
            writer=batch.writer,
            batch_id=batch.batch_id,
            stage_ids=[stage.stage_id for stage in stages],
            retry_total_ms=0,
            security=options.connection.security,
        )
    except BrokerUnavailableError as error:
        _log.warning(
            "%d stages of batch %d were not dropped, as no broker answered at %s (%s). They go when"
            " the batch runs again, or after %d days.",
            len(stages),
            batch.batch_id,
            options.connection.endpoint,
            error.fields.get("cause"),
            limits.STAGE_RETENTION_S // 86_400,
        )


def publish(options: SinkOptions, parts: Iterator[Addressed]) -> int:
    """Publishes one task's rows and waits for every confirm (K4).

    Returns:
        The number of rows, each confirmed.

    Raises:
        UnroutableError: A row came back, and `mandatory` is on.
        NackError: The broker cannot take a row, for the reason it gives.
        BrokerUnavailableError, OutcomeUnknownError: As they say; the task may be tried again.
    """
    rows = 0
    with client.Publisher(
        options.connection.endpoint,
        mandatory=options.mandatory,
        retry_total_ms=options.connection.retry_ms,
        security=options.connection.security,
    ) as publisher:
        for part in parts:
            publisher.publish_batch(
                part.batch, exchange=part.exchange, routing_key=part.routing_key
            )
            rows += part.batch.num_rows
        publisher.flush()
    return rows
