"""A process that runs a link: the real `Inbound` between the local broker and `Elsewhere`.

It has an event loop of its own, as a broker process has. After a kill that loop never runs again;
while frozen it stands still, and then receives everything that happened meanwhile at once.
"""

import asyncio

import pyarrow as pa

from ackq.client import Broker
from ackq.errors import AckqError
from ackq.wire.columns import STORED
from ackq_link.adapter import CutError, Deliveries, Limits, QueueLimits, Remaining
from ackq_link.amqp091.acknowledgements import Acknowledgements, Credit
from ackq_link.inbound import Inbound
from ackq_link.process import Edge
from tests.crash.simulation.kernel import Loop

_LATEST_ACK_S = 0.05
_BYTES = 1 << 20


class LinkProcess:
    """One process, from its start to its end.

    Args:
        world: The world that it runs in.
        elsewhere: The remote broker.
        books: Record its answers and acknowledgements.
        rules: The link's rules, an `InboundRules`.
        rng: Its random generator.
        prefetch: Its window.

    Attributes:
        ended: How it ended; "" while it runs. `error`: its own failure.
    """

    def __init__(self, world, elsewhere, books, rules, rng, prefetch):
        self.books = books
        self.rng = rng
        self.ended = ""
        self.error = None
        self._world = world
        self._loop = Loop(world.kernel, numbered=True)
        self._frozen = self._expelled = False
        self._connections = []
        self._channels = []
        self._source = SimulatedSource(self, elsewhere, prefetch)
        self._link = Inbound("link", self._source, Edge(Broker(self), "inbox"), rules)
        self._stop = asyncio.Event()
        world.add_loop(self._loop)
        self._task = self._loop.create_task(self._run())

    def __str__(self):
        return "the edge"

    async def _run(self):
        try:
            await self._link.run(self._stop)
        except AckqError as error:
            self._over("failed", error)
        except BaseException as bug:  # noqa: BLE001 - it fails the world
            bug.add_note("in a link's process")
            self._world.kernel.fail(bug)
        else:
            self._over("stopped")

    @property
    def idle(self):
        """Whether it consumes, and the local broker has answered everything that it took."""
        counters = self._link.counters
        consumes = any(not channel.client_cut for channel in self._channels)
        return consumes and counters.taken == counters.stored

    # --- what befalls it ---

    def stop(self):
        """Asks the process to stop, as SIGTERM does."""
        self._loop.call_soon(self._stop.set)

    def kill(self):
        """Ends the process at once; requests that it has sent may still arrive."""
        self._over("killed")

    def freeze(self, seconds):
        """Freezes the process for a while."""
        if not self._frozen and not self.ended:
            self._frozen = True
            self._world.remove_loop(self._loop)
            self._world.kernel.at(self._world.kernel.now_s + seconds, self._thaw)

    def expel(self):
        """The remote broker ends the process's silent connections, and refuses new ones."""
        self._expelled = True
        for channel in self._channels:
            channel.cut()

    def cut_edge(self, late_s=None):
        """Cuts its connections to the local broker, which notices after `late_s` (None: drawn)."""
        for connection in self._connections:
            connection.cut(server_after_s=self.late_s() if late_s is None else late_s)

    def _thaw(self):
        self._frozen = False
        if not self.ended:
            self._world.add_loop(self._loop)

    def _over(self, how, error=None):
        if self.ended:
            return
        self.ended, self.error = how, error
        self._world.trace("link", how, error or "")
        if not self._frozen:
            self._world.remove_loop(self._loop)
        self._loop.close()
        for connection in self._connections:
            connection.cut(server_after_s=self.late_s())
        for channel in self._channels:
            channel.cut(server_after_s=self._source.late_s())

    # --- for its streams ---

    def now_s(self):
        """Seconds on a clock that nobody sets."""
        return self._world.kernel.now_s

    def late_s(self):
        """A drawn delay until the local broker notices that a connection has ended."""
        return self.rng.choice((0.0, 0.0, 0.3, 2.0))

    def connect(self):
        """A connection to the local broker."""
        connection = self._world.connect(self._loop)
        self._connections = [each for each in self._connections if not each.client_cut]
        self._connections.append(connection)
        return connection

    def connect_there(self, elsewhere, prefetch):
        """A channel of the remote broker; None if it refuses the process or is down."""
        if self._expelled:
            return None
        channel = elsewhere.connect(self._loop, prefetch)
        self._channels = [each for each in self._channels if not each.server_cut]
        if channel is not None:
            self._channels.append(channel)
        return channel


