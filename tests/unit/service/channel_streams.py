"""Channel streams in memory, over a journal that syncs when the test asks for it."""

import asyncio

import numpy as np
from pyroaring import BitMap64

from ackq.v1 import consuming_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.engine.block_cache import BlockCache
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.consuming.service import ConsumingService
from tests.fakes.blocks import encoded, rows
from tests.fakes.journal import HeldEngine

DURABLE = commands.QueueProperties(durable=True)
PUBLISHER = b"p" * 16


class Uncached(BlockCache):
    """A block cache that keeps nothing."""

    def keep(self, block_id, data):
        pass


class InlineEngine(HeldEngine):
    """Builds frames at once, from blocks as the journal has them.

    With `prompt` the disk catches up at the next turn of the loop.
    """

    def __init__(self, *, prompt=True):
        super().__init__()
        self.block_cache = Uncached(self.journal.read_block)
        if prompt:
            self.on_change.append(lambda: asyncio.get_running_loop().call_soon(self.sync))

    async def run(self, work):
        return work()


def publish(
    engine, first, *messages, queue="q", keys=(), exchange="", persistent=True, publisher=PUBLISHER
):
    """Decides a publish of messages with the numbers from `first` on, by an open publisher.

    `keys` are the routing keys of the messages, which their block has as a column.
    """
    distinct = tuple(dict.fromkeys(keys or [queue]))
    codes = np.array([distinct.index(key) for key in keys], np.int32) if keys else None
    command = commands.Publish(
        publisher_id=publisher,
        numbers=BitMap64(range(first, first + len(messages))),
        lowest_unanswered=1,
        exchange=exchange,
        mandatory=False,
        routes=commands.Routes(distinct, codes),
        rows=len(messages),
        payload_bytes=sum(map(len, messages)),
        persistent=persistent,
    )
    block = encoded(body=list(messages), routing_key=list(keys) or "")
    return engine.decide(command, (block,))


class Broker:
    """An engine with a durable queue `q`, a dispatcher and the consuming service.

    Attributes:
        late_s: The time by which the broker itself was late.
    """

    def __init__(self, *, prompt=True):
        self.engine = InlineEngine(prompt=prompt)
        self.late_s = 0.0
        loop = asyncio.get_running_loop()
        self.dispatcher = ConsumerDispatcher(self.engine, loop.time)
        self.service = ConsumingService(
            self.engine, self.dispatcher, lambda: loop.time() - self.late_s
        )
        self._number = 0
        self.engine.decide(commands.DeclareQueue("q", DURABLE))
        self.engine.decide(commands.OpenPublisher(PUBLISHER))

    def publish(self, *messages, queue="q"):
        publish(self.engine, self._number + 1, *messages, queue=queue)
        self._number += len(messages)

    def queue(self, name="q"):
        (info,) = views.list_queues(self.engine.core.state, name)
        return info

    def open(self, channel_id=b"c" * 16, **opening):
        return Stream(self.service, channel_id, **opening)

    async def subscribed(self, **fields):
        """Returns a stream that has subscribed to `q`."""
        stream = self.open()
        stream.subscribe(**fields)
        await run_until_idle()
        return stream

    async def reconnected(self, stream):
        """Disconnects a channel's stream and returns a new stream of the channel."""
        await stream.disconnect()
        stream = self.open()
        await run_until_idle()
        return stream


class ClientStream:
    """The client side of a stream that `serve` serves, in memory, and the answers it was sent.

    Attributes:
        reading: While it is cleared, writes wait, as when the client does not read.
    """

    def __init__(self, serve):
        self.answers = []
        self.reading = asyncio.Event()
        self.reading.set()
        self._requests = asyncio.Queue()
        self.task = asyncio.ensure_future(serve(self._requests.get, self._write))

    def request(self, request):
        self._requests.put_nowait(request)

    def half_close(self):
        self.request(None)

    async def disconnect(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _write(self, answer):
        await self.reading.wait()
        self.answers.append(answer)


class Stream(ClientStream):
    """One stream of a channel; its answers are frames, without the heartbeats.

    Attributes:
        beats: The number of heartbeats it was sent.
    """

    def __init__(self, service, channel_id, **opening):
        super().__init__(service.consume)
        self.beats = 0
        self.send(open=pb.ChannelOpen(channel_id=channel_id, **opening))

    def send(self, **kind):
        self.request(pb.ConsumeRequest(**kind))

    def subscribe(self, consumer="c", queue="q", **fields):
        self.send(subscribe=pb.Subscribe(consumer=consumer, queue=queue, **fields))

    def beat(self):
        self.send(heartbeat=pb.ChannelHeartbeat())

    def transport_ack(self, tag):
        self.send(transport_ack=pb.TransportAck(delivery_tag=tag))

    def kinds(self):
        """The kinds of the frames received since the last call."""
        found = [frame.header.WhichOneof("kind") for frame in self.answers]
        self.answers.clear()
        return found

    def tags(self):
        """The tags of the deliveries received since the last call."""
        found = []
        for frame in self.answers:
            runs = frame.header.delivery.runs
            for first, count in zip(runs.first_tag, runs.rows, strict=True):
                found += range(first, first + count)
            if frame.block:
                assert len(rows(frame.block)["body"]) == sum(runs.rows)
        self.answers.clear()
        return found

    async def _write(self, frame):
        if frame.header.HasField("heartbeat"):
            await self.reading.wait()
            self.beats += 1
        else:
            await super()._write(frame)


async def subscribed(*messages, **fields):
    """A broker with these messages in `q`, and a stream that has subscribed to it."""
    broker = Broker()
    if messages:
        broker.publish(*messages)
    return broker, await broker.subscribed(**fields)


async def run_until_idle():
    """Runs all that can run now, without advancing the time."""
    for _ in range(50):
        await asyncio.sleep(0)
