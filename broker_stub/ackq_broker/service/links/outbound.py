"""Reports of outbound links about themselves, for operators (L26).

Invariant: a report lasts as long as the stream that brought it, and is kept in memory only; nothing
depends on it. Its texts are within their bounds (I6).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ackq import limits
from ackq.errors import BrokerUnavailableError, InvalidArgumentError, LimitError
from ackq.v1 import links_pb2 as pb
from ackq_broker.core.checks import check_share
from ackq_broker.engine.engine import Engine
from ackq_broker.security.callers import current
from ackq_broker.service.links.info import WORD_BYTES, of_its_own
from ackq_broker.service.transport.fields import check_identifier, shorten
from ackq_broker.service.transport.rpc import Read, Write
from ackq_broker.service.transport.stream_buffers import alongside


@dataclass(slots=True)
class _Told:
    """The last report of an outbound link's process, and its user."""

    user: str
    report: pb.OutboundReport


class OutboundReports:
    """The reports of the running outbound links.

    Args:
        engine: Notifies of the broker's stop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: dict[object, _Told] = {}

    def named(self, link: str) -> list[pb.OutboundReport]:
        """The last report of each process of a link, or of every link (empty name), by name."""
        found = [told.report for told in self._told.values() if link in ("", told.report.link)]
        return sorted(found, key=lambda report: report.link)

    async def serve(
        self, read: Read[pb.ReportOutboundRequest], write: Write[pb.ReportOutboundResponse]
    ) -> None:
        """Keeps and answers the reports of a process until it half-closes.

        Raises:
            InvalidArgumentError: A report names no link, queue or target, or one that is too long.
            LimitError: The user, or the broker, has the maximum number of these streams.
        """
        user, stopping = current.get().user, asyncio.Event()

        async def answer() -> None:
            while (request := await read()) is not None:
                report = _checked(request.report)
                if stopping not in self._told:
                    self._check_room(user)
                self._told[stopping] = _Told(user, report)
                await self._engine.wait_synced()
                await write(pb.ReportOutboundResponse())

        async def stop() -> None:
            await stopping.wait()
            raise BrokerUnavailableError("The broker is shutting down; report again.")

        try:
            with self._engine.alarms.listening("report", alarm=lambda _: None, stop=stopping.set):
                await alongside(answer(), stop())
        finally:
            self._told.pop(stopping, None)

    def _check_room(self, user: str) -> None:
        most = limits.MAX_OUTBOUND_REPORTS
        check_share("outbound links", user, most, self._told)
        if len(self._told) >= most:
            raise LimitError(
                f"The broker shows {most} outbound links, its limit. The link continues, but is "
                "not shown.",
                limit=most,
            )


def _checked(report: pb.OutboundReport) -> pb.OutboundReport:
    """Checks a report, cuts its texts to their bounds and removes the holder's token."""
    if not (report.link and report.queue and report.target):
        raise InvalidArgumentError("A report names a link, its queue and its target.")
    check_identifier("link's name", report.link, limits.MAX_NAME_BYTES)
    check_identifier("queue's name", report.queue, limits.MAX_NAME_BYTES)
    report.target = shorten(report.target, limits.MAX_LINK_SOURCE_BYTES)
    report.reason = shorten(report.reason, limits.MAX_LINK_REASON_BYTES)
    report.limited_by = shorten(report.limited_by, WORD_BYTES)
    holder = report.holder
    holder.token, holder.host = b"", shorten(holder.host)
    holder.application = shorten(holder.application)
    return of_its_own(report)
