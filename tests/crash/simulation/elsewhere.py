"""The remote broker of links: a queue like those of AMQP 0-9-1, with prefetching consumers.

It promises what RabbitMQ does: a confirmed message stays until it is acknowledged; the messages
that a connection held when it ended are ready again at their places, marked as redelivered; a
consumer has at most its prefetch unacknowledged. Everything else is drawn at random:
acknowledgements apply late, the end of a connection is noticed late, and a node that dies takes
back acknowledgements that it had not synced and forgets which messages it had delivered.
"""

from bisect import insort
from collections import deque
from typing import NamedTuple

READY, UNACKED, ACKED, DEAD, LOST = "ready", "unacked", "acked", "dead", "lost"


class ElsewhereRules(NamedTuple):
    """How the remote broker behaves; times are in seconds.

    Attributes:
        delay_s: Longest delay of a message on its way.
        apply_s: Longest time until an acknowledgement is applied.
        sync_s: Longest time until an applied acknowledgement survives a death of the node.
        noticed_s: Longest time until one side notices that the other has left the connection.
        overlaps: A new consumer is served before the end of an older one is noticed.
        forgets_marks: A death of the node forgets which messages were delivered.
        limit: A message that cuts have requeued more often is dead-lettered; 0: no limit.
    """

    delay_s: float = 0.0
    apply_s: float = 0.0
    sync_s: float = 0.0
    noticed_s: float = 0.0
    overlaps: bool = False
    forgets_marks: bool = False
    limit: int = 0


class ForeignMessage:
    """A message of the remote broker.

    Attributes:
        number: Its position in the queue.
        message_id: Its id; "" for none.
        state: `READY`, `UNACKED`, `ACKED`, `DEAD` (rejected, or at its limit), or `LOST` (not
            confirmed).
        confirmed: Its publisher has the confirm.
        safe: Its acknowledgement survives a death of the node.
        mark: It is delivered as redelivered.
        deliveries: How often a cut requeued it.
        delivered: How often it was delivered, including deliveries that the node forgot.
    """

    def __init__(self, number, name, body, message_id):
        self.number = number
        self.name = name
        self.body = body
        self.message_id = message_id
        self.state = READY
        self.confirmed = self.safe = self.mark = False
        self.deliveries = self.delivered = 0

    def __lt__(self, other):
        return self.number < other.number

    def __repr__(self):
        return f"{self.name}#{self.number} {self.state}"


class Elsewhere:
    """The remote broker's queue.

    Args:
        world: Provides time and random numbers.
        rules: How it behaves.

    Attributes:
        messages: All messages that were published.
        up: Whether the node runs.
        unmarked: Redeliveries that are not marked as redelivered.
        again: Redeliveries.
    """

    def __init__(self, world, rules):
        self.rules = rules
        self.messages = []
        self.up = True
        self.unmarked = self.again = 0
        self._fatal = None
        self.kernel = world.kernel
        self.calm = lambda: world.calm
        self.trace = world.trace
        self.rng = world.random("elsewhere")
        self._ready = []
        self._channels = []

    # --- publishing ---

    def publish(self, name, body, message_id):
        """Adds a published message, which may be lost until it is confirmed."""
        message = ForeignMessage(len(self.messages), name, body, message_id)
        self.messages.append(message)
        if not self.up:
            message.state = LOST
            return message
        insort(self._ready, message)
        self._later(self.rules.sync_s, self._confirm, message)
        self._deliver()
        return message

    def _confirm(self, message):
        if message.state != LOST:
            message.confirmed = True

    # --- consuming ---

    def connect(self, client_loop, prefetch):
        """A channel with a consumer, or None if the node is down."""
        if not self.up:
            return None
        channel = ForeignChannel(self, client_loop, prefetch)
        self._later(self.rules.delay_s, self._consume, channel)
        return channel

    def _consume(self, channel):
        if not self.up or channel.client_cut:
            channel.cut()
            return
        if not self.rules.overlaps:
            for each in tuple(self._channels):
                each.end_server()
        self._channels.append(channel)
        self._deliver()

    def _deliver(self):
        while self._ready and self.up:
            takers = [each for each in self._channels if len(each.unacked) < each.prefetch]
            if not takers:
                return
            message = self._ready.pop(0)
            self.unmarked += bool(message.delivered) and not message.mark
            self.again += bool(message.delivered)
            message.delivered += 1
            message.state = UNACKED
            takers[self.rng.randrange(len(takers))].deliver(message)

    def acknowledge(self, channel, frame):
        """Applies one acknowledgement frame of a channel."""
        tags = [frame.tag]
        if frame.multiple:
            tags = [tag for tag in channel.unacked if tag <= frame.tag]
        for tag in tags:
            message = channel.unacked.pop(tag)
            message.state, message.safe = DEAD if frame.rejected else ACKED, False
            if self.rules.sync_s:
                self._later(self.rules.sync_s, self._sync, message)
            else:
                message.safe = True
        self._deliver()
        if self._fatal is not None:
            self._fatal[0] -= 1
            if self._fatal[0] < 0:
                down_s, self._fatal = self._fatal[1], None
                self._later(self.rules.sync_s, self.die, down_s)

    def _sync(self, message):
        if message.state in (ACKED, DEAD):
            message.safe = True

    def give_back(self, channel, *, counts):
        """Ends a channel: the messages that it held are ready again, at their places."""
        if channel in self._channels:
            self._channels.remove(channel)
        for message in channel.unacked.values():
            message.mark = True
            message.deliveries += counts
            if self.rules.limit and message.deliveries > self.rules.limit:
                message.state, message.safe = DEAD, True
                continue
            message.state = READY
            insort(self._ready, message)
        channel.unacked.clear()
        self._deliver()

    # --- faults ---

    def cut(self):
        """Breaks a connection; either side may notice it later."""
        if self._channels:
            channel = self._channels[self.rng.randrange(len(self._channels))]
            late = self.rng.random() * self.rules.noticed_s
            channel.cut(*self.rng.choice(((0, 0), (late, 0), (0, late))))

    def die_at(self, count, down_s):
        """Kills the node soon after `count` more acknowledgement frames were applied."""
        self._fatal = [count, down_s]

    def die(self, down_s):
        """Kills the node, which starts again after `down_s`."""
        if not self.up or self.calm():
            return
        self.trace("elsewhere dies for", f"{down_s:.3f}")
        self.up = False
        for channel in tuple(self._channels):
            channel.cut(client_after_s=self.rng.random() * self.rules.noticed_s)
        for message in self.messages:
            settled = message.state in (ACKED, DEAD)
            if settled and not message.safe and self.rng.random() < 3 / 4:
                message.state, message.mark = READY, True
                insort(self._ready, message)
            if self.rules.forgets_marks:
                message.mark = False
            if message.state == READY and not message.confirmed and self.rng.random() < 1 / 2:
                message.state = LOST
                self._ready.remove(message)
        self.kernel.at(self.kernel.now_s + down_s, self._start)

    def _start(self):
        self.trace("elsewhere starts")
        self.up = True
        for message in self._ready:
            message.confirmed = True  # messages read at the start are on the disk
        self._deliver()

    def count(self):
        """The number of ready messages and of consumers."""
        return len(self._ready), len(self._channels)

    # --- the end ---

    def left(self):
        """The messages still in the queue; in a calm world none of them is in flight."""
        return [each for each in self.messages if each.state in (READY, UNACKED)]

    def _later(self, longest_s, callback, *args):
        if longest_s:
            at = self.kernel.now_s + self.rng.random() * longest_s
            self.kernel.at(at, callback, *args)
        else:
            callback(*args)


