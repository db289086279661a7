"""The stream of a link's process: deliveries in, their positions and permits out.

Invariant: nothing leaves before its sync (I1), and the answers and permits of a stream leave in the
order in which they were decided: every delivery that the link acknowledges at the remote broker has
a durable permit of the local broker (L10). Deliveries after refused ones are refused, too, until
the refused ones are sent again, so that a link stores in the order of delivery (L8).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import ClassVar, Final

from ackq import limits
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    ClosedError,
    FencedError,
    InvalidArgumentError,
    NackError,
)
from ackq.v1 import links_pb2 as pb
from ackq.wire import frame
from ackq.wire.answers import copied
from ackq_broker.core import commands, views
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.security.callers import current
from ackq_broker.service.links import deliveries
from ackq_broker.service.links.info import ACK_OF_WIRE, WORD_BYTES, of_its_own
from ackq_broker.service.links.numbers import DeliveryNumbers
from ackq_broker.service.sessions.info import holder_info
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.transport.duplex import UNREAD_ANSWERS, BrokerStream
from ackq_broker.service.transport.fields import (
    check_attempt,
    check_identifier,
    error_detail,
    shorten,
)
from ackq_broker.service.transport.rpc import Read, Write

_log = logging.getLogger(__name__)

Request = frame.Frame[pb.LinkHeader]

# Above this size, validating a frame takes more than half a millisecond. Handing it to a thread
# costs a tenth of that on an idle machine, and a time slice on a busy one.
_THREAD_BYTES: Final = limits.FRAME_TARGET_BYTES
# Minimum interval between decisions on permits (L12), and maximum wait for a new record before the
# next check: a proof arrives without a record.
_PERMIT_S: Final = 0.05
_IDLE_S: Final = 1.0


class EdgeStream(BrokerStream[Request, pb.LinkResponse, pb.LinkResponse]):
    """One link's stream, from its open to its end.

    Args:
        engine: Decides and journals commands.
        live: The live stream of each link by name, shared by all streams (L1).
        liveness: Which links' holders count as live, by the links' names.
        read: Reads the next request.
        write: Sends an answer.
    """

    KIND: ClassVar[str] = "link"
    AGAIN: ClassVar[str] = "send the unanswered requests again"

    def __init__(
        self,
        engine: Engine,
        live: dict[str, EdgeStream],
        liveness: Liveness,
        read: Read[Request],
        write: Write[pb.LinkResponse],
    ) -> None:
        super().__init__(engine, read, write)
        self._live = live
        self._liveness = liveness
        self._link = ""
        self._epoch = self._stream = 0
        self._subscription = 0
        self._proof = (0, 0)  # number of proven acknowledgements, delivery number of the last one
        self._next_number = 1  # of the first delivery that was not stored
        self._refusal: AckqError | None = None  # of the deliveries from `_next_number` on
        self._report = pb.LinkReport()
        self._numbers = DeliveryNumbers()
        self._held = 0
        self._paused = False
        self._again = False
        self._used_proof = self._proof

    async def run(self) -> None:
        """Serves the stream until the link half-closes and every request is answered.

        Raises:
            AckqError: The stream ends with this status.
        """
        opening = await self._opening()
        self._open(opening)
        self._connection = self._liveness.opened(self._link, opening.holder.token)
        ended = False
        try:
            await self._serve(self._permit_all())
            ended = True
        finally:
            self._liveness.disconnected(self._connection)
            if self._live.get(self._link) is self:
                del self._live[self._link]
                if ended:
                    self._liveness.fenced(self._link)  # it announced its end: nobody waits for it

    @property
    def refusal(self) -> str:
        """Why deliveries are refused now, in words; empty if they are not."""
        return self._refusal.message if self._refusal is not None else ""

    @property
    def report(self) -> pb.LinkReport:
        """The last report of the link's process."""
        return self._report

    def paused(self, sequence: int, *, paused: bool) -> None:
        """Notifies the link that an operator paused or resumed it, once that is on disk."""
        self._paused = paused
        self._responses.put(self._state(), sequence)

    # --- open ---

    async def _opening(self) -> pb.LinkOpen:
        request = await self._read()
        if request is None or request.header.WhichOneof("kind") != "open":
            raise InvalidArgumentError("The first request on a link's stream must be an open.")
        opening = request.header.open
        if not opening.link or not opening.source or not opening.queue:
            raise InvalidArgumentError(
                "A link has a name, a source and a queue; one of them is missing."
            )
        check_attempt(opening.attempt)
        check_identifier("link's name", opening.link, limits.MAX_NAME_BYTES)
        check_identifier("source", opening.source, limits.MAX_LINK_SOURCE_BYTES)
        if opening.ack not in ACK_OF_WIRE:
            raise InvalidArgumentError("A link needs an ack mode: settled or stored.")
        return opening

    def _open(self, opening: pb.LinkOpen) -> None:
        """Decides the open, which fences the previous stream of this link."""
        ticket = self._engine.decide(
            copied(
                commands.OpenLink,
                opening,
                holder=holder_info(opening.holder),
                ack=ACK_OF_WIRE[opening.ack],
                incumbent_live=self._liveness.live(opening.link),
                new_incarnation=secrets.token_hex(16),
                user=current.get().user,
            )
        )
        opened: commands.OpenedLink = ticket.reply
        self._link, self._epoch, self._stream = opening.link, opened.epoch, opened.stream
        older = self._live.get(self._link)
        self._live[self._link] = self
        if older is not None:
            older.fence(self._fenced(older, opening))
        self._subscription, self._next_number = opened.subscription, opened.next_number
        self._paused = opened.paused
        self._again = bool(opened.subscription)
        self._numbers.add(opened.runs)
        _log.info(
            "link '%s': '%s' on %s (%d) runs it, epoch %d",
            self._link,
            opening.holder.application,
            opening.holder.host,
            opening.holder.pid,
            opened.epoch,
            extra=event(
                "link_opened",
                link=self._link,
                host=opening.holder.host,
                pid=opening.holder.pid,
                epoch=opened.epoch,
            ),
        )
        self._responses.put(
            pb.LinkResponse(opened=copied(pb.LinkOpened, opened, history=self._engine.history_id)),
            ticket.sequence,
        )

    def _fenced(self, older: EdgeStream, opening: pb.LinkOpen) -> FencedError:
        """The error that ends an older stream of the link, of this or another process (L1)."""
        holder = opening.holder
        if older._epoch == self._epoch:
            text = f"A newer stream of link '{self._link}' replaced this one."
        else:
            text = (
                f"The link '{self._link}' is run by '{holder.application}' on {holder.host} "
                f"({holder.pid}) now, in epoch {self._epoch}; this process has epoch "
                f"{older._epoch}. End this process: the messages that it has not acknowledged are "
                "delivered to the other one."
            )
        attempt = opening.attempt.hex()
        return FencedError(text, link=self._link, epoch=self._epoch, attempt=attempt)

    def _check(self) -> None:
        """Raises the error that fenced this stream: a newer one reports the permits now (L10)."""
        if self._fence is not None:
            raise self._fence

    # --- requests ---

    def _received(self, request: Request) -> int:
        self._liveness.heard(self._connection)
        return _size_of(request)

    async def _handle(self, requests: list[Request]) -> None:
        for request in requests:
            if len(self._responses) > UNREAD_ANSWERS:
                await self._responses.drained()  # backpressure: the link leaves answers unread (I6)
            await self._handle_one(request)
            self._in_flight.remove(_size_of(request))

    async def _handle_one(self, request: Request) -> None:
        self._check()
        kind = request.header.WhichOneof("kind")
        if kind == "deliveries":
            await self._store(request)
        elif kind == "heartbeat":
            beat = request.header.heartbeat
            self._learn(beat)
            if beat.HasField("report"):
                self._report = _checked(beat.report)
            if self._subscription and len(self._numbers):
                self._permit()  # so that the answer comes after the permits of all settled messages
            self._responses.put(self._state(), self._engine.core.sequence)
        elif kind == "subscribe":
            self._subscribe()
        else:
            raise InvalidArgumentError(
                "A link's stream is opened once; then it subscribes, delivers and gives signs of"
                " life."
            )

    def _subscribe(self) -> None:
        self._subscription, sequence = self._engine.decide(
            commands.SubscribeLink(self._link, self._epoch, self._stream)
        )
        self._numbers.clear()
        self._proof = self._used_proof = (0, 0)
        self._held = 0
        self._next_number, self._refusal, self._again = 1, None, False
        subscribed = pb.LinkSubscribed(subscription=self._subscription)
        self._responses.put(pb.LinkResponse(subscribed=subscribed), sequence)

    def _learn(self, sent: pb.LinkDeliveries | pb.LinkHeartbeat) -> None:
        """Learns which acknowledgements of the present subscription are proven (L10)."""
        if sent.subscription == self._subscription:
            self._proof = max(self._proof, (sent.proven, sent.proven_number))

    async def _store(self, request: Request) -> None:
        """Stores deliveries, or refuses them and all deliveries after them."""
        sent = request.header.deliveries
        if self._refusal is not None and sent.first_number > self._next_number:
            self._refuse(sent.first_number, self._refusal)
            return
        now_us = self._engine.clock.now_us()
        large = len(request.block) + len(sent.keys) > _THREAD_BYTES
        delivered = (
            await self._engine.run(lambda: deliveries.decode(request, now_us))
            if large
            else deliveries.decode(request, now_us)
        )
        await self._engine.wait_writable()
        self._check()
        self._learn(sent)
        command = delivered.command(self._link, self._epoch, self._stream)
        try:
            self._engine.alarms.check_taking()
            reply, sequence = self._engine.decide(command, delivered.block)
        except (NackError, BrokerUnavailableError, ClosedError) as refusal:
            if self._engine.failure is not None:
                raise
            self._refusal = refusal
            self._refuse(sent.first_number, refusal)
            return
        self._stored(sent, reply, sequence)

    def _stored(self, sent: pb.LinkDeliveries, reply: commands.StoredLinked, sequence: int) -> None:
        """Answers stored deliveries, and remembers the numbers without a permit."""
        runs = reply.runs
        # The runs of numbers that were stored before are known since the open.
        new = [run for run in runs if run.first_number >= self._next_number]
        self._numbers.add(run for run in new if not run.permitted)
        self._next_number = max(self._next_number, sent.first_number + sent.rows)
        self._refusal, self._used_proof = None, self._proof
        answer = pb.LinkStored(
            first_number=sent.first_number,
            rows=[run.rows for run in runs],
            first_position=[run.first_position for run in runs],
            matched=[int(run.matched) for run in runs],
            permitted=[int(run.permitted) for run in runs],
            rejected=_flags([run.rejected for run in runs]),
        )
        self._responses.put(pb.LinkResponse(stored=answer), sequence)

    def _refuse(self, first_number: int, reason: AckqError) -> None:
        """Refuses a frame; the link sends it again later (L20)."""
        detail = error_detail(reason)
        fitting = reason.fields.get("fitting", "0") if first_number <= self._next_number else "0"
        answer = pb.LinkStored(
            first_number=first_number,
            refused=detail.code,
            reason=detail.message,
            fitting=int(fitting),
        )
        self._responses.put(pb.LinkResponse(stored=answer), self._engine.core.sequence)

    # --- permits ---

    async def _permit_all(self) -> None:
        """Permits settled deliveries, at most every 50 ms, while any may be settled (L12)."""
        looked_at = -1
        while True:
            if self._in_flight.held or self._engine.in_flight.reason:
                self._liveness.heard(self._connection)  # its signs of life are still unread
            waits = self._again or len(self._numbers) or self._proof > self._used_proof
            news = looked_at != self._engine.core.sequence or self._proof > self._used_proof
            if not (self._subscription and waits and news):
                await self._engine.wait_changed(_IDLE_S)
                continue
            self._permit()
            looked_at = self._engine.core.sequence
            await asyncio.sleep(_PERMIT_S)

    def _permit(self) -> None:
        """Permits the deliveries settled now; the link learns it once that is on disk (L10)."""
        self._check()
        reply, sequence = self._engine.decide(
            commands.PermitLinked(
                self._link,
                self._epoch,
                self._subscription,
                again=self._again,
                proven=self._proof[0],
                proven_number=self._proof[1],
                stream=self._stream,
            )
        )
        self._again, self._used_proof, self._held = False, self._proof, reply.held
        if not len(reply.positions):
            return
        first, last, rejected = self._numbers.take(reply.positions, reply.rejected)
        permits = pb.LinkPermits(first_number=first, last_number=last, rejected=rejected)
        self._responses.put(pb.LinkResponse(permits=permits), sequence)

    def _state(self) -> pb.LinkResponse:
        missing = (
            views.link_missing(self._engine.core.state, self._link) if self._subscription else 0
        )
        return pb.LinkResponse(
            state=pb.LinkState(paused=self._paused, held=self._held, missing=missing)
        )


def _flags(said: list[bool]) -> list[int]:
    """Flags in wire form: an empty list if none is set."""
    return [*map(int, said)] if any(said) else []


def _checked(report: pb.LinkReport) -> pb.LinkReport:
    """A report with its texts cut to their bounds (I6)."""
    report.limited_by = shorten(report.limited_by, WORD_BYTES)
    report.set_aside_reason = shorten(report.set_aside_reason, 4 * WORD_BYTES)
    return of_its_own(report)


def _size_of(request: Request) -> int:
    header = request.header.deliveries
    return len(request.block) + len(header.keys) + len(header.checks)
