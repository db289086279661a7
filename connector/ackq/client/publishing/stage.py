"""Writes the stages of a writer batch and commits or aborts them (K3, K12).

Invariant: a stage counts only after `seal` has returned it; a writer that fails or is dropped
leaves nothing at the broker.
"""

from __future__ import annotations

import queue
import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.connection import calls, errors, retry
from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.errors import AckqError, ClosedError, InternalError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import block, frame


class Stage(NamedTuple):
    """A sealed stage with its writer's counts; travels in a task's commit message.

    Attributes:
        stage_id: 16 random bytes.
        rows: Rows in the stage.
        payload_bytes: Their payload bytes.
    """

    stage_id: bytes
    rows: int
    payload_bytes: int


class StageWriter:
    """Uploads the rows of one stage in frames of about 2 MiB; used by one thread.

    The stream is never resumed: after a disconnect the broker drops the stage, and the task runs
    again under a new one.

    Args:
        endpoint: `host:port`, or a `Broker`, which also has the security.
        writer: Name of the writer: the streaming query's id, or for batch writes the transaction's
            application and target.
        batch_id: The micro-batch, or the transaction version.
        run_id: The writer's present run.
        label: Partition and attempt, for operators.
        mandatory: Refuse unroutable rows, instead of dropping them.
        unroutable_queue: Put unroutable rows into this queue instead, with their routing key.
        single: As in `commit_batch`.
        security: Transport security.
    """

    def __init__(
        self,
        endpoint: str | Broker,
        *,
        writer: str,
        batch_id: int,
        run_id: str,
        label: str = "",
        mandatory: bool = True,
        unroutable_queue: str = "",
        single: bool = False,
        security: Security | None = None,
    ) -> None:
        self._broker = Broker.of(endpoint, security)
        self._stage_id = secrets.token_bytes(16)
        self._rows = 0
        self._payload_bytes = 0
        self._waiting: list[pa.RecordBatch] = []  # small batches that will share a frame
        self._waiting_bytes = 0
        self._destination = ("", "")
        self._unroutable_queue = unroutable_queue
        self._window: deque[tuple[int, int]] = deque()  # per frame: (rows up to its end, bytes)
        self._window_bytes = 0
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = False
        opening = pb.StageOpen(
            stage_id=self._stage_id,
            writer=writer,
            batch_id=batch_id,
            run_id=run_id,
            label=label,
            mandatory=mandatory,
            single=single,
        )
        self._put(pb.StageHeader(open=opening))
        self._call = calls.stage(grpc_channel(self._broker), _until_none(self._requests))

    def write(self, batch: pa.RecordBatch, *, exchange: str = "", routing_key: str = "") -> None:
        """Adds rows; waits while `STAGE_WINDOW_BYTES` are not yet on the broker's disk.

        Args:
            batch: As in `Publisher.publish_batch`.
            exchange: For all rows; empty: the default exchange, where the routing key names the
                queue.
            routing_key: For rows without one.

        Raises:
            SchemaError: A column is missing, unknown or of the wrong type.
            MessageTooLargeError: A row is over the size limit.
            InvalidArgumentError: A name is of a wrong type or over its limit.
            UnroutableError, QueueFullError, DiskFullError, ExchangeNotFoundError: The broker
                refuses earlier rows.
            BrokerUnavailableError: The stream was disconnected; the stage is lost.
            ClosedError: The writer was sealed or aborted.
        """
        self._check_open()
        encoding.check_exchange(exchange)
        encoding.check_routing_key(routing_key)
        ready = encoding.publishable(batch, routing_key=routing_key)
        if not ready.num_rows:
            return
        if self._waiting and (
            self._destination != (exchange, routing_key) or self._waiting[0].schema != ready.schema
        ):
            self._send_waiting()
        self._destination = (exchange, routing_key)
        for part in encoding.cut(ready):
            size = block.payload_bytes(part)
            if not self._fits(part.num_rows, size):
                self._send_waiting()
            self._waiting.append(part)
            self._waiting_bytes += size

    def seal(self) -> Stage:
        """Sends the remaining rows and waits until the stage is on the broker's disk.

        Closes the writer.

        Raises:
            StageMismatchError: The broker's counts differ; the stage is lost.
            AckqError: As `write`.
        """
        self._check_open()
        self._send_waiting()
        self._put(
            pb.StageHeader(seal=pb.StageSeal(rows=self._rows, payload_bytes=self._payload_bytes))
        )
        self._requests.put(None)
        while self._receive().WhichOneof("kind") != "sealed":
            pass
        self._closed = True
        return Stage(self._stage_id, self._rows, self._payload_bytes)

    def abort(self) -> None:
        """Ends the upload without a seal: the broker drops it. Does nothing after `seal`."""
        if not self._closed:
            self._closed = True
            self._call.cancel()
            self._requests.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Aborts the upload, unless the stage was sealed."""
        self.abort()

    def _fits(self, rows: int, size: int) -> bool:
        """Whether a part fits into one frame with the waiting batches."""
        held = sum(each.num_rows for each in self._waiting)
        return (
            self._waiting_bytes + size <= limits.FRAME_TARGET_BYTES
            and held + rows <= limits.FRAME_TARGET_ROWS
        )

    def _send_waiting(self) -> None:
        if not self._waiting:
            return
        exchange, routing_key = self._destination
        batch = _joined(self._waiting)
        keyed = "routing_key" in batch.schema.names
        header = block.header_of(
            batch,
            routing_key="" if keyed else routing_key,
            delivery_mode=encoding.delivery_mode(persistent=True),
        )
        content = block.parts_of(header, batch.serialize())
        size = sum(map(len, content))
        self._waiting, self._waiting_bytes = [], 0
        while self._window and self._window_bytes + size > limits.STAGE_WINDOW_BYTES:
            self._receive()
        if self._call.done():
            self._receive()  # raises the cause
        self._rows += header.rows
        self._payload_bytes += header.payload_bytes
        self._window.append((self._rows, size))
        self._window_bytes += size
        self._put(
            pb.StageHeader(
                data=pb.StageData(
                    rows=batch.num_rows,
                    exchange=exchange,
                    unroutable_queue=self._unroutable_queue,
                )
            ),
            *content,
        )

    def _receive(self) -> pb.StageResponse:
        """Waits for the next answer; its `stored` rows leave the window."""
        try:
            answer = next(self._call)
        except StopIteration:
            error: AckqError = InternalError(
                f"The broker at {self._broker.endpoint} ended a stage without an answer.",
                endpoint=self._broker.endpoint,
            )
            self.abort()
            raise error from None
        except grpc.RpcError as rpc:
            error = errors.from_rpc(rpc, self._broker)
            self.abort()
            raise error from rpc
        while self._window and self._window[0][0] <= answer.stored.rows:
            self._window_bytes -= self._window.popleft()[1]
        return answer

    def _put(self, header: pb.StageHeader, *content: frame.Bytes) -> None:
        self._requests.put(frame.encode(header.SerializeToString(), *content))

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(
                f"The stage {self._stage_id.hex()} was sealed or aborted; open another.",
                stage=self._stage_id.hex(),
            )


def commit_batch(
    endpoint: str | Broker,
    *,
    writer: str,
    batch_id: int,
    run_id: str,
    execution_id: str = "",
    stages: Sequence[Stage],
    single: bool = False,
    target: str = "",
    keep_changed: bool = False,
    finish: bool = False,
    edges: str = "",
    others: Mapping[str, Sequence[Stage]] | None = None,
    retry_total_ms: int = limits.RETRY_TOTAL_MS,
    security: Security | None = None,
) -> pb.CommitBatchResponse:
    """Commits a batch: its stages become visible together, in their order.

    Retried while no broker answers; the call is idempotent (K3).

    Args:
        endpoint: `host:port`, or a `Broker`, which also has the security.
        writer: As in `StageWriter`.
        batch_id: As in `StageWriter`.
        run_id: As in `StageWriter`.
        execution_id: Batch writes only: the SQL execution, where the run is known (K12).
        stages: In the order of their rows in the queue; none: an empty batch.
        single: The writer commits once and cannot be run again: the broker forgets its stages a day
            after it last heard of the writer, and the writer an hour after its commit.
        target: The destination of the rows, in the writer's own words. A repetition for another
            target, with another number of rows, or in a run that wrote an earlier batch is refused
            (K3). Empty: nothing is compared.
        keep_changed: Treat such a repetition as done instead; nothing is written.
        finish: The batch is committed at its home, another of its brokers (K14).
        edges: The batch's brokers, sorted, separated by commas; empty: one.
        others: At the home: the stages at the other brokers, by endpoint.
        retry_total_ms: Give up after this time without an answer.
        security: Transport security.

    Raises:
        StageMismatchError: A stage is missing, unsealed or short, or a queue that it has rows for
            was deleted; nothing became visible.
        BatchOrderError: A later batch of this writer was committed already, or this one by another
            execution of the same run (K12).
        BatchChangedError: This batch was committed with another number of rows, for another target,
            or while this run was at an earlier batch.
        HistoryChangedError: This writer began before the broker's journal was restored or repaired
            (Q8).
        WriterForgottenError: An operator had the broker forget this writer.
        OutcomeUnknownError: The broker no longer knows this `single` writer: whether an earlier
            call took effect is unknown.
        LimitError: The writer is new, and the broker already remembers as many as it can.
        BrokerUnavailableError: No answer; repeating the call shows whether it took effect.
    """
    request = pb.CommitBatchRequest(
        writer=writer,
        batch_id=batch_id,
        run_id=run_id,
        execution_id=execution_id,
        stages=_references(stages),
        single=single,
        target=target,
        keep_changed=keep_changed,
        finish=finish,
        edges=edges,
        others=[
            pb.EdgeStages(endpoint=name, stages=_references(named))
            for name, named in (others or {}).items()
        ],
    )
    broker = Broker.of(endpoint, security, retry_total_ms)
    return _retried(broker, "CommitBatch", request, pb.CommitBatchResponse)


def prepare_batch(
    broker: Broker,
    *,
    writer: str,
    batch_id: int,
    run_id: str,
    stages: Sequence[Stage],
    single: bool,
    target: str,
    edges: str,
) -> pb.PrepareBatchResponse:
    """Keeps the stages at one of a batch's brokers for a commit with `finish` (K14).

    Arguments as in `commit_batch`; without `edges` it only looks.

    Raises:
        BatchChangedError: The batch was prepared for other brokers, one of which may have it.
        AckqError: As `commit_batch`.
    """
    request = pb.PrepareBatchRequest(
        writer=writer,
        batch_id=batch_id,
        run_id=run_id,
        stages=_references(stages),
        single=single,
        target=target,
        edges=edges,
    )
    return _retried(broker, "PrepareBatch", request, pb.PrepareBatchResponse)


def _references(stages: Sequence[Stage]) -> list[pb.StageReference]:
    return [pb.StageReference(**stage._asdict()) for stage in stages]


def abort_batch(
    endpoint: str | Broker,
    *,
    writer: str,
    batch_id: int,
    stage_ids: Sequence[bytes],
    retry_total_ms: int = limits.RETRY_TOTAL_MS,
    security: Security | None = None,
) -> int:
    """Drops stages of a batch; unknown ones are ignored, and a committed batch stays committed.

    Returns the number of stages dropped.
    """
    request = pb.AbortBatchRequest(writer=writer, batch_id=batch_id, stage_ids=stage_ids)
    broker = Broker.of(endpoint, security, retry_total_ms)
    return _retried(broker, "AbortBatch", request, pb.AbortBatchResponse).dropped


def _retried(
    broker: Broker, method: str, request: Message, response: type[calls.Response]
) -> calls.Response:
    """Repeats a call until it is answered, or up to the broker's limit of retries."""
    return retry.call(
        lambda: calls.unary(grpc_channel(broker), f"PublishingService/{method}", request, response),
        retry.Patience(broker),
    )


def _until_none(requests: queue.SimpleQueue[bytes | None]) -> Iterator[bytes]:
    """Iterates over queued requests up to None, on gRPC's sending thread.

    It references the queue and not the writer, so a dropped writer can be garbage-collected.
    """
    return iter(requests.get, None)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