class ForeignChannel:
    """A consumer on a connection of its own; both sides of it.

    Attributes:
        arrived: Deliveries that the client has not taken yet: tag, message, mark, count.
        unacked: The broker's unacknowledged messages by tag.
        client_cut: The client has noticed the end of the connection.
    """

    def __init__(self, elsewhere, client_loop, prefetch):
        self.prefetch = prefetch
        self.arrived = deque()
        self.unacked = {}
        self.client_cut = self.server_cut = False
        self._elsewhere = elsewhere
        self._kernel = elsewhere.kernel
        self._loop = client_loop
        self._tag = 0
        self._arrival = self._counted = None
        self._there_at = self._here_at = 0.0

    # --- the client's side ---

    async def arrival(self):
        """Returns when a delivery has arrived, or the end of the connection was noticed."""
        while not self.arrived and not self.client_cut:
            self._arrival = self._loop.create_future()
            await self._arrival

    def send(self, frames):
        """Sends frames of acknowledgements, in their order."""
        for frame in frames:
            self._there(self._acknowledge, frame)

    async def ask(self):
        """The queue's counts, asked for after everything sent before; None: no answer came."""
        if self.client_cut:
            return None
        self._there(self._count)
        self._counted = self._loop.create_future()
        return await self._counted

    def close(self):
        """Ends the channel after the acknowledgements sent before; held messages are requeued."""
        self._there(self._end, False)
        self.client_cut = True
        self._wake()

    # --- the broker's side ---

    def deliver(self, message):
        self._tag += 1
        self.unacked[self._tag] = message
        what = (self._tag, message, message.mark, message.deliveries)
        rules = self._elsewhere.rules
        delay = self._elsewhere.rng.random() * rules.delay_s
        self._here_at = max(self._here_at, self._kernel.now_s + delay)
        self._kernel.at(self._here_at, self._arrive, what)

    def end_server(self):
        """Ends the broker's side of the connection."""
        self._end(True)
        self.cut()

    def cut(self, client_after_s=0.0, server_after_s=0.0):
        """Ends the connection, for each side after a time; messages on their way are lost."""
        now_s = self._kernel.now_s
        if server_after_s:
            self._kernel.at(now_s + server_after_s, self._end, True)
        else:
            self._end(True)
        if client_after_s:
            self._kernel.at(now_s + client_after_s, self._end_client)
        else:
            self._end_client()

    # --- on the way ---

    def _there(self, callback, *args):
        elsewhere = self._elsewhere
        delay = elsewhere.rng.random() * elsewhere.rules.delay_s
        if elsewhere.rules.apply_s and elsewhere.rng.random() < 1 / 2:
            delay += elsewhere.rng.random() * elsewhere.rules.apply_s
        self._there_at = max(self._there_at, self._kernel.now_s + delay)
        if not self.client_cut:
            self._kernel.at(self._there_at, callback, *args)

    def _acknowledge(self, frame):
        if not self.server_cut:
            self._elsewhere.acknowledge(self, frame)

    def _count(self):
        if not self.server_cut:
            rules = self._elsewhere.rules
            delay = self._elsewhere.rng.random() * rules.delay_s
            self._here_at = max(self._here_at, self._kernel.now_s + delay)
            self._kernel.at(self._here_at, self._told, self._elsewhere.count())

    def _told(self, what):
        if self._counted is not None and not self._counted.done():
            self._counted.set_result(None if self.client_cut or self.server_cut else what)

    def _arrive(self, what):
        if not self.client_cut and not self.server_cut:
            self.arrived.append(what)
            self._wake()

    def _end(self, counts):
        if not self.server_cut:
            self.server_cut = True
            self._elsewhere.give_back(self, counts=counts)

    def _end_client(self):
        self.client_cut = True
        self._wake()

    def _wake(self):
        if self.client_cut:
            self._told(None)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
