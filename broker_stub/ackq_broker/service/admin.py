"""`AdminService`: exchanges, queues, bindings, browse (Q1-Q6); a core command or query per call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from ackq import __version__
from ackq.errors import InvalidArgumentError, QueueNotFoundError
from ackq.v1 import admin_pb2 as pb
from ackq.v1 import messages_pb2
from ackq.wire import frame
from ackq.wire.answers import copied
from ackq_broker.core import commands, views
from ackq_broker.engine.alarms import AlarmKind
from ackq_broker.engine.backups import Backups
from ackq_broker.engine.clock import age_ms
from ackq_broker.engine.engine import Engine
from ackq_broker.service.blocks.sending import MOST_PIECES, rows_in, send_pieces, slices
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.holdings import Holdings
from ackq_broker.service.transport.rpc import Write

# Queues of a list that are collected in one turn of the event loop.
_SLICE: Final = 100
_OVERFLOW: Final = {
    pb.OVERFLOW_UNSPECIFIED: "reject-publish",
    pb.OVERFLOW_REJECT_PUBLISH: "reject-publish",
    pb.OVERFLOW_DROP_HEAD: "drop-head",
}
_OVERFLOW_OUT: Final = {name: value for value, name in _OVERFLOW.items()}
_ALARMS: Final = {
    AlarmKind.NONE: pb.ALARM_UNSPECIFIED,
    AlarmKind.DRAINING: pb.ALARM_DRAINING,
    AlarmKind.DISK: pb.ALARM_DISK,
    AlarmKind.MEMORY: pb.ALARM_MEMORY,
}
_KIND: Final = {
    pb.EXCHANGE_TYPE_DIRECT: "direct",
    pb.EXCHANGE_TYPE_FANOUT: "fanout",
    pb.EXCHANGE_TYPE_TOPIC: "topic",
}
_KIND_OUT: Final = {name: value for value, name in _KIND.items()}


class AdminService:
    """The RPCs of operators and set-up code.

    Args:
        engine: Decides commands and reads state.
        dispatcher: Knows the consumers of a queue.
        sync_mode: How the journal syncs, for `ServerInfo`.
        holdings: Knows the holders of a queue's messages.
        backups: Makes backups; None: backups are refused.
        end_link: Ends the stream of a link that was removed with its queue.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: ConsumerDispatcher,
        sync_mode: str,
        holdings: Holdings,
        backups: Backups | None = None,
        end_link: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._backups = backups or Backups(engine, None)
        self._sync_mode = sync_mode
        self._holdings = holdings
        self._end_link = end_link
        self._started_s = time.monotonic()

    async def server_info(self, _: pb.ServerInfoRequest) -> pb.ServerInfoResponse:
        """Returns the version, history and sync state of the broker."""
        core = self._engine.core
        sequence, cause, refused = await self._engine.query(
            lambda: (
                core.sequence,
                views.history_cause(core.state),
                views.refused_by_history(core.state),
            )
        )
        return pb.ServerInfoResponse(
            version=__version__,
            history_id=self._engine.history_id,
            sequence=sequence,
            synced=self._engine.sync_gate.synced,
            sync_mode=self._sync_mode,
            history_cause=cause,
            held_back=sum(refused),
            memory_limit_bytes=self._engine.in_flight.limit,
            memory_used_bytes=self._engine.in_flight.used_bytes(),
            blocked=self._engine.alarms.reason,
            alarm=_ALARMS[self._engine.alarms.kind],
            now_us=self._engine.clock.now_us(),
            uptime_ms=int(1000 * (time.monotonic() - self._started_s)),
            clock_jump_ms=self._engine.clock.jump_us() // 1000,
        )

    async def accept_history(self, _: pb.AcceptHistoryRequest) -> pb.AcceptHistoryResponse:
        """Accepts publishers, sessions, writers and links of older histories (Q8)."""
        accepted: commands.RefusedByHistory = await self._engine.call(commands.AcceptHistory())
        return pb.AcceptHistoryResponse(history_id=self._engine.history_id, **accepted._asdict())

    async def backup(self, request: pb.BackupRequest) -> pb.BackupResponse:
        """Makes a backup under a name in the operator's directory (O5)."""
        made = await self._backups.make(request.name)
        return copied(pb.BackupResponse, made, directory=str(made.directory))

    async def drain(self, request: pb.DrainRequest) -> pb.DrainResponse:
        """Stops accepting new work, or resumes, or neither; reports the unfinished work (O6)."""
        engine = self._engine
        if not request.look:
            engine.alarms.drain(draining=not request.resume)
        unfinished = await engine.query(
            lambda: views.unfinished(engine.core.state, engine.buffering)
        )
        return pb.DrainResponse(
            draining=engine.alarms.draining,
            bytes=engine.in_flight.held + engine.journal.unsynced_bytes,
            **unfinished._asdict(),
        )

    # --- queues ---

    async def declare_queue(self, request: pb.DeclareQueueRequest) -> pb.DeclareQueueResponse:
        """Creates a queue, or confirms that it exists; idempotent (Q1)."""
        reply: commands.DeclaredQueue = await self._declare(
            commands.DeclareQueue(request.queue, _properties(request.properties), request.passive),
            check=request.check,
        )
        return copied(pb.DeclareQueueResponse, reply)

    async def delete_queue(self, request: pb.DeleteQueueRequest) -> pb.DeleteQueueResponse:
        """Removes a queue (Q4); when forced, its consumers are cancelled, its links end (L13)."""
        links = views.links_to(self._engine.core.state, request.queue)
        reply, sequence = self._engine.decide(
            commands.DeleteQueue(request.queue, request.force, request.if_empty)
        )
        name = request.queue
        reason = QueueNotFoundError(f"The queue '{name}' was deleted.", queue=name)
        for consumer in self._dispatcher.consumers(name):
            consumer.cancel(reason)
        for link in links:
            self._end_link(link)
        await self._engine.sync_gate.wait(sequence)
        return pb.DeleteQueueResponse(ready=reply.ready, unacked=reply.unacked)

    async def purge_queue(self, request: pb.PurgeQueueRequest) -> pb.PurgeQueueResponse:
        """Removes a queue's ready messages (Q4)."""
        purged: int = await self._engine.call(commands.PurgeQueue(request.queue))
        return pb.PurgeQueueResponse(purged=purged)

    async def rewind_queue(self, request: pb.RewindQueueRequest) -> pb.RewindQueueResponse:
        """Makes accepted messages of channels ready again (S14)."""
        reply: commands.RewoundQueue = await self._engine.call(
            copied(commands.RewindQueue, request)
        )
        return copied(pb.RewindQueueResponse, reply)

    async def redrive(self, request: pb.RedriveRequest) -> pb.RedriveResponse:
        """Moves dead letters back to their original queues, as many as fit a record (Q6)."""
        reply: commands.Redriven = await self._engine.call(
            copied(
                commands.Redrive,
                request,
                first=request.first_position,
                last=request.last_position,
            )
        )
        return copied(pb.RedriveResponse, reply, last_position=reply.last)

    async def list_queues(self, request: pb.ListQueuesRequest) -> pb.ListQueuesResponse:
        """Lists all queues, a page of them, or one; in slices between other work (Q5, I6)."""
        core, now_us = self._engine.core, self._engine.clock.now_us()
        if request.queue:
            (one,) = await self._engine.query(lambda: views.list_queues(core.state, request.queue))
            return pb.ListQueuesResponse(queues=[_queue_info(one, now_us)])
        size = request.page_size
        names = views.matching_names(
            core.state,
            request.pattern,
            request.after,
            not_empty=request.not_empty,
            limit=size + 1 if size else 0,
        )
        listed = names[: size or None]
        answer = pb.ListQueuesResponse(more=len(listed) < len(names))
        for first in range(0, len(listed), _SLICE):
            found = views.queue_infos(core.state, listed[first : first + _SLICE])
            answer.queues.extend([_queue_info(queue, now_us) for queue in found])
            await asyncio.sleep(0)  # let other work run
        await self._engine.wait_synced()
        return answer

    async def list_holdings(self, request: pb.ListHoldingsRequest) -> pb.ListHoldingsResponse:
        """Lists the holders of a queue's messages, and other reasons that they are kept (Q9)."""
        return await self._holdings.list(request.queue, request.position)

    # --- exchanges ---

    async def declare_exchange(
        self, request: pb.DeclareExchangeRequest
    ) -> pb.DeclareExchangeResponse:
        """Creates an exchange, or confirms that it exists; idempotent (Q2)."""
        if request.type not in _KIND:
            raise InvalidArgumentError(
                f"Exchange '{request.exchange}' needs a type: direct, fanout or topic.",
                exchange=request.exchange,
            )
        created: bool = await self._declare(
            commands.DeclareExchange(request.exchange, _KIND[request.type], request.durable),
            check=request.check,
        )
        return pb.DeclareExchangeResponse(created=created)

    async def delete_exchange(self, request: pb.DeleteExchangeRequest) -> pb.DeleteExchangeResponse:
        """Removes an exchange and its bindings."""
        bindings: int = await self._engine.call(commands.DeleteExchange(request.exchange))
        return pb.DeleteExchangeResponse(bindings=bindings)

    async def list_exchanges(self, _: pb.ListExchangesRequest) -> pb.ListExchangesResponse:
        """Lists all exchanges with their bindings, collected in small steps (I6)."""
        found = []
        for each in views.list_exchanges(self._engine.core.state):
            if each is not None:
                found.append(each)
            await asyncio.sleep(0)
        await self._engine.wait_synced()
        return await self._engine.run(
            lambda: pb.ListExchangesResponse(exchanges=list(map(_exchange_info, found)))
        )

    async def bind(self, request: pb.BindRequest) -> pb.BindResponse:
        """Binds a queue to an exchange."""
        created: bool = await self._declare(
            commands.Bind(request.exchange, request.queue, request.binding_key), check=request.check
        )
        return pb.BindResponse(created=created)

    async def _declare(self, command: commands.Command, *, check: bool) -> Any:
        """Executes a command; with `check` it is only decided, for its reply or refusal (O7)."""
        if not check:
            return await self._engine.call(command)
        engine = self._engine
        return await engine.query(lambda: engine.core.decide(command, engine.clock.now_us()).reply)

    async def unbind(self, request: pb.UnbindRequest) -> pb.UnbindResponse:
        """Removes a binding."""
        removed: bool = await self._engine.call(
            commands.Unbind(request.exchange, request.queue, request.binding_key)
        )
        return pb.UnbindResponse(removed=removed)

    # --- browse ---

    async def plan_browse(self, request: pb.PlanBrowseRequest) -> pb.PlanBrowseResponse:
        """Returns the chunks of a queue for a parallel browse."""
        chunks = await self._engine.query(
            lambda: views.plan_browse(self._engine.core.state, request.queue)
        )
        return pb.PlanBrowseResponse(chunks=[pb.BrowseChunk(**chunk._asdict()) for chunk in chunks])

    async def browse(
        self, request: pb.BrowseRequest, write: Write[frame.Frame[messages_pb2.DeliveryRuns]]
    ) -> None:
        """Reads messages of a queue without consuming them (Q5)."""
        core, cut, left = self._engine.core, request.max_body_bytes, request.max_messages

        def pieces(after: int, last: int) -> list[commands.Piece]:
            return views.browse(core.state, request.queue, after + 1, last, left, MOST_PIECES)

        before = max(request.first_position, 1) - 1
        # Messages that arrive in the meantime are not waited for.
        last = request.last_position or max(views.tail(core.state, request.queue), 1)
        for found in slices(pieces, before, last):
            await send_pieces(
                self._engine, found, request.columns, write, browse=True, max_body_bytes=cut
            )
            if left and not (left := left - rows_in(found)):
                return


