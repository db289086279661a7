"""`SessionsService`: horizon, advance, attach, hold, fetch, and what operators do (S1-S10)."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from ackq import limits
from ackq.errors import BlockNotFoundError, InvalidArgumentError
from ackq.v1 import messages_pb2
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.service.clock import age_ms
from ackq_broker.service.engine import Engine, Ticket
from ackq_broker.service.holds import Holds
from ackq_broker.service.liveness import Liveness
from ackq_broker.service.rpc import Read, Write
from ackq_broker.service.sending import send_pieces
from ackq_broker.service.texts import shorten

_TOKEN_BYTES: Final = 16


class SessionsService:
    """What a replaying reader needs.

    Args:
        engine: Decides and reads.
        liveness: Which holders count as live (S3).
    """

    def __init__(self, engine: Engine, liveness: Liveness) -> None:
        self._engine = engine
        self._holds = Holds(engine, liveness)

    async def horizon(self, _: pb.HorizonRequest) -> pb.HorizonResponse:
        """The journal sequence now (K5)."""
        return pb.HorizonResponse(
            sequence=await self._engine.query(lambda: self._engine.core.sequence)
        )

    # --- advance and attach ---

    async def advance(self, request: pb.AdvanceRequest) -> pb.AdvanceResponse:
        """Accepts up to the start, then leases anew or gives the lease again (S4, S9)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.wait_ms, limits.MAX_ADVANCE_WAIT_MS) / 1000
        reply, sequence = self._advance(request)
        while _may_wait(request, reply) and await self._until_worth(request, reply, deadline):
            reply, sequence = self._advance(request)
        await self._engine.gate.wait(sequence)
        return self._advanced(reply)

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Attaches for a replay of exactly the outstanding lease."""
        incumbent = self._holds.incumbent(request.session, request.incarnation)
        reply, sequence = self._engine.decide(
            commands.Attach(
                request.session,
                request.incarnation,
                _holder_info(request.holder),
                request.start_tag,
                request.end_tag,
                incumbent_live=self._holds.live(incumbent),
            )
        )
        self._holds.changed(incumbent, request.incarnation, request.holder.token)
        await self._engine.gate.wait(sequence)
        return pb.AttachResponse(
            epoch=reply.epoch, chunks=_chunks(reply.chunks), attaches=reply.attaches
        )

    async def hold(self, read: Read[pb.HoldRequest], write: Write[pb.HoldResponse]) -> None:
        """The holder's liveness stream (S3)."""
        await self._holds.hold(read, write)

    # --- fetch ---

    async def fetch(
        self, request: pb.FetchRequest, write: Write[frame.Frame[messages_pb2.DeliveryRuns]]
    ) -> None:
        """Reads a sub-range of the outstanding lease; changes nothing (S2)."""
        core = self._engine.core

        def pieces() -> list[commands.Piece]:
            return core.fetch(
                request.session,
                request.incarnation,
                request.epoch,
                request.after_tag,
                request.last_tag,
            )

        found = pieces()
        # After the check: a reader that was replaced is not taken for the one that holds the lease.
        core.note_fetch(
            request.session,
            commands.FetchLabel(
                shorten(request.query_id), request.batch_id, shorten(request.label)
            ),
        )
        try:
            await send_pieces(self._engine, found, request.columns, write)
        except BlockNotFoundError:
            # The lease went while it was read; asking again says why.
            pieces()
            raise

    # --- operators ---

    async def list_sessions(self, request: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
        """All sessions, or one."""
        found = await self._engine.query(lambda: self._engine.core.sessions(request.session))
        now_us = self._engine.clock.now_us()
        return pb.ListSessionsResponse(
            sessions=[self._session_info(session, now_us) for session in found]
        )

    async def release_session(self, request: pb.ReleaseSessionRequest) -> pb.ReleaseSessionResponse:
        """Puts a session's lease back and ends its incarnation (S5, S9)."""
        incumbent = self._holds.incumbent(request.session, "")
        reply, sequence = self._engine.decide(
            commands.ReleaseSession(
                request.session,
                fence=request.fence,
                incumbent_live=self._holds.live(incumbent),
            )
        )
        self._holds.changed(incumbent)
        await self._engine.gate.wait(sequence)
        return pb.ReleaseSessionResponse(released=reply)

    def housekeep(self) -> None:
        """Forgets what it knows of holders whose sessions ended by themselves."""
        self._holds.housekeep()

    # --- parts ---

    def _advance(self, request: pb.AdvanceRequest) -> Ticket:
        """One decision; the holder it makes is taken note of at once."""
        incumbent = self._holds.incumbent(request.session, request.incarnation)
        ticket = self._engine.decide(
            commands.Advance(
                session=request.session,
                incarnation=request.incarnation,
                holder=_holder_info(request.holder),
                queues=tuple(request.queues),
                start_tag=request.start_tag,
                max_messages=request.max_messages,
                max_bytes=request.max_bytes,
                min_messages=request.min_messages,
                max_delay_ms=request.max_delay_ms,
                horizon=request.horizon,
                open_and_lease=request.open_and_lease,
                takeover=request.takeover,
                session_timeout_ms=request.session_timeout_ms,
                incumbent_live=self._holds.live(incumbent),
                new_incarnation="" if request.incarnation else secrets.token_hex(16),
            )
        )
        self._holds.changed(incumbent, ticket.reply.incarnation, request.holder.token)
        return ticket

    async def _until_worth(
        self, request: pb.AdvanceRequest, reply: commands.Advanced, deadline: float
    ) -> bool:
        """Waits until asking again may lease something (True), or time is over (False)."""
        loop = asyncio.get_running_loop()
        # K6: fewer than the minimum are leased once the oldest has waited so long.
        waited_ms = age_ms(reply.backlog.oldest_us, self._engine.clock.now_us())
        due = loop.time() + (request.max_delay_ms - waited_ms) / 1000
        delayed = reply.backlog.ready and request.max_delay_ms > waited_ms
        while not self._engine.stopping:
            now = loop.time()
            if delayed and now >= due:
                return True
            if now >= deadline:
                return False
            await self._engine.changed((min(due, deadline) if delayed else deadline) - now)
            ready = self._engine.core.ready_total(reply.session)
            if ready > reply.backlog.ready and ready >= request.min_messages:
                return True
        return False

    def _advanced(self, reply: commands.Advanced) -> pb.AdvanceResponse:
        backlog = reply.backlog
        return pb.AdvanceResponse(
            session=reply.session,
            incarnation=reply.incarnation,
            epoch=reply.epoch,
            end_tag=reply.end_tag,
            chunks=_chunks(reply.chunks),
            backlog=pb.Backlog(
                ready=backlog.ready,
                unacked=backlog.unacked,
                oldest_age_ms=age_ms(backlog.oldest_us, self._engine.clock.now_us()),
                redelivered=backlog.redelivered,
            ),
            other_sessions=[
                name
                for name in reply.other_sessions
                if self._holds.live(self._holds.incumbent(name, ""))
            ],
            attaches=reply.attaches,
            warnings=reply.warnings,
        )

    def _session_info(self, session: commands.SessionInfo, now_us: int) -> pb.SessionInfo:
        holder = session.holder
        return pb.SessionInfo(
            session=session.session,
            incarnation=session.incarnation,
            queues=session.queues,
            epoch=session.epoch,
            floor_tag=session.floor_tag,
            end_tag=session.end_tag,
            leased=session.leased,
            holes=session.holes,
            holder=None
            if holder is None
            else pb.Holder(
                host=holder.host,
                pid=holder.pid,
                since_us=session.since_us,
                application=holder.application,
            ),
            live=self._holds.live(session.incarnation),
            proven=session.proven,
            lease_age_ms=age_ms(session.leased_at_us, now_us),
            query_id=session.fetch.query_id,
            batch_id=session.fetch.batch_id,
            attaches=session.attaches,
        )


def _may_wait(request: pb.AdvanceRequest, reply: commands.Advanced) -> bool:
    """Whether to wait for more.

    An opening would prove its incarnation by asking again (S9); a bounded run has its end (K5).
    """
    return bool(request.incarnation) and not request.horizon and reply.end_tag == request.start_tag


def _holder_info(holder: pb.Holder) -> commands.HolderInfo:
    if len(holder.token) != _TOKEN_BYTES:
        raise InvalidArgumentError(
            f"A holder token has {_TOKEN_BYTES} random bytes, not {len(holder.token)}."
        )
    return commands.HolderInfo(
        holder.token, shorten(holder.host), holder.pid, shorten(holder.application)
    )


def _chunks(chunks: tuple[commands.Chunk, ...]) -> list[pb.LeaseChunk]:
    return [pb.LeaseChunk(last_tag=last, payload_bytes=size) for last, size in chunks]