class SimulatedSource:
    """A link source that consumes from `Elsewhere`."""

    def __init__(self, process, elsewhere, prefetch):
        self.limits = Limits(prefetch, _BYTES)
        self.identity = "elsewhere"
        self._process = process
        self._elsewhere = elsewhere

    async def learn(self):
        """As `Source.learn`."""
        limit = self._elsewhere.rules.limit
        return QueueLimits(kind="classic", delivery_limit=limit, dead_letters=True)

    async def subscribe(self):
        """As `Source.subscribe`."""
        await asyncio.sleep(self._process.rng.random() * self._elsewhere.rules.delay_s)
        channel = self._process.connect_there(self._elsewhere, self.limits.window_messages)
        if channel is None:
            raise CutError("nobody is there")
        return SimulatedSubscription(self._process, channel, 2 * self._elsewhere.rules.noticed_s)

    def late_s(self):
        """A drawn delay until the remote broker notices that a connection has ended."""
        return self._process.rng.random() * self._elsewhere.rules.noticed_s


class SimulatedSubscription:
    """One consumer of `Elsewhere`, with the adapter's real acknowledgements and proofs."""

    def __init__(self, process, channel, alone_s):
        self._process = process
        self._channel = channel
        self._credit = Credit(channel.prefetch)
        self.window_messages = channel.prefetch
        self._acknowledgements = Acknowledgements()
        self._names = {}
        self._flush_at = None
        self.last_tag = 0
        self._alone_at = process.now_s() + alone_s

    async def deliver(self):
        """As `SourceSubscription.deliver`."""
        channel = self._channel
        await channel.arrival()
        if channel.client_cut and not channel.arrived:
            raise CutError("the connection broke")
        found = []
        most = self._process.rng.choice((1, 4, 100))
        while channel.arrived and len(found) < most:
            found.append(channel.arrived.popleft())
        for tag, message, _, _ in found:
            self._names[tag] = message
            self.last_tag = tag
            self._acknowledgements.delivered(self._credit)
        return Deliveries(
            _rows([message for _, message, _, _ in found]),
            found[0][0],
            [mark for _, _, mark, _ in found],
            sum(len(message.body) for _, message, _, _ in found),
            [count for _, _, _, count in found],
        )

    def settle(self, first_tag, last_tag):
        """As `SourceSubscription.settle`."""
        self._settle(first_tag, last_tag, rejected=False)

    def reject(self, first_tag, last_tag):
        """As `SourceSubscription.reject`."""
        self._settle(first_tag, last_tag, rejected=True)

    def _settle(self, first_tag, last_tag, *, rejected):
        for tag in range(first_tag, last_tag + 1):
            self._process.books.acknowledging(self._names.pop(tag), rejected=rejected)
        self._acknowledgements.settle(first_tag, last_tag, rejected=rejected)
        if self._flush_at is None:
            self._flush_at = asyncio.get_running_loop().call_later(
                self._process.rng.random() * _LATEST_ACK_S, self._flush
            )

    @property
    def proven(self):
        """As `SourceSubscription.proven`."""
        return self._acknowledgements.proven

    async def remaining(self):
        """As `SourceSubscription.remaining`."""
        if self._process.now_s() < self._alone_at:
            return None
        found = await self._channel.ask()
        return None if found is None else Remaining(*found, self.last_tag)

    async def close(self, *, requeue=False):
        """As `SourceSubscription.close`; with or without `requeue`, everything is given back."""
        del requeue
        self._flush()
        self._channel.close()

    def _flush(self):
        self._flush_at = None
        frames = self._acknowledgements.frames()
        if not self._channel.client_cut:
            self._channel.send(frames)


def _rows(messages):
    columns = {"body": [each.body for each in messages]}
    if any(each.message_id for each in messages):
        columns["message_id"] = [each.message_id or None for each in messages]
    arrays = [pa.array(values, STORED[name][1]) for name, values in columns.items()]
    return pa.record_batch(arrays, names=list(columns))
