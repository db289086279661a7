"""A publisher's stream in memory, over a journal that syncs when the test asks for it."""

from contextlib import asynccontextmanager

from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.service.publishing.service import PublishingService
from tests.fakes.blocks import encoded
from tests.fakes.journal import HeldEngine
from tests.unit.service.channel_streams import PUBLISHER, ClientStream, run_until_idle

CONFIRM, TRANSACTION = pb.PUBLISH_MODE_CONFIRM, pb.PUBLISH_MODE_TRANSACTION


class Stream(ClientStream):
    """The client side of a publisher's stream; its answers are their headers."""

    def __init__(self, service):
        super().__init__(service.publish)

    async def _write(self, response):
        await super()._write(response.header)

    def send(self, block=b"", *, lowest=1, **kind):
        header = pb.PublishHeader(lowest_unanswered=lowest, **kind)
        self.request(frame.Frame(header, block))

    def open(self, *, mode=CONFIRM, lowest=1, publisher_id=PUBLISHER, **fields):
        opening = pb.PublishOpen(publisher_id=publisher_id, mode=mode, **fields)
        self.send(open=opening, lowest=lowest)

    def publish(self, number, routing_key="q", *, body=b"x", data=None, **constants):
        """Sends one message; `data` are further fields of the frame."""
        header = pb.PublishData(first_number=number, rows=1, **(data or {}))
        self.send(encoded(body=[body], routing_key=routing_key, **constants), data=header)

    async def published(self, *message, **fields):
        """Sends one message, and lets the broker handle it."""
        self.publish(*message, **fields)
        await run_until_idle()

    async def finish(self):
        """Half-closes, and waits until the broker has answered everything."""
        self.half_close()
        await self.task

    def kinds(self):
        return [answer.WhichOneof("kind") for answer in self.answers]

    def confirmed(self):
        """The confirmed publish numbers; asserts that none is confirmed twice."""
        numbers = set()
        for last, multiple in self.confirms():
            new = set(range(1, last + 1)) - numbers if multiple else {last}
            assert new
            assert not new & numbers
            numbers |= new
        return numbers

    def confirms(self):
        return [(each.last_number, each.multiple) for each in self.of("confirm")]

    def of(self, kind):
        """The answers of a kind."""
        return [getattr(answer, kind) for answer in self.answers if answer.HasField(kind)]


def newer(service, **opening):
    """A stream that resumes the publisher, or of another one."""
    stream = Stream(service)
    stream.open(resume="publisher_id" not in opening, **opening)
    return stream


async def disk(engine):
    """Runs all that can run, syncs the disk, and lets the answers leave."""
    await run_until_idle()
    engine.sync()
    await run_until_idle()


@asynccontextmanager
async def opened(**opening):
    """An engine with a durable queue on disk, an open stream, and the service for more streams."""
    engine = HeldEngine()
    service = PublishingService(engine)
    engine.decide(commands.DeclareQueue("q", commands.QueueProperties(durable=True)))
    engine.sync()
    stream = Stream(service)
    stream.open(**opening)
    await disk(engine)
    assert stream.kinds() == ["opened"]
    yield engine, stream, service
    await stream.disconnect()
