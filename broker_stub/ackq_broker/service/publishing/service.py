"""`PublishingService`: publishers' streams, stages, and the commit or abort of a writer's batch."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq.wire.answers import copied
from ackq_broker.core import commands, views
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.security.callers import current
from ackq_broker.security.users import check_name
from ackq_broker.service.publishing.confirm_mode import ConfirmModeStream
from ackq_broker.service.publishing.info import PAGE, batch_info, batch_key, writer_info
from ackq_broker.service.publishing.stage import StageStream
from ackq_broker.service.publishing.stream import (
    PublisherInfo,
    PublisherStream,
    Request,
    read_opening,
)
from ackq_broker.service.publishing.together import Together
from ackq_broker.service.publishing.transaction_mode import TransactionModeStream
from ackq_broker.service.transport.fields import check_identifier
from ackq_broker.service.transport.rpc import Read, Write

_log = logging.getLogger(__name__)

# The maximum bytes of a target: a quoted exchange and a routing key.
_TARGET_BYTES: Final = 8 * limits.MAX_NAME_BYTES


class PublishingService:
    """The RPCs of publishing: publishers, stages, batches (P1-P14, K3, K12)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._identity = secrets.token_bytes(8)
        self._live: dict[bytes, PublisherStream[Any]] = {}
        self._streams: dict[int, Callable[..., PublisherStream[Any]]] = {
            pb.PUBLISH_MODE_CONFIRM: partial(ConfirmModeStream, Together(engine)),
            pb.PUBLISH_MODE_TRANSACTION: TransactionModeStream,
        }

    def publishers(self, most: int) -> tuple[list[PublisherInfo], int]:
        """Up to `most` publishers that have a stream, oldest first, and the number of all."""
        return [stream.info for stream in islice(self._live.values(), most)], len(self._live)

    async def publish(
        self, read: Read[Request], write: Write[frame.Frame[pb.PublishAnswer]]
    ) -> None:
        """Serves a publisher's stream in its mode (P1)."""
        header = await read_opening(read)
        mode = header.open.mode
        stream = self._streams.get(mode)
        if stream is None:
            raise InvalidArgumentError(
                f"A publisher was opened in mode {mode}; it must be PUBLISH_MODE_CONFIRM or"
                " PUBLISH_MODE_TRANSACTION."
            )
        await stream(self._engine, self._live, header, read, write).run()

    def blocked(self) -> int:
        """The number of blocked publishers (P14)."""
        return sum(stream.blocked for stream in self._live.values())

    async def stage(
        self, read: Read[frame.Frame[pb.StageHeader]], write: Write[pb.StageResponse]
    ) -> None:
        """Serves the stream that stages one task's rows."""
        await StageStream(self._engine, read, write).run()

    async def commit_batch(self, request: pb.CommitBatchRequest) -> pb.CommitBatchResponse:
        """Makes the named stages visible atomically (K3)."""
        check_identifier("execution id", request.execution_id)
        reply = await self._commit(
            request,
            others=tuple(
                commands.EdgeStages(each.endpoint, _references(each.stages))
                for each in request.others
            ),
        )
        if reply.repeated:
            _log_repetition(request, reply)
        return copied(pb.CommitBatchResponse, reply, others=_others(reply))

    async def prepare_batch(self, request: pb.PrepareBatchRequest) -> pb.PrepareBatchResponse:
        """Keeps the named stages until their batch is finished, or looks (K14)."""
        reply = await self._commit(request, execution_id="", prepare=True)
        return pb.PrepareBatchResponse(
            committed=reply.repeated,
            edges=reply.edges,
            others=_others(reply),
            broker=self._identity,
        )

    async def _commit(
        self, request: pb.CommitBatchRequest | pb.PrepareBatchRequest, **fields: object
    ) -> commands.CommittedBatch:
        check_identifier("writer", request.writer)
        check_identifier("run id", request.run_id)
        check_identifier("target", request.target, _TARGET_BYTES)
        check_identifier("edges", request.edges, _TARGET_BYTES)
        stages, user = _references(request.stages), current.get().user
        command = copied(commands.CommitBatch, request, stages=stages, user=user, **fields)
        reply: commands.CommittedBatch = await self._engine.call(command)
        return reply

    async def abort_batch(self, request: pb.AbortBatchRequest) -> pb.AbortBatchResponse:
        """Drops the named stages; does not undo a commit (K3)."""
        dropped: int = await self._engine.call(
            commands.AbortBatch(
                request.writer, request.batch_id, tuple(request.stage_ids), current.get().user
            )
        )
        return pb.AbortBatchResponse(dropped=dropped)

    # --- operators ---

    async def list_batches(self, request: pb.ListBatchesRequest) -> pb.ListBatchesResponse:
        """Lists a page of the staged batches, or one batch with its stages (K3)."""
        core, now_us = self._engine.core, self._engine.clock.now_us()
        if request.HasField("batch"):
            one = await self._engine.query(
                lambda: views.staged_batch(core.state, batch_key(request.batch))
            )
            return pb.ListBatchesResponse(batches=[batch_info(one, now_us, detailed=True)])
        after = batch_key(request.after) if request.HasField("after") else None
        found = await self._engine.query(
            lambda: views.staged_batches(core.state, PAGE + 1, request.queue, after)
        )
        return pb.ListBatchesResponse(
            batches=[batch_info(each, now_us) for each in found[:PAGE]], more=len(found) > PAGE
        )

    async def drop_batch(self, request: pb.DropBatchRequest) -> pb.DropBatchResponse:
        """Drops a batch's stages; a commit that names one of them is refused (K3)."""
        command = commands.DropBatch(batch_key(request.batch), request.force)
        dropped: commands.DroppedBatch = await self._engine.call(command)
        _log.info(
            "batch %d of writer '%s' was dropped by an operator: %d stages with %d rows",
            *(request.batch.batch_id, request.batch.writer, dropped.stages, dropped.rows),
            extra=event("batch_dropped", writer=request.batch.writer, rows=dropped.rows),
        )
        return pb.DropBatchResponse(**dropped._asdict())

    async def list_writers(self, request: pb.ListWritersRequest) -> pb.ListWritersResponse:
        """Lists a page of the writers, or one writer."""
        core, now_us = self._engine.core, self._engine.clock.now_us()
        if request.writer:
            one = await self._engine.query(lambda: views.writer_info(core.state, request.writer))
            return pb.ListWritersResponse(writers=[writer_info(one, now_us)])
        silent_since_us = now_us - 1000 * request.age_ms
        found = await self._engine.query(
            lambda: views.list_writers(core.state, PAGE + 1, request.after, silent_since_us)
        )
        return pb.ListWritersResponse(
            writers=[writer_info(each, now_us) for each in found[:PAGE]], more=len(found) > PAGE
        )

    async def forget_writer(self, request: pb.ForgetWriterRequest) -> pb.ForgetWriterResponse:
        """Forgets a writer; later batches under its name are refused (K3)."""
        command = commands.ForgetWriter(request.writer, request.force)
        forgotten: bool = await self._engine.call(command)
        if forgotten:
            _log.info(
                "the writer '%s' was forgotten by an operator",
                request.writer,
                extra=event("writer_forgotten", writer=request.writer),
            )
        return pb.ForgetWriterResponse(forgotten=forgotten)

    async def assign_writer(self, request: pb.AssignWriterRequest) -> pb.AssignWriterResponse:
        """Assigns a writer to another user (A10)."""
        check_name(request.user)
        before: str = await self._engine.call(commands.AssignWriter(request.writer, request.user))
        return pb.AssignWriterResponse(before=before)


