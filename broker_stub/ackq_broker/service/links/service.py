"""`LinksService`: the streams of links, and operations on links (L1, L25, L26)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ackq.errors import LinkNotFoundError
from ackq.v1 import links_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.service.links.info import link_info
from ackq_broker.service.links.outbound import OutboundReports
from ackq_broker.service.links.stream import EdgeStream, Request
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.transport.rpc import Read, Write

_log: Final = logging.getLogger(__name__)


class LinksService:
    """The RPCs of links.

    Args:
        engine: Decides commands and reads state.
        liveness: Which links' holders count as live, by the links' names. Every holder in the
            journal counts as heard now: the broker's downtime is not counted (S3).
    """

    def __init__(self, engine: Engine, liveness: Liveness) -> None:
        self._engine = engine
        self._liveness = liveness
        self._live: dict[str, EdgeStream] = {}
        self._outbound = OutboundReports(engine)
        for link in views.list_links(engine.core.state):
            if link.holder is not None and link.holder.token:
                liveness.attached(link.link, link.holder.token)

    async def link(self, read: Read[Request], write: Write[pb.LinkResponse]) -> None:
        """Serves a link's stream (L1, L5, L10)."""
        await EdgeStream(self._engine, self._live, self._liveness, read, write).run()

    async def report_outbound(
        self,
        read: Read[pb.ReportOutboundRequest],
        write: Write[pb.ReportOutboundResponse],
    ) -> None:
        """Serves the stream of an outbound link's reports while it runs (L26)."""
        await self._outbound.serve(read, write)

    async def list_links(self, request: pb.ListLinksRequest) -> pb.ListLinksResponse:
        """Lists all links, or one."""
        found = []
        outbound = self._outbound.named(request.link) if request.outbound else []
        for name in (
            (request.link,) if request.link else sorted(views.link_names(self._engine.core.state))
        ):
            try:
                found.append(self.look(name))
            except LinkNotFoundError:
                if request.link and not outbound:
                    raise  # else it was removed in the meantime
            await asyncio.sleep(0)  # let other work run between two links (I6)
        await self._engine.wait_synced()
        return pb.ListLinksResponse(links=found, outbound=outbound)

    def look(self, name: str) -> pb.LinkInfo:
        """A link's present state, which may not be on disk yet; raises LinkNotFoundError."""
        link, now_us = views.link_info(self._engine.core.state, name), self._engine.clock.now_us()
        stream = self._live.get(name)
        return link_info(
            link,
            now_us,
            live=self._liveness.live(name),
            refusal=stream.refusal if stream is not None else "",
            report=stream.report if stream is not None else None,
        )

    def half_window(self, queues: Sequence[str]) -> int:
        """Half of the total window of the `ack=settled` links that fill the given queues.

        0 if such links do not fill all of the queues, or if more messages than the total are ready.
        """
        windows, core = dict.fromkeys(queues, 0), self._engine.core
        for name, stream in self._live.items():
            queue = views.holding_queue(core.state, name)
            if queue in windows:
                windows[queue] += stream.report.window_messages
        total = sum(windows.values())
        if (
            not all(windows.values())
            or sum(views.ready(core.state, queue) for queue in windows) > total
        ):
            return 0
        return -(-total // 2)

    async def pause_link(self, request: pb.PauseLinkRequest) -> pb.PauseLinkResponse:
        """Pauses or resumes a link, and notifies its process at once (L25)."""
        changed, sequence = self._engine.decide(commands.PauseLink(request.link, request.paused))
        if changed:
            stream = self._live.get(request.link)
            if stream is not None:
                stream.paused(sequence, paused=request.paused)
            _log.info(
                "link '%s' was %s by an operator",
                request.link,
                "paused" if request.paused else "resumed",
                extra=event("link_paused", link=request.link, paused=request.paused),
            )
        await self._engine.sync_gate.wait(sequence)
        return pb.PauseLinkResponse(changed=changed)

    async def remove_link(self, request: pb.RemoveLinkRequest) -> pb.RemoveLinkResponse:
        """Removes a link (L25)."""
        reply, sequence = self._engine.decide(
            commands.RemoveLink(
                request.link,
                forget=request.forget,
                incumbent_live=self._liveness.live(request.link),
            )
        )
        self.end(request.link)
        _log.info(
            "link '%s' was removed by an operator, with %d messages held and %d acknowledgements "
            "not proven",
            request.link,
            reply.held,
            reply.unproven,
            extra=event(
                "link_removed", link=request.link, held=reply.held, unproven=reply.unproven
            ),
        )
        await self._engine.sync_gate.wait(sequence)
        return pb.RemoveLinkResponse(held=reply.held, unproven=reply.unproven)

    def end(self, link: str) -> None:
        """Ends the stream of a link that was removed, by itself (L25) or with its queue (L13)."""
        self._liveness.forget(link)
        stream = self._live.get(link)
        if stream is not None:
            stream.fence(
                LinkNotFoundError(f"The link '{link}' was removed by an operator.", link=link)
            )
