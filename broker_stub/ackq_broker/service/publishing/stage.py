"""One task's stage of a writer batch: frames in, progress out; only a sealed stage counts (K3).

Invariant: a stage whose stream ends without an answered seal is dropped.
"""

from __future__ import annotations

from typing import ClassVar

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq.wire.answers import copied
from ackq_broker.core import commands, views
from ackq_broker.engine.engine import Engine
from ackq_broker.security.callers import check_parts, current
from ackq_broker.service.blocks import ingest
from ackq_broker.service.blocks.coalescing import size_of
from ackq_broker.service.transport.duplex import UNREAD_ANSWERS, BrokerStream
from ackq_broker.service.transport.fields import check_id, check_identifier, shorten
from ackq_broker.service.transport.rpc import Read, Write

Request = frame.Frame[pb.StageHeader]


class StageStream(BrokerStream[Request, int, pb.StageResponse]):
    """The stream of a stage, from its open to its seal.

    Args:
        engine: Decides and journals commands.
        read: Reads the next request.
        write: Sends progress.
    """

    KIND: ClassVar[str] = "stage"
    AGAIN: ClassVar[str] = "write the batch again"

    def __init__(self, engine: Engine, read: Read[Request], write: Write[pb.StageResponse]) -> None:
        super().__init__(engine, read, write)
        self._stage_id = b""
        self._rows = 0
        self._sealed = False

    async def run(self) -> None:
        """Serves the stage until it is sealed.

        Raises:
            AckqError: The stream ends with this status; the stage is dropped.
        """
        opening = await self._opening()
        self._stage_id = opening.stage_id
        command = copied(
            commands.OpenStage, opening, label=shorten(opening.label), user=current.get().user
        )
        self._engine.decide(command)  # has no answer; later answers wait for its sync too
        try:
            await self._serve()
        finally:
            # Has no effect on a sealed stage.
            self._engine.end(commands.DropStage(self._stage_id))

    async def _opening(self) -> pb.StageOpen:
        request = await self._read()
        if request is None or request.header.WhichOneof("kind") != "open":
            raise InvalidArgumentError("The first request on a stage stream must be an open.")
        opening = request.header.open
        check_id("A stage id", opening.stage_id)
        if not opening.writer:
            raise InvalidArgumentError("A stage names its writer; this one names none.")
        check_identifier("writer", opening.writer)
        check_identifier("run id", opening.run_id)
        return opening

    def _received(self, request: Request) -> int:
        return size_of(request)

    async def _handle_all(self) -> None:
        """Stores frames in order until the seal, and answers the seal."""
        while not self._sealed:
            await self._handle(await self._requests.take())

    async def _handle(self, requests: list[Request]) -> None:
        if not requests:
            raise InvalidArgumentError("The stage ended without a seal; nothing of it was kept.")
        for request in requests:
            kind = request.header.WhichOneof("kind")
            if kind == "seal":
                await self._seal(request.header.seal)
                self._sealed = True
                return
            if kind != "data":
                raise InvalidArgumentError(
                    "A stage stream is opened once, carries data and ends with a seal."
                )
            await self._store(request)
            self._in_flight.remove(size_of(request))

    async def _store(self, request: Request) -> None:
        """Stores one frame; one refused row refuses the whole stage."""
        now_us = self._engine.clock.now_us()
        exchange = request.header.data.exchange
        part_keys = ingest.PART_KEYS[views.exchange_kind(self._engine.core.state, exchange)]
        # Should the exchange be declared again meanwhile, with keys, it needs them.
        part_keys = part_keys or limits.FRAME_TARGET_ROWS
        prepared = await self._engine.run(lambda: _prepare(request, now_us, part_keys))
        if prepared.refusals:
            raise prepared.refusals[0].reason
        await check_parts(exchange, [part.routes for part in prepared.parts])
        for part in prepared.parts:
            if len(self._responses) > UNREAD_ANSWERS:
                await self._responses.drained()  # backpressure: it leaves answers unread (I6)
            await self._engine.wait_writable()
            await self._engine.ready(exchange, part.routes)
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
        self._responses.put(self._rows, sequence)
        self._engine.counters["staged"] += part.row_count

    async def _seal(self, seal: pb.StageSeal) -> None:
        await self._engine.call(commands.SealStage(self._stage_id, seal.rows, seal.payload_bytes))
        await self._responses.drained()
        sealed = pb.StageSealed(rows=seal.rows, payload_bytes=seal.payload_bytes)
        await self._write(pb.StageResponse(sealed=sealed))

    async def _answer(self, answers: list[int]) -> None:
        """Reports to the writer, once per sync, the number of rows on disk."""
        await self._write(pb.StageResponse(stored=pb.StageStored(rows=answers[-1])))


def _prepare(request: Request, now_us: int, part_keys: int) -> ingest.Prepared:
    """Prepares a frame; a stage is always persistent, whatever its rows' delivery modes."""
    rows = request.header.data.rows
    return ingest.prepare(request.block, rows, now_us, by_mode=False, part_keys=part_keys)