def _references(stages: Iterable[pb.StageReference]) -> tuple[commands.StageRef, ...]:
    return tuple(copied(commands.StageRef, stage) for stage in stages)


def _others(reply: commands.CommittedBatch) -> list[pb.EdgeStages]:
    return [
        pb.EdgeStages(
            endpoint=each.endpoint,
            stages=[pb.StageReference(**stage._asdict()) for stage in each.stages],
        )
        for each in reply.others
    ]


def _log_repetition(request: pb.CommitBatchRequest, before: commands.CommittedBatch) -> None:
    """Logs a repeated commit (K3), as a warning if the committed batch was a different one."""
    stages = [*request.stages, *(stage for edge in request.others for stage in edge.stages)]
    staged = sum(stage.rows for stage in stages)
    same = (before.rows, before.target or request.target) == (staged, request.target)
    _log.log(
        logging.INFO if same else logging.WARNING,
        "writer '%s': batch %d was committed before, with %d rows%s; the %d rows that were sent "
        "now%s were not written",
        request.writer,
        request.batch_id,
        before.rows,
        _for(before.target),
        staged,
        _for(request.target),
        extra=event("batch_repeated", writer=request.writer, batch=request.batch_id),
    )


def _for(target: str) -> str:
    return f" for {target}" if target else ""
