"""`SessionsService`: the RPCs of replaying readers and of session operators (S1-S14)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ackq import limits
from ackq.errors import BlockNotFoundError, SessionNotFoundError
from ackq.v1 import messages_pb2
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import frame
from ackq.wire.answers import copied
from ackq_broker.core import commands, views
from ackq_broker.engine.clock import age_ms
from ackq_broker.engine.engine import Engine, Ticket
from ackq_broker.engine.events import event
from ackq_broker.security.callers import current
from ackq_broker.service.blocks.sending import MOST_PIECES, rows_in, send_pieces, slices
from ackq_broker.service.sessions.info import (
    absent_leases_line,
    finished,
    holder_info,
    orphaned_lease_warnings,
    session_info,
)
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.sessions.liveness_stream import LivenessStreams
from ackq_broker.service.sessions.outcomes import owner_of, read_stage, settlement_of
from ackq_broker.service.transport.fields import shorten
from ackq_broker.service.transport.rpc import Read, Write

_log = logging.getLogger(__name__)

_NO_TAG: Final = 1 << 62
# S13: retention gives way below so many times the disk reserve, and not again for this time, in
# which segments are freed; or, with less than `_URGENT` times it, until a snapshot freed some.
_RESERVES: Final = 3
_URGENT: Final = 2
_GIVE_WAY_S: Final = 10.0
# Sessions that are listed between two turns of the event loop.
_SLICE: Final = 200


class SessionsService:
    """The RPCs of sessions.

    Args:
        engine: Decides commands and reads state.
        liveness: Which holders count as live (S3).
        half_window: Half of the messages that links bring to queues before they wait; 0: no bound
            is known.
    """

    def __init__(
        self,
        engine: Engine,
        liveness: Liveness,
        half_window: Callable[[Sequence[str]], int] = lambda _: 0,
    ) -> None:
        self._engine = engine
        self._half_window = half_window
        self._liveness = liveness
        self._streams = LivenessStreams(engine, liveness)
        self._gave_way_s = -_GIVE_WAY_S

    async def horizon(self, _: pb.HorizonRequest) -> pb.HorizonResponse:
        """Returns the present journal sequence (K5)."""
        return pb.HorizonResponse(
            sequence=await self._engine.query(lambda: self._engine.core.sequence)
        )

    # --- advance and attach ---

    async def advance(self, request: pb.AdvanceRequest) -> pb.AdvanceResponse:
        """Accepts up to the start tag, then makes a lease or returns the present one (S4, S9)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.wait_ms, limits.MAX_ADVANCE_WAIT_MS) / 1000
        reply, sequence = self._advance(request)
        found = views.queues_like(self._engine.core.state, request.queue_pattern)
        while _may_wait(request, reply) and await self._until_leasable(request, reply, deadline):
            if views.queues_like(self._engine.core.state, request.queue_pattern) != found:
                break  # the caller may lack permission for new queues (A2): the next call checks
            current.get().check_again()
            reply, sequence = self._advance(request)
        await self._engine.sync_gate.wait(sequence)
        return self._advanced(reply)

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Attaches a holder for a replay of exactly one lease, or reports a batch without rows."""
        incumbent = self._streams.incumbent(request.session, request.incarnation)
        before = views.incumbent(self._engine.core.state, request.session, request.incarnation)
        reply, sequence = self._engine.decide(
            copied(
                commands.Attach,
                request,
                holder=holder_info(request.holder),
                incumbent_live=self._liveness.live(incumbent),
            )
        )
        self._streams.changed(incumbent, request.incarnation, request.holder.token)
        self._log_attach(request.session, request.holder, reply.epoch, before)
        await self._engine.sync_gate.wait(sequence)
        return copied(pb.AttachResponse, reply, chunks=_chunks(reply.chunks))

    async def hold(self, read: Read[pb.HoldRequest], write: Write[pb.HoldResponse]) -> None:
        """Serves a holder's liveness stream (S3)."""
        await self._streams.hold(read, write)

    # --- fetch ---

    async def fetch(
        self, request: pb.FetchRequest, write: Write[frame.Frame[messages_pb2.DeliveryRuns]]
    ) -> None:
        """Reads a sub-range of the outstanding lease or the last accepted one (S2)."""
        core = self._engine.core

        def pieces(after: int, last: int) -> list[commands.Piece]:
            names = request.session, request.incarnation, request.epoch
            return views.fetch(core.state, *names, after, last, MOST_PIECES)

        found = slices(pieces, request.after_tag, request.last_tag)
        first = next(found, ())
        # After the check: a reader that was replaced must not be noted as the lease's reader.
        self._note(request)
        try:
            for each in chain((first,), found):
                await send_pieces(self._engine, each, request.columns, write)
        except BlockNotFoundError:
            # The lease ended while it was read; the core raises the reason.
            pieces(request.after_tag, request.last_tag)
            raise
        # A batch without rows is noted before its stream ends (S11).
        await self._engine.sync_gate.wait(core.sequence)

    # --- operators ---

    async def list_sessions(self, request: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
        """Lists the sessions that are not finished (S8), all sessions, or one."""
        core, now_us = self._engine.core, self._engine.clock.now_us()
        whole = bool(request.session) or request.finished
        listed = []
        for at, name in enumerate(
            [request.session] if request.session else sorted(views.session_names(core.state))
        ):
            if at % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)  # let other work run (I6)
            try:
                (session,) = views.list_sessions(core.state, name)
            except SessionNotFoundError:
                if request.session:
                    raise
                continue  # it was released in the meantime
            if whole or not self.finished(session):
                live = self._liveness.live(session.incarnation)
                away_ms = self._liveness.away_ms(session.incarnation)
                listed.append(session_info(session, now_us, live=live, away_ms=away_ms))
        await self._engine.wait_synced()
        return pb.ListSessionsResponse(sessions=listed)

    def finished(self, session: commands.SessionInfo) -> bool:
        """Whether a session is finished: lists and metrics leave it out (S8)."""
        live = self._liveness.live(session.incarnation)
        return finished(session, self._engine.clock.now_us(), live=live)

    def live(self, incarnation: str) -> bool:
        """Whether the holder of an incarnation counts as live (S3)."""
        return self._liveness.live(incarnation)

    async def release_session(self, request: pb.ReleaseSessionRequest) -> pb.ReleaseSessionResponse:
        """Requeues a session's lease and ends its incarnation (S5, S9)."""
        incumbent = self._streams.incumbent(request.session, "")
        reply, sequence = self._engine.decide(
            commands.ReleaseSession(
                request.session,
                fence=request.fence,
                incumbent_live=self._liveness.live(incumbent),
            )
        )
        self._streams.changed(incumbent)
        _log.info(
            "session '%s' was released by an operator: %d messages are ready again",
            request.session,
            reply.released,
            extra=event("session_released", session=request.session, messages=reply.released),
        )
        await self._engine.sync_gate.wait(sequence)
        return pb.ReleaseSessionResponse(released=reply.released, dropped=reply.dropped)

    async def rewind_session(self, request: pb.RewindSessionRequest) -> pb.RewindSessionResponse:
        """Makes retained messages of a session ready again (S14)."""
        reply: commands.RewoundSession = await self._engine.call(
            commands.RewindSession(
                request.session,
                self._rewind(request.rewind),
                with_rejected=request.with_rejected,
                dry_run=request.dry_run,
            )
        )
        if not request.dry_run:
            _log.info(
                "session '%s' was rewound by an operator: %d messages are ready again",
                request.session,
                reply.messages,
                extra=event("session_rewound", session=request.session, messages=reply.messages),
            )
        return copied(pb.RewindSessionResponse, reply)

    async def browse_lease(
        self,
        request: pb.BrowseLeaseRequest,
        write: Write[frame.Frame[messages_pb2.DeliveryRuns]],
    ) -> None:
        """Reads the outstanding lease, or retained batches, without being its holder (S8, S13)."""
        core, retained = self._engine.core, bool(request.incarnation)
        state = core.state
        left = 0 if retained else request.max_messages

        def pieces(after: int, last: int) -> list[commands.Piece]:
            if retained:
                names = request.session, request.incarnation
                return views.retained_pieces(state, *names, after, last, MOST_PIECES)
            return views.lease_pieces(state, request.session, after + 1, last, left, MOST_PIECES)

        before = max(request.first_tag, 1) - 1
        last = request.last_tag if retained else request.last_tag or _NO_TAG
        for found in slices(pieces, before, last):
            # A purge may end the retention while they are read.
            core.pin(found)
            try:
                await send_pieces(self._engine, found, request.columns, write, browse=not retained)
            finally:
                core.unpin(found)
            if left and not (left := left - rows_in(found)):
                return

    async def plan_retained(self, request: pb.PlanRetainedRequest) -> pb.PlanRetainedResponse:
        """Finds retained batches by number or by the time of their acceptance (S13)."""
        state = self._engine.core.state
        batch_id = request.batch_id if request.HasField("batch_id") else None
        bounds = request.from_us, request.to_us
        incarnation, leases = views.find_retained(state, request.session, batch_id, *bounds)
        batches = []
        for at, lease in enumerate(leases):
            if at % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)  # let other work run (I6)
            found = views.retained_batch(state, lease)
            batches.append(copied(pb.RetainedBatch, found, chunks=_chunks(found.chunks)))
        await self._engine.wait_synced()
        return pb.PlanRetainedResponse(incarnation=incarnation, batches=batches)

    async def settle_session(self, request: pb.SettleSessionRequest) -> pb.SettleSessionResponse:
        """Rejects or releases tags of the outstanding lease, between two epochs (S8)."""
        command = settlement_of(request)
        incumbent = self._streams.incumbent(request.session, "")
        reply, sequence = self._engine.decide(
            replace(command, incumbent_live=self._liveness.live(incumbent))
        )
        self._streams.fenced(incumbent)
        _log.info(
            "session '%s': an operator settled %d messages of its lease, and its reader is fenced",
            request.session,
            reply.settled,
            extra=event("session_settled", session=request.session, messages=reply.settled),
        )
        await self._engine.sync_gate.wait(sequence)
        return copied(pb.SettleSessionResponse, reply)

    def holder_live(self, name: str) -> bool:
        """Whether the holder of the session with this name counts as live (S3)."""
        return self._liveness.live(self._streams.incumbent(name, ""))

    # --- outcomes ---

    async def stage_outcomes(self, read: Read[pb.StageOutcomesRequest]) -> pb.StageOutcomesResponse:
        """Stages a task's outcomes for messages of the outstanding lease (S6)."""
        command = await read_stage(self._engine, read)
        await self._engine.wait_writable()
        return pb.StageOutcomesResponse(tags=await self._engine.call(command))

    async def commit_outcomes(self, request: pb.CommitOutcomesRequest) -> pb.CommitOutcomesResponse:
        """Commits a whole settle call, which takes effect with the accept of its lease (S6)."""
        reply: commands.CommittedOutcomes = await self._engine.call(
            commands.CommitOutcomes(
                owner_of(request.owner),
                tuple((stage.stage_id, stage.tags) for stage in request.stages),
            )
        )
        return pb.CommitOutcomesResponse(tags=reply.tags, accepted_before=reply.accepted_before)

    async def abort_outcomes(self, request: pb.AbortOutcomesRequest) -> pb.AbortOutcomesResponse:
        """Drops stages of outcomes that will not be committed."""
        dropped: int = await self._engine.call(commands.AbortOutcomes(tuple(request.stage_ids)))
        return pb.AbortOutcomesResponse(dropped=dropped)

    # --- time ---

    def detach_absent(self) -> None:
        """Requeues the leases of holders that were away longer than the session timeout (S5)."""
        for name, incarnation in self._streams.overdue():
            if incarnation != self._streams.incumbent(name, ""):
                continue  # the incarnation has ended
            (session,) = views.list_sessions(self._engine.core.state, name)
            if session.detached or not session.leased:
                continue  # nothing is leased until the holder attaches again
            command = commands.DetachSession(name, incarnation, session.epoch)
            requeued: commands.Released = self._engine.decide(command).reply
            self._streams.fenced(incarnation)
            _log.info(
                "session '%s': its owner was away for more than %d ms; %d messages of its lease"
                " are ready again%s",
                name,
                session.session_timeout_ms,
                requeued.released,
                f", {requeued.dropped} were dropped with their deleted queue"
                if requeued.dropped
                else "",
                extra=event("session_timed_out", session=name, messages=requeued.released),
            )

    def housekeep(self) -> None:
        """Drops state past its retention, but no live session; forgets ended sessions' holders."""
        self._engine.decide(commands.Housekeep(self._live()))
        self._streams.housekeep()

    def give_way(self) -> None:
        """Ends the oldest retained batches while the disk is close to its reserve (S13)."""
        disk, now_s = self._engine.disk_alarm, asyncio.get_running_loop().time()
        missing = _RESERVES * disk.reserve_bytes - disk.free_bytes
        urgent = disk.free_bytes < _URGENT * disk.reserve_bytes
        early = not urgent and now_s < self._gave_way_s + _GIVE_WAY_S
        if missing <= 0 or early or self._engine.journal.snapshot_under_way:
            return
        ended: commands.GaveWay = self._engine.decide(commands.GiveWay(missing)).reply
        if not ended.batches:
            return
        self._gave_way_s = now_s
        if self._engine.journal.has_garbage:
            self._engine.snapshots.write()  # only a snapshot frees segments
        _log.warning(
            "the disk has %d bytes left, close to the reserve of %d: the %d oldest retained batches"
            " (%d bytes, of %s) can no longer be read",
            disk.free_bytes,
            disk.reserve_bytes,
            ended.batches,
            ended.payload_bytes,
            ", ".join(ended.holders[:_SLICE]),
            extra=event("retention_gave_way", batches=ended.batches, bytes=ended.payload_bytes),
        )

    def report_absent(self) -> None:
        """Logs the leases that wait for an absent owner (S5)."""
        state = self._engine.core.state
        absent = [
            session
            for name, incarnation, waits in sorted(views.session_incarnations(state))
            if waits and not self._liveness.live(incarnation)
            for session in views.list_sessions(state, name)
            if session.leased
        ]
        if absent:
            _log.warning(
                "%s",
                absent_leases_line(absent, self._engine.clock.now_us()),
                extra=event("leases_without_reader", sessions=len(absent)),
            )

    # --- parts ---

    def _note(self, request: pb.FetchRequest) -> None:
        """Notes the reader of a lease for later settle calls (S6), which proves the session (S9).

        The rows wait for the sync of this note, once a batch: a reader whose note was lost would
        look like a replaced one.
        """
        self._engine.decide(
            copied(
                commands.NoteFetch,
                request,
                query_id=shorten(request.query_id),
                run_id=shorten(request.run_id),
                label=shorten(request.label),
                user=current.get().user,
                empty=request.after_tag == request.last_tag,
            )
        )

    def _rewind(self, point: pb.RewindPoint) -> commands.Rewind:
        """A rewind as the core decides it."""
        batch_id = point.batch_id if point.HasField("batch_id") else None
        return commands.Rewind(batch_id, point.from_us, self._live())

    def _live(self) -> frozenset[str]:
        """Names of the sessions with a live holder."""
        listed = views.session_incarnations(self._engine.core.state)
        return frozenset(name for name, incarnation, _ in listed if self.live(incarnation))

    def _advance(self, request: pb.AdvanceRequest) -> Ticket:
        """Decides one advance, and updates the liveness of its new holder."""
        known = request.incarnation and request.start_tag
        incumbent = self._streams.incumbent(request.session, request.incarnation)
        before = views.incumbent(self._engine.core.state, request.session, request.incarnation)
        # When this half is accepted, the other half is ready, and the link refills this one (K6).
        half = self._half_window(request.queues)
        most = max(half, request.min_messages) if half else request.max_messages
        ticket = self._engine.decide(
            copied(
                commands.Advance,
                request,
                holder=holder_info(request.holder),
                queues=tuple(request.queues),
                max_messages=min(request.max_messages, most),
                user=current.get().user,
                incumbent_live=self._liveness.live(incumbent),
                new_incarnation="" if known else secrets.token_hex(16),
                rewind=self._rewind(request.rewind) if request.HasField("rewind") else None,
            )
        )
        reply: commands.Advanced = ticket.reply
        self._streams.changed(incumbent, reply.incarnation, request.holder.token)
        self._streams.watch(reply.session, reply.incarnation, request.session_timeout_ms)
        self._log_attach(reply.session, request.holder, reply.epoch, before)
        return ticket

    def _log_attach(
        self, session: str, reader: pb.Holder, epoch: int, before: tuple[str, bytes] | None
    ) -> None:
        """Logs that another reader attached to a session; the previous reader is fenced (S3).

        `before` is the incarnation and token of the previous reader.
        """
        if before is not None and before[1] == reader.token:
            return
        _log.info(
            "session '%s': '%s' on %s (%d) attached, epoch %d",
            session,
            reader.application,
            reader.host,
            reader.pid,
            epoch,
            extra=event(
                "session_attached",
                session=session,
                host=reader.host,
                pid=reader.pid,
                application=reader.application,
                epoch=epoch,
                fenced=bool(before and before[1]),
            ),
        )

    async def _until_leasable(
        self, request: pb.AdvanceRequest, reply: commands.Advanced, deadline: float
    ) -> bool:
        """Waits until another advance may lease messages (True), or until the deadline (False)."""
        loop = asyncio.get_running_loop()
        # K6: fewer than the minimum are leased once the oldest message waited for `max_delay_ms`.
        waited_ms = age_ms(reply.backlog.oldest_us, self._engine.clock.now_us())
        due = loop.time() + (request.max_delay_ms - waited_ms) / 1000
        delayed = reply.backlog.ready and request.max_delay_ms > waited_ms
        while not self._engine.alarms.stopping:
            now = loop.time()
            if delayed and now >= due:
                return True
            if now >= deadline:
                return False
            await self._engine.wait_changed((min(due, deadline) if delayed else deadline) - now)
            ready = views.ready_total(self._engine.core.state, reply.session)
            if ready > reply.backlog.ready and ready >= request.min_messages:
                return True
        return False

    def _advanced(self, reply: commands.Advanced) -> pb.AdvanceResponse:
        backlog, now_us = reply.backlog, self._engine.clock.now_us()
        others = {name: self._streams.incumbent(name, "") for name in reply.other_sessions}
        absent = [
            lease
            for lease in reply.leased_elsewhere
            if not self._liveness.connected(others[lease.session])
        ]
        return copied(
            pb.AdvanceResponse,
            reply,
            chunks=_chunks(reply.chunks),
            backlog=copied(pb.Backlog, backlog, oldest_age_ms=age_ms(backlog.oldest_us, now_us)),
            other_sessions=[name for name, each in others.items() if self._liveness.live(each)],
            warnings=[*reply.warnings, *orphaned_lease_warnings(absent, now_us)],
        )


def _may_wait(request: pb.AdvanceRequest, reply: commands.Advanced) -> bool:
    """Whether an advance that leased nothing may wait for messages.

    An opening may not, since its second advance would prove its incarnation (S9); nor may a bounded
    run (K5).
    """
    return bool(request.incarnation) and not request.horizon and reply.end_tag == request.start_tag


def _chunks(chunks: tuple[commands.Chunk, ...]) -> list[pb.LeaseChunk]:
    return [pb.LeaseChunk(last_tag=last, payload_bytes=size) for last, size in chunks]
