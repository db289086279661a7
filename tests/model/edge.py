"""Runs the real core as the local broker (the edge) of one link, behind calls on snapshots.

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
from tests.model.broker import NOW_US, SEQUENCE, perform

QUEUE, LINK, CHANNEL = "q", "l", b"channel"


class Take(NamedTuple):
    """A command by which a consumer settles the message at a position; hashable, so a key."""

    position: int
    rejects: bool = False


class Store(NamedTuple):
    """A command that stores deliveries from a number on; hashable, so it can be a key."""

    said: tuple[int, int, int, int]
    first_number: int
    rows: tuple[tuple[int, str, bool], ...]


class Edge:
    """The local broker with all its rules. Caches calls: most worlds share a snapshot of it.

    Args:
        keys: The origin keys of the messages: by `id`, by `content` alone, or `none` at all.
        there: Local rejections are forwarded to the remote broker; then the consumer rejects, too.
    """

    def __init__(self, keys="id", ack=c.LinkAck.SETTLED, *, drop=False, there=False):
        self.keys = keys
        self.ack = ack
        self.drop = drop
        self.there = there
        self._calls = {}

    def first(self, history):
        """Returns the first snapshot: a local broker that has the queue."""
        core = Core()
        for command in (c.Start(history), c.DeclareQueue(QUEUE)):
            self.perform(core, command, NOW_US)
        return self.settled(core)

    def open(self, snapshot, token):
        """Opens the link; as every call of a process, returns (snapshot, reply or error)."""
        holder = c.HolderInfo(bytes([token + 1]) * 16)
        options = {"drop_ambiguous": self.drop, "new_incarnation": "i", "reject_there": self.there}
        return self.call(snapshot, c.OpenLink(LINK, holder, "there", QUEUE, self.ack, **options))

    def subscribe(self, snapshot, epoch):
        """The process begins a new subscription."""
        return self.call(snapshot, c.SubscribeLink(LINK, epoch))

    def store(self, snapshot, said, first_number, rows):
        """The process sends deliveries."""
        return self.call(snapshot, Store(said, first_number, tuple(rows)))

    def permit(self, snapshot, said, *, again=False, now_us=NOW_US):
        """The process asks for its permits."""
        epoch, subscription, proven, number = said
        proof = {"proven": proven, "proven_number": number}
        command = c.PermitLinked(LINK, epoch, subscription, again=again, **proof)
        return self.call(snapshot, command, now_us)

    def accept(self, snapshot, position):
        """The snapshot after a consumer accepted the message at a position."""
        return self.call(snapshot, Take(position))[0]

    def reject(self, snapshot, position):
        """(snapshot after a consumer rejected a message, whether it is a dead letter locally)."""
        return self.call(snapshot, Take(position, rejects=True))

    def start(self, snapshot):
        """The snapshot after the local broker died and started again."""
        history = Core.restore(snapshot).history_id
        return self.call(snapshot, c.Start(history))[0]

    def served(self, snapshot):
        """The snapshot after a copy of the journal is served, and its history accepted."""
        copied = self.call(snapshot, c.Start("copy", "copied"))[0]
        return self.call(copied, c.AcceptHistory())[0]

    def ready(self, snapshot):
        """The positions of the messages in the queue."""
        key = snapshot, "ready"
        if key not in self._calls:
            self._calls[key] = tuple(queue(Core.restore(snapshot)).present)
        return self._calls[key]

    def ambiguous(self, snapshot):
        """How many messages the edge has counted as possibly doubled; without keys, any number."""
        key = snapshot, "ambiguous"
        if key not in self._calls:
            links = views.list_links(Core.restore(snapshot).state)
            self._calls[key] = sum(link.ambiguous for link in links)
        return self._calls[key] if self.keys != "none" else 1_000

    def call(self, snapshot, command, now_us=NOW_US):
        """Returns (snapshot after the command, its reply or the error it raised)."""
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
        """Returns the snapshot with everything normalized that makes no difference."""
        state = core._state
        state.sequence = state.topology_sequence = SEQUENCE
        for link in state.links.values():
            link.counts = LinkCounts(ambiguous=link.counts.ambiguous)
        return core.snapshot()

    # --- steps that the rules switched off in link_rules.py override ---

    def perform(self, core, command, now_us):
        """Decides and applies a command; returns its reply."""
        if isinstance(command, Take):
            return self.take(core, command)
        if isinstance(command, Store):
            command = self.frame(command)
        return perform(core, command, now_us)

    def take(self, core, command):
        """Settles one message: the consumer takes it and all before it, and releases those.

        Returns:
            Whether the message is a dead letter of the local broker, which is then removed.
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
        """Returns the core's command for a frame of deliveries."""
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
            checks=np.array([self.check(*row[:2]) for row in rows], np.uint64),
            content=every if self.keys == "content" else BitMap(),
            redelivered=self.redelivered(rows),
            proven=proven,
            proven_number=number,
        )

    def key(self, number, body):
        """The origin key of a message."""
        keys = {"id": (number + 1, 1), "content": (ord(body), 2), "none": (0, 0)}
        return keys[self.keys]

    def check(self, _number, body):
        """The check of a message: of its content."""
        return ord(body)

    def redelivered(self, rows):
        """The rows that the remote broker marks as redelivered."""
        return BitMap([row for row, (*_, seen) in enumerate(rows) if seen])


def queue(core):
    """The link's queue."""
    return core._state.queues[views.queue_ids(core.state)[QUEUE]]
