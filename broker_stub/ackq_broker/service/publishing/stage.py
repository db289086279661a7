"""One task's stage of a writer batch: frames in, progress out; only a sealed stage counts (K3).

Invariant: a stage whose stream ends without an answered seal is dropped.
"""

from __future__ import annotations

from typing import Final

from ackq import limits
from ackq.errors import BrokerUnavailableError, InvalidArgumentError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.in_flight import StreamBytes
from ackq_broker.security.callers import check_parts, current
from ackq_broker.service.blocks import ingest
from ackq_broker.service.blocks.coalescing import size_of
from ackq_broker.service.transport.fields import check_identifier, shorten
from ackq_broker.service.transport.rpc import Read, Write
from ackq_broker.service.transport.stream_buffers import RequestBuffer, ResponseBuffer, alongside

Request = frame.Frame[pb.StageHeader]

_ID_BYTES: Final = 16
_REQUESTS_BYTES: Final = 4 * limits.FRAME_TARGET_BYTES
# Reports that a writer may leave unread.
_UNREAD_REPORTS: Final = 10_000


class StageStream:
    """The stream of a stage from its open to its seal.

    Args:
        engine: Decides and journals.
        read: The next request.
        write: Sends progress.
    """

    def __init__(self, engine: Engine, read: Read[Request], write: Write[pb.StageResponse]) -> None:
        self._engine = engine
        self._read = read
        self._write = write
        self._stage_id = b""
        self._rows = 0
        self._requests = RequestBuffer[Request](_REQUESTS_BYTES)
        # Rows on disk after each frame; only the newest is reported.
        self._stored = ResponseBuffer[int](engine.sync_gate)

    async def run(self) -> None:
        """Serves the stage until it is sealed.

        Raises:
            AckqError: The stream ends with this status; the stage is dropped.
        """
        opening = await self._opening()
        self._stage_id = opening.stage_id
        command = commands.OpenStage(
            opening.stage_id,
            opening.writer,
            opening.batch_id,
            opening.run_id,
            shorten(opening.label),
            opening.mandatory,
            opening.single,
            current.get().user,
        )
        self._engine.decide(command)  # has no answer; what comes later waits for its sync too
        try:
            with (
                self._engine.alarms.listening("stage", alarm=lambda _: None, stop=self._stop),
                self._engine.in_flight.stream(brings=True) as in_flight,
            ):
                await alongside(
                    self._store_all(in_flight), self._receive(in_flight), self._report()
                )
        finally:
            # Without effect on a sealed stage.
            self._engine.end(commands.DropStage(self._stage_id))

    async def _opening(self) -> pb.StageOpen:
        request = await self._read()
        if request is None or request.header.WhichOneof("kind") != "open":
            raise InvalidArgumentError("The first request on a stage stream must be an open.")
        opening = request.header.open
        if len(opening.stage_id) != _ID_BYTES:
            raise InvalidArgumentError(
                f"A stage id has {_ID_BYTES} random bytes, not {len(opening.stage_id)}."
            )
        if not opening.writer:
            raise InvalidArgumentError("A stage names its writer; this one names none.")
        check_identifier("writer", opening.writer)
        check_identifier("run id", opening.run_id)
        return opening

    async def _receive(self, in_flight: StreamBytes) -> None:
        while await self._receive_one(in_flight):
            pass  # a loop of its own would keep the last request while it waits for the next
        self._requests.close()

    async def _receive_one(self, in_flight: StreamBytes) -> bool:
        """Buffers the next request; False at the half-close."""
        request = await in_flight.next(self._read)
        if request is None:
            return False
        in_flight.add(size_of(request))
        await self._requests.put(request, size_of(request))
        return True

    async def _store_all(self, in_flight: StreamBytes) -> None:
        """Stores frames in their order until the seal, and answers the seal."""
        while not await self._store_taken(in_flight):
            pass  # as in `_receive`

    async def _store_taken(self, in_flight: StreamBytes) -> bool:
        """Stores the frames that came together; True after the seal."""
        requests = await self._requests.take()
        for request in requests:
            kind = request.header.WhichOneof("kind")
            if kind == "seal":
                await self._seal(request.header.seal)
                return True
            if kind != "data":
                raise InvalidArgumentError(
                    "A stage stream is opened once, carries data and ends with a seal."
                )
            await self._store(request)
            in_flight.remove(size_of(request))
        if not requests:
            raise InvalidArgumentError("The stage ended without a seal; nothing of it was kept.")
        return False

    async def _store(self, request: Request) -> None:
        """Stores one frame; a row that is refused refuses the stage."""
        now_us = self._engine.clock.now_us()
        prepared = await self._engine.run(lambda: _prepare(request, now_us))
        if prepared.refusals:
            raise prepared.refusals[0].reason
        exchange = request.header.data.exchange
        await check_parts(exchange, [part.routes for part in prepared.parts])
        for part in prepared.parts:
            if len(self._stored) > _UNREAD_REPORTS:
                await self._stored.drained()  # it does not read them, and is not read from (I6)
            await self._engine.wait_writable()
            await self._engine.match(exchange, part.routes)
            self._store_part(request.header.data, part)

    def _store_part(self, data: pb.StageData, part: ingest.PreparedPart) -> None:
        command = commands.StageBlock(
            self._stage_id,
            data.exchange,
            part.routes,
            part.row_count,
            part.payload_bytes,
            part.expiries,
            data.unroutable_queue,
            part.sizes,
        )
        _, sequence = self._engine.decide(command, part.block)
        self._rows += part.row_count
        self._stored.put(self._rows, sequence)
        self._engine.counters["staged"] += part.row_count

    async def _seal(self, seal: pb.StageSeal) -> None:
        await self._engine.call(commands.SealStage(self._stage_id, seal.rows, seal.payload_bytes))
        await self._stored.drained()
        sealed = pb.StageSealed(rows=seal.rows, payload_bytes=seal.payload_bytes)
        await self._write(pb.StageResponse(sealed=sealed))

    async def _report(self) -> None:
        """Reports the rows on disk to the writer, once per sync."""
        while True:
            rows = await self._stored.take()
            await self._write(pb.StageResponse(stored=pb.StageStored(rows=rows[-1])))
            self._stored.written(len(rows))

    def _stop(self) -> None:
        self._requests.fail(
            BrokerUnavailableError("The broker is shutting down; write the batch again.")
        )


def _prepare(request: Request, now_us: int) -> ingest.Prepared:
    """The one part of a frame; a stage is always persistent, whatever its rows' delivery modes."""
    return ingest.prepare(request.block, request.header.data.rows, now_us, by_mode=False)
