"""The real core as the edge of one link, behind calls on snapshots.

Subclasses switch a rule off.
"""

from typing import NamedTuple

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq.errors import AckqError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from ackq_broker.core.checks import BUILT_IN_DEAD
from ackq_broker.core.state.link import LinkCounts
from tests.model.broker import NOW_US, SEQUENCE

QUEUE, LINK, CHANNEL = "q", "l", b"channel"


class Take(NamedTuple):
    """A consumer takes the message at a position; a command of the core that can be a key."""

    position: int
    rejects: bool = False


class Store(NamedTuple):
    """Deliveries from a number on; a command of the core that can be a key."""

    said: tuple[int, int, int, int]
    first_number: int
    rows: tuple[tuple[int, str, bool], ...]


class Edge:
    """The rules as they are. Calls are remembered: most worlds share their edge's state.

    Args:
        keys: What the messages have there: `id`, or `content` alone, or `none` of both.
        there: A rejection here is one there; then the consumer rejects messages, too.
    """

    def __init__(self, keys="id", ack=c.LinkAck.SETTLED, *, drop=False, there=False):
        self.keys = keys
        self.ack = ack
        self.drop = drop
        self.there = there
        self._calls = {}

    def first(self, history):
        """An edge that has the queue."""
        core = Core()
        for command in (c.Start(history), c.DeclareQueue(QUEUE)):
            self.perform(core, command, NOW_US)
        return self.settled(core)

    def open(self, snapshot, token):
        """(snapshot after it, the reply or the error): so with all calls of a process."""
        holder = c.HolderInfo(bytes([token + 1]) * 16)
        options = {"drop_ambiguous": self.drop, "new_incarnation": "i", "reject_there": self.there}
        return self.call(snapshot, c.OpenLink(LINK, holder, "there", QUEUE, self.ack, **options))

    def subscribe(self, snapshot, epoch):
        """It consumes anew."""
        return self.call(snapshot, c.SubscribeLink(LINK, epoch))

    def store(self, snapshot, said, first_number, rows):
        """It sends deliveries."""
        return self.call(snapshot, Store(said, first_number, tuple(rows)))

    def permit(self, snapshot, said, *, again=False, now_us=NOW_US):
        """It is told its permits."""
        epoch, subscription, proven, number = said
        proof = {"proven": proven, "proven_number": number}
        command = c.PermitLinked(LINK, epoch, subscription, again=again, **proof)
        return self.call(snapshot, command, now_us)

    def accept(self, snapshot, position):
        """The snapshot after a consumer accepted a message."""
        return self.call(snapshot, Take(position))[0]

    def reject(self, snapshot, position):
        """(snapshot after a consumer rejected a message, whether it is a dead letter here)."""
        return self.call(snapshot, Take(position, rejects=True))

    def start(self, snapshot):
        """The edge died and came back."""
        history = Core.restore(snapshot).history_id
        return self.call(snapshot, c.Start(history))[0]

    def served(self, snapshot):
        """A copy is served, and its history accepted."""
        copied = self.call(snapshot, c.Start("copy", "copied"))[0]
        return self.call(copied, c.AcceptHistory())[0]

    def ready(self, snapshot):
        """The positions of the messages in the queue."""
        key = snapshot, "ready"
        if key not in self._calls:
            self._calls[key] = tuple(queue(Core.restore(snapshot)).present)
        return self._calls[key]

    def ambiguous(self, snapshot):
        """How many messages may be double, as the edge has counted; without keys any."""
        key = snapshot, "ambiguous"
        if key not in self._calls:
            links = views.list_links(Core.restore(snapshot).state)
            self._calls[key] = sum(link.ambiguous for link in links)
        return self._calls[key] if self.keys != "none" else 1_000

    def call(self, snapshot, command, now_us=NOW_US):
        """(snapshot after the command, its reply or the error it met)."""
        key = snapshot, repr(command), now_us
        if key not in self._calls:
            core = Core.restore(snapshot)
            try:
                reply = self.perform(core, command, now_us)
            except AckqError as error:
                self._calls[key] = snapshot, error
            else:
                self._calls[key] = self.settled(core), reply
        return self._calls[key]

    def settled(self, core):
        """The snapshot, in which what makes no difference is the same."""
        state = core._state
        state.sequence = state.topology_sequence = SEQUENCE
        for link in state.links.values():
            link.counts = LinkCounts(ambiguous=link.counts.ambiguous)
        return core.snapshot()

    # --- what the rules change that are switched off in link_rules.py ---

    def perform(self, core, command, now_us):
        """Decides and applies."""
        if isinstance(command, Take):
            return self.take(core, command)
        if isinstance(command, Store):
            command = self.frame(command)
        decision = core.decide(command, now_us)
        for record in decision.records:
            core.apply(core.sequence + 1, record)
        return decision.reply

    def take(self, core, command):
        """The consumer holds everything before, takes one, and gives the rest back.

        Returns:
            Whether it is a dead letter here, of which no more is to be known.
        """
        there = queue(core)
        before = len(there.ready) - len([each for each in there.ready if each >= command.position])
        for channel, messages in ((b"before", before), (CHANNEL, 1)):
            if messages:
                no_ack = channel == CHANNEL and not command.rejects
                self.perform(core, c.Deliver(channel, QUEUE, messages, no_ack=no_ack), NOW_US)
        if command.rejects:
            self.perform(core, c.Settle(CHANNEL, Outcome.REJECTED, BitMap64((1,))), NOW_US)
        for channel in (b"before", CHANNEL):
            if channel in core._state.channels:
                self.perform(core, c.CloseChannel(channel), NOW_US)
        there.deliveries.forget(there.present)
        there.requeued = type(there.requeued)()
        buried = BUILT_IN_DEAD in views.queue_ids(core.state)
        if buried:
            self.perform(core, c.PurgeQueue(BUILT_IN_DEAD), NOW_US)
            self.perform(core, c.DeleteQueue(BUILT_IN_DEAD), NOW_US)
        return buried

    def frame(self, command):
        """The command of the core."""
        epoch, subscription, proven, number = command.said
        rows = command.rows
        every = BitMap(range(len(rows)))
        return c.StoreLinked(
            LINK,
            epoch,
            subscription,
            command.first_number,
            len(rows),
            len(rows),
            keys=np.array([self.key(*row[:2]) for row in rows], np.uint64),
            checks=np.array([ord(body) for _, body, _ in rows], np.uint64),
            content=every if self.keys == "content" else BitMap(),
            redelivered=self.redelivered(rows),
            proven=proven,
            proven_number=number,
        )

    def key(self, number, body):
        """The origin key of a message."""
        keys = {"id": (number + 1, 1), "content": (ord(body), 2), "none": (0, 0)}
        return keys[self.keys]

    def redelivered(self, rows):
        """The rows that the other broker had delivered before."""
        return BitMap([row for row, (*_, seen) in enumerate(rows) if seen])


def queue(core):
    """The link's queue."""
    return core._state.queues[views.queue_ids(core.state)[QUEUE]]
