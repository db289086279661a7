"""The sink's calls to the broker: stage, commit, abort, and publish for at-least-once.

Invariant: uploaded rows stay invisible until a commit names their stage. A task attempt may be
killed at any point, or run on after its batch was committed or aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

# Its names import gRPC at first use: Spark's planning workers make no call and start faster.
from ackq import client, limits
from ackq.errors import BrokerUnavailableError
from ackq.spark import connections
from ackq.spark.options.options import SinkOptions
from ackq.spark.sink import edges
from ackq.spark.sink.rows import RoutedBatch

if TYPE_CHECKING:
    from ackq.client import Stage
    from ackq.v1.publishing_pb2 import CommitBatchResponse, PrepareBatchResponse

_log: Final = logging.getLogger("ackq.spark")


@dataclass(frozen=True)
class WriterBatch:
    """Identity of the batch that a stage belongs to (K3, K12).

    Attributes:
        writer: The streaming query's id; of a batch write, its transaction and target.
        batch_id: The micro-batch, or the transaction's version.
        run_id: The run of the query; outside of one, of the write.
        execution_id: The SQL execution of a batch write, where the query's run is known (K12).
        single: A batch write without a transaction: its writer commits only this batch.
    """

    writer: str
    batch_id: int
    run_id: str
    execution_id: str = ""
    single: bool = False


def target(options: SinkOptions) -> str:
    """Name of a transaction's target, as far as options determine it (K12).

    A queue and an exchange of one name are two targets, and so are two keys of one exchange.
    """
    if options.queue is not None:
        return f"queue/{options.queue}"
    # Only the last part may contain a slash.
    fixed = "columns"
    if options.exchange is not None:
        fixed = f"exchange/{quote(options.exchange, safe='')}"
    return fixed if options.routing_key is None else f"{fixed}/{options.routing_key}"


def transaction(options: SinkOptions) -> str:
    """Name of the writer of a batch write with a `txnAppId` (K12)."""
    return f"txn/{quote(options.txn_app_id or '', safe='')}/{target(options)}"


def stage(
    options: SinkOptions, batch: WriterBatch, label: str, parts: Iterator[RoutedBatch]
) -> dict[str, Stage]:
    """Uploads one task's rows as a stage at each edge that they go to, and seals them.

    Returns:
        The stages by endpoint, durable at their brokers; none where there were no rows.

    Raises:
        UnroutableError: A row is unroutable, `mandatory` is on, and there is no `unroutableQueue`.
        QueueNotFoundError: The `unroutableQueue` does not exist.
        NackError: The broker refuses the rows, for the reason it gives.
        BrokerUnavailableError: No broker answers; the task may be retried.
    """
    writers: dict[str, client.StageWriter] = {}
    with ExitStack() as uploads:  # drops uploads that were not sealed
        for name, part in edges.split(options.endpoints, options.shard_by, label, parts):
            if name not in writers:
                # An interrupted upload cannot resume, and Spark retries a failed task at once: so a
                # broker that restarts is waited for before anything is uploaded: one more call.
                broker = options.at(name)
                connections.wait_ready(broker)
                writers[name] = uploads.enter_context(
                    client.StageWriter(
                        broker,
                        writer=batch.writer,
                        batch_id=batch.batch_id,
                        run_id=batch.run_id,
                        label=label,
                        mandatory=options.mandatory,
                        unroutable_queue=options.unroutable_queue or "",
                        single=batch.single,
                    )
                )
            writers[name].write(part.batch, exchange=part.exchange, routing_key=part.routing_key)
        return {name: writer.seal() for name, writer in writers.items()}


def commit(options: SinkOptions, batch: WriterBatch, stages: Mapping[str, Sequence[Stage]]) -> None:
    """Makes the stages visible together, in this order, once per (writer, batch): idempotent (K3).

    A repeated commit publishes nothing; one that looks unintended is logged as a warning.

    Raises:
        StageMismatchError: A stage is missing or short, or a queue that it has rows for was
            deleted; nothing became visible.
        BatchOrderError: A later batch of this writer is committed, or its version was used in this
            run (K12).
        BatchChangedError: The batch was committed as another one, and `changedBatch` is not "keep".
        BrokerUnavailableError: No broker answers; committing again is safe.
    """
    own: dict[str, Any] = {"writer": batch.writer, "batch_id": batch.batch_id}
    own |= {"run_id": batch.run_id, "single": batch.single, "target": target(options)}

    def prepare(
        name: str, named: Sequence[Stage], known_as: str, **fields: Any
    ) -> PrepareBatchResponse:
        known = {**own, **fields}
        return client.prepare_batch(options.at(name), stages=named, edges=known_as, **known)

    def commit_at(name: str, named: Sequence[Stage], **fields: Any) -> CommitBatchResponse:
        # Only the commit itself, at the home, belongs to one write of a version (K12).
        other = fields.get("finish") or "batch_id" in fields
        known: dict[str, Any] = {"execution_id": "" if other else batch.execution_id}
        known |= {"keep_changed": options.keep_changed, **own, **fields}
        try:
            return client.commit_batch(options.at(name), stages=named, **known)
        except BrokerUnavailableError as error:
            removed = fields.get("finish") and name not in options.endpoints
            if not (removed and options.keep_changed):
                raise
            told = "%s changedBatch=keep: batch %d goes on without its rows at edge %s."
            _log.warning(told, error, known["batch_id"], name)
            from ackq.v1.publishing_pb2 import CommitBatchResponse  # noqa: PLC0415 - loaded by now

            return CommitBatchResponse()

    at = {name: stages.get(name, ()) for name in options.endpoints}
    answer = edges.commit(batch.writer, at, prepare, commit_at)
    if answer.repeated:
        rows = sum(stage.rows for named in stages.values() for stage in named)
        _warn_of_repetition(options, batch, rows, answer)


def _warn_of_repetition(
    options: SinkOptions, batch: WriterBatch, rows: int, before: CommitBatchResponse
) -> None:
    """Warns of a repeated commit that may be another write (K12), or was changed (K3)."""
    was = before.target or target(options)
    if options.txn_app_id is not None and not batch.execution_id and rows:
        # On Spark Connect and outside of queries, two writes of one version are indistinguishable.
        _log.warning(
            "%d rows were not written again: txnVersion %d of txnAppId '%s' was committed to '%s'"
            " before, with %d rows. If this is not a repetition but a second write of the same"
            " batch, or of another query, its rows are missing in the target: give it a txnAppId of"
            " its own.",
            rows,
            batch.batch_id,
            options.txn_app_id,
            was,
            before.rows,
        )
    elif (rows, target(options)) != (before.rows, was):
        _log.warning(
            "Batch %d of writer '%s' was committed to '%s' before, with %d rows. It was run again"
            " with %d rows for '%s', which were not written.",
            batch.batch_id,
            batch.writer,
            was,
            before.rows,
            rows,
            target(options),
        )


def abort(options: SinkOptions, batch: WriterBatch, stages: Mapping[str, Sequence[Stage]]) -> None:
    """Drops the stages of one attempt; the batch itself may be committed already, or run again.

    Not retried: the batch's next run drops stages that an abort leaves, and a query that stops must
    not wait for a broker that does not answer.
    """
    for name, named in stages.items():
        try:
            client.abort_batch(
                replace(options.at(name), retry_ms=0),
                writer=batch.writer,
                batch_id=batch.batch_id,
                stage_ids=[stage.stage_id for stage in named],
            )
        except BrokerUnavailableError as error:
            _log.warning(
                "%d stages of batch %d were not dropped, as no broker answered at %s (%s). They"
                " hold room in their queues until %s, or until  ackq batch drop '%s' %d",
                len(named),
                batch.batch_id,
                name,
                error.fields.get("cause"),
                _end_of_stages(batch),
                batch.writer,
                batch.batch_id,
            )


def _end_of_stages(batch: WriterBatch) -> str:
    """Describes when the broker drops stages that nobody commits (K3)."""
    if batch.single:
        return f"{limits.SINGLE_STAGE_RETENTION_S // 3600} hours have passed"
    return f"the batch runs again, or {limits.STAGE_RETENTION_S // 86_400} days have passed"


def publish(options: SinkOptions, label: str, parts: Iterator[RoutedBatch]) -> int:
    """Publishes one task's rows and waits for all confirms (K4).

    Returns:
        The number of rows, all confirmed.

    Raises:
        UnroutableError: A row was returned, and `mandatory` is on.
        NackError: The broker refuses a row, for the reason it gives.
        BrokerUnavailableError, OutcomeUnknownError: As named; the task may be retried.
    """
    rows = 0
    with ExitStack() as open_publishers:
        publishers = {
            each.endpoint: open_publishers.enter_context(
                client.Publisher(each, mandatory=options.mandatory)
            )
            for each in options.edges
        }
        for name, part in edges.split(options.endpoints, options.shard_by, label, parts):
            publishers[name].publish_batch(
                part.batch, exchange=part.exchange, routing_key=part.routing_key
            )
            rows += part.batch.num_rows
        for publisher in publishers.values():
            publisher.flush()
    return rows
