"""`PublishingService`: publishers' streams, stages, and the commit or abort of a writer's batch."""

from __future__ import annotations

import logging
from typing import Any, Final

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.service.engine.engine import Engine
from ackq_broker.service.publishing.confirm_mode import ConfirmModeStream
from ackq_broker.service.publishing.stage import StageStream
from ackq_broker.service.publishing.stream import PublisherStream, read_opening
from ackq_broker.service.publishing.transaction_mode import TransactionModeStream
from ackq_broker.service.transport.fields import check_identifier
from ackq_broker.service.transport.rpc import Read, Write

_log = logging.getLogger(__name__)

# An exchange, quoted, and a routing key.
_TARGET_BYTES: Final = 8 * limits.MAX_NAME_BYTES
_STREAMS: Final[dict[int, type[PublisherStream[Any]]]] = {
    pb.PUBLISH_MODE_CONFIRM: ConfirmModeStream,
    pb.PUBLISH_MODE_TRANSACTION: TransactionModeStream,
}


class PublishingService:
    """The RPCs of publishing: publishers, stages, batches (P1-P14, K3, K12)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._live: dict[bytes, PublisherStream[Any]] = {}

    async def publish(
        self,
        read: Read[frame.Frame[pb.PublishHeader]],
        write: Write[frame.Frame[pb.PublishAnswer]],
    ) -> None:
        """Serves a publisher's stream in its mode (P1)."""
        opening = await read_opening(read)
        stream = _STREAMS.get(opening.mode)
        if stream is None:
            raise InvalidArgumentError(
                f"A publisher was opened in mode {opening.mode}; it must be PUBLISH_MODE_CONFIRM or"
                " PUBLISH_MODE_TRANSACTION."
            )
        await stream(self._engine, self._live, opening, read, write).run()

    async def stage(
        self, read: Read[frame.Frame[pb.StageHeader]], write: Write[pb.StageResponse]
    ) -> None:
        """Serves the stage of one task's rows."""
        await StageStream(self._engine, read, write).run()

    async def commit_batch(self, request: pb.CommitBatchRequest) -> pb.CommitBatchResponse:
        """Makes the named stages visible atomically (K3)."""
        check_identifier("writer", request.writer)
        check_identifier("run id", request.run_id)
        check_identifier("execution id", request.execution_id)
        check_identifier("target", request.target, _TARGET_BYTES)
        reply: commands.CommittedBatch = await self._engine.call(
            commands.CommitBatch(
                request.writer,
                request.batch_id,
                request.run_id,
                request.execution_id,
                tuple(
                    commands.StageRef(stage.stage_id, stage.rows, stage.payload_bytes)
                    for stage in request.stages
                ),
                request.single,
                request.target,
                request.keep_changed,
            )
        )
        if reply.repeated:
            _log_repetition(request, reply)
        return pb.CommitBatchResponse(rows=reply.rows, repeated=reply.repeated, target=reply.target)

    async def abort_batch(self, request: pb.AbortBatchRequest) -> pb.AbortBatchResponse:
        """Drops the named stages; does not undo a commit (K3)."""
        dropped: int = await self._engine.call(
            commands.AbortBatch(request.writer, request.batch_id, tuple(request.stage_ids))
        )
        return pb.AbortBatchResponse(dropped=dropped)


def _log_repetition(request: pb.CommitBatchRequest, before: commands.CommittedBatch) -> None:
    """K3: a warning where the batch that was committed is not the one that came now."""
    staged = sum(stage.rows for stage in request.stages)
    same = (before.rows, before.target or request.target) == (staged, request.target)
    _log.log(
        logging.INFO if same else logging.WARNING,
        "writer '%s': batch %d was committed before, with %d rows%s; the %d that came now%s were"
        " not written",
        request.writer,
        request.batch_id,
        before.rows,
        _for(before.target),
        staged,
        _for(request.target),
    )


def _for(target: str) -> str:
    return f" for {target}" if target else ""
