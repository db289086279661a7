"""Reports of outbound links, without a disk or a socket."""

from types import SimpleNamespace

import pytest

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError, LinkNotFoundError
from ackq.v1 import links_pb2 as pb
from ackq.v1 import sessions_pb2
from ackq_broker.security.callers import current
from ackq_broker.service.links.service import LinksService
from tests.unit.service.channel_streams import ClientStream, InlineEngine, run_until_idle

FIELDS = {"link": "out", "queue": "q", "target": "there"}


class Process(ClientStream):
    """The report stream of an outbound link's process, as a user."""

    def __init__(self, broker, user=""):
        async def serve(read, write):
            current.set(SimpleNamespace(user=user))
            await broker.service.report_outbound(read, write)

        super().__init__(serve)

    async def tell(self, report=b"", **fields):
        """Sends a report, of fields or bytes, and lets the broker process it."""
        sent = pb.OutboundReport(**FIELDS | fields)
        sent.MergeFromString(report)
        self.request(pb.ReportOutboundRequest(report=sent))
        await run_until_idle()

    async def end(self):
        self.half_close()
        await self.task


class Broker:
    def __init__(self):
        self.engine = InlineEngine()
        self.service = LinksService(self.engine, SimpleNamespace(live=lambda _: False))

    async def shown(self, name="", *, outbound=True):
        request = pb.ListLinksRequest(link=name, outbound=outbound)
        return list((await self.service.list_links(request)).outbound)


async def test_a_report_lasts_as_long_as_its_stream():
    """L26: each report replaces the previous one and is answered; it ends with its stream.

    It must name a link, a queue and a target, within the bounds of names.
    """
    broker = Broker()
    process = Process(broker)
    await process.tell(published=1)
    await process.tell(published=2, reason="returned")
    (report,) = await broker.shown("out")
    assert (report.published, report.reason, len(process.answers)) == (2, "returned", 2)
    assert await broker.shown(outbound=False) == []  # for a client that knows inbound links only
    await process.end()
    with pytest.raises(LinkNotFoundError):
        await broker.shown("out")
    for name, wrong in (("link", ""), ("queue", ""), ("target", ""), ("link", "l" * 256)):
        process = Process(broker)
        await process.tell(**{name: wrong})
        with pytest.raises(InvalidArgumentError):
            await process.task
    assert await broker.shown() == []


async def test_a_report_is_within_its_bounds():
    """I6, S3: report texts are truncated, unknown fields are dropped, and no token is shown."""
    broker = Broker()
    process = Process(broker)
    long = "é" * 5_000
    holder = sessions_pb2.Holder(host=long, application=long, token=bytes(16), pid=7)
    await process.tell(target=long, reason=long, limited_by=long, holder=holder)
    (report,) = await broker.shown()
    assert len(report.reason.encode()) <= limits.MAX_LINK_REASON_BYTES
    assert len(report.target.encode()) <= limits.MAX_LINK_SOURCE_BYTES
    assert len(report.SerializeToString()) < 6_000
    assert (report.holder.token, report.holder.pid) == (b"", 7)
    await process.tell(b"\xfa\x01\x02xy")  # an unknown field
    (report,) = await broker.shown()
    assert report.SerializeToString() == pb.OutboundReport(**FIELDS).SerializeToString() + b"\x22\0"
    await process.end()


async def test_a_user_has_a_share(monkeypatch):
    """A5, I6: a user at half of the report limit is refused; others only when it is reached."""
    monkeypatch.setattr(limits, "MAX_OUTBOUND_REPORTS", 4)
    broker = Broker()
    told = {}
    for number, (user, refusal) in enumerate(
        (
            ("mallory", ""),
            ("mallory", ""),
            ("alice", ""),
            ("mallory", "share"),
            ("", ""),
            ("bob", "shows 4 outbound links"),
        )
    ):
        process = Process(broker, user)
        await process.tell()
        if refusal:
            with pytest.raises(LimitError, match=refusal):
                await process.task
        else:
            told[number] = process
    await told[0].tell(published=1)  # an admitted process stays admitted
    assert len(await broker.shown()) == 4
    for each in told.values():
        await each.end()