def _properties(properties: pb.QueueProperties) -> commands.QueueProperties:
    """Converts queue properties from the wire to the core's form."""
    if properties.overflow not in _OVERFLOW:
        raise InvalidArgumentError(
            f"Overflow {properties.overflow} is not known; choose reject-publish or drop-head."
        )
    overflow = _OVERFLOW[properties.overflow]
    return copied(commands.QueueProperties, properties, overflow=overflow)


def _queue_info(queue: commands.QueueInfo, now_us: int) -> pb.QueueInfo:
    properties = queue.properties
    overflow = _OVERFLOW_OUT[properties.overflow]
    return copied(
        pb.QueueInfo,
        queue,
        properties=copied(pb.QueueProperties, properties, overflow=overflow),
        oldest_age_ms=age_ms(queue.oldest_us, now_us),
        retained_age_ms=age_ms(queue.retained_since_us, now_us),
    )


def _exchange_info(exchange: commands.ExchangeInfo) -> pb.ExchangeInfo:
    return pb.ExchangeInfo(
        exchange=exchange.exchange,
        type=_KIND_OUT[exchange.kind],
        durable=exchange.durable,
        bindings=[
            pb.Binding(queue=queue, binding_key=key) for queue, key in sorted(exchange.bindings)
        ],
    )
