"""Reports of outbound links, without a disk or a socket."""

import asyncio
from types import SimpleNamespace

import pytest

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError, LinkNotFoundError
from ackq.v1 import links_pb2 as pb
from ackq.v1 import sessions_pb2
from ackq_broker.security.callers import current
from ackq_broker.service.links.service import LinksService
from tests.unit.service.channel_streams import InlineEngine, run_until_idle

FIELDS = {"link": "out", "queue": "q", "target": "there"}


class Process:
    """The report stream of an outbound link's process, as a user."""

    def __init__(self, broker, user=""):
        self._requests = asyncio.Queue()
        self.answers = []

        async def run():
            current.set(SimpleNamespace(user=user))
            await broker.service.report_outbound(self._requests.get, self._answer)

        self.task = asyncio.ensure_future(run())

    async def tell(self, **fields):
        """Sends a report, and lets the broker process it."""
        report = pb.OutboundReport(**FIELDS | fields)
        self._requests.put_nowait(pb.ReportOutboundRequest(report=report))
        await run_until_idle()

    async def half_close(self):
        self._requests.put_nowait(None)
        await self.task

    async def _answer(self, response):
        self.answers.append(response)


class Broker:
    def __init__(self):
        self.engine = InlineEngine()
        self.service = LinksService(self.engine, SimpleNamespace(live=lambda _: False))

    async def shown(self, name="", *, outbound=True):
        request = pb.ListLinksRequest(link=name, outbound=outbound)
        return list((await self.service.list_links(request)).outbound)


async def test_a_report_lasts_as_long_as_its_stream():
    """L26: each report replaces the previous one and is answered; it ends with its stream."""
    broker = Broker()
    process = Process(broker)
    await process.tell(published=1)
    await process.tell(published=2, reason="returned")
    (report,) = await broker.shown("out")
    assert (report.published, report.reason, len(process.answers)) == (2, "returned", 2)
    assert await broker.shown(outbound=False) == []  # for a client that knows inbound links only
    await process.half_close()
    assert await broker.shown() == []
    with pytest.raises(LinkNotFoundError):
        await broker.shown("out")


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
    unknown = pb.OutboundReport.FromString(
        pb.OutboundReport(**FIELDS).SerializeToString() + b"\xfa\x01\x02xy"
    )
    process._requests.put_nowait(pb.ReportOutboundRequest(report=unknown))
    await run_until_idle()
    (report,) = await broker.shown()
    assert report.SerializeToString() == pb.OutboundReport(**FIELDS).SerializeToString() + b"\x22\0"
    await process.half_close()


@pytest.mark.parametrize(
    "fields",
    [{"link": ""}, {"queue": ""}, {"target": ""}, {"link": "l" * 256}, {"queue": "q" * 256}],
)
async def test_a_report_that_names_nothing_is_refused(fields):
    """L26: a report must name a link, a queue and a target, within the bounds of names."""
    broker = Broker()
    process = Process(broker)
    await process.tell(**fields)
    with pytest.raises(InvalidArgumentError):
        await process.task
    assert await broker.shown() == []


async def test_a_user_has_a_share(monkeypatch):
    """A5, I6: a user at half of the report limit is refused; others only when it is reached."""
    monkeypatch.setattr(limits, "MAX_OUTBOUND_REPORTS", 4)
    broker = Broker()
    told = [Process(broker, user) for user in ("mallory", "mallory", "alice")]
    for each in told:
        await each.tell()
    refused = Process(broker, "mallory")
    await refused.tell()
    with pytest.raises(LimitError, match="share"):
        await refused.task
    told.append(Process(broker))
    await told[-1].tell()
    refused = Process(broker, "bob")
    await refused.tell()
    with pytest.raises(LimitError, match="shows 4 outbound links"):
        await refused.task
    await told[0].tell(published=1)  # an admitted process stays admitted
    assert len(await broker.shown()) == 4
    await told.pop().half_close()
    for each in told:
        await each.half_close()
