"""The process of a link and the remote broker, as a caller of the core sees them."""

import numpy as np
from pyroaring import BitMap, BitMap64

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, mixed

SOURCE = "amqp://there/queue"


class LinkProcess:
    """Delivers messages that are named by their body, and remembers their positions."""

    def __init__(self, harness, name="l", **options):
        self.harness = harness
        self.name = name
        self.options = {
            "holder": ALICE,
            "source": SOURCE,
            "queue": "q",
            "ack": c.LinkAck.SETTLED,
            "new_incarnation": "a" * 32,
            **options,
        }
        self.opened = self.open()
        self.subscription = 0
        self.number = 1
        self.proven = 0
        self._numbers = {}  # the number of the last delivery at each position
        self._permitted = {}  # the numbers that have a permit, in their order

    def open(self, **changes):
        """Opens the link's stream; changed options stay changed."""
        self.options.update(changes)
        self.opened = self.harness.do(c.OpenLink(self.name, **self.options))
        return self.opened

    def subscribe(self):
        """Begins a new subscription to the remote broker."""
        command = c.SubscribeLink(self.name, self.opened.epoch, self.opened.stream)
        self.subscription = self.harness.do(command)
        self.number, self.proven = 1, 0
        self._numbers.clear()
        self._permitted.clear()
        return self.subscription

    def command(self, bodies, *, ids=None, content=False, redelivered=False, first=None, **changes):
        """A frame of deliveries; a body's id is the body unless given, an empty id is none.

        The flags `content` and `redelivered` are of all rows, or of some.
        """
        bodies = list(bodies)
        names = bodies if ids is None else list(ids)
        rows = BitMap(range(len(bodies)))
        options = {
            "keys": np.array([key(name) for name in names], np.uint64),
            "checks": np.array([check(body) for body in bodies], np.uint64),
            "content": rows if content is True else content or BitMap(),
            "redelivered": rows if redelivered is True else redelivered or BitMap(),
            "payload_bytes": sum(map(len, bodies)),
            "sizes": mixed([len(body) for body in bodies]),
            **self.proof(),
            **changes,
        }
        number = self.number if first is None else first
        return c.StoreLinked(*self.names, number, len(bodies), **options)

    @property
    def names(self):
        """The link, its epoch and its subscription."""
        return self.name, self.opened.epoch, self.subscription

    def proof(self):
        """What each call tells of the acknowledgements, and the stream that it is of."""
        numbers = list(self._permitted)
        last = numbers[self.proven - 1] if 0 < self.proven <= len(numbers) else 0
        return {"proven": self.proven, "proven_number": last, "stream": self.opened.stream}

    def store(self, bodies, **options):
        """Delivers; a stored message gets its body as its label."""
        bodies = list(bodies)
        command = self.command(bodies, **options)
        reply = self.harness.do(command)
        self.number = max(self.number, command.first_number + len(bodies))
        rows = zip(expanded(reply), bodies, strict=True)
        for row, ((number, position, matched, permitted), body) in enumerate(rows):
            if not matched and reply.block_id is not None:
                self.harness.labels[reply.block_id, row] = body
            self._numbers[position] = number
            if permitted:
                self._permitted[number] = None
        return reply

    def positions(self, bodies, **options):
        """Delivers; returns the positions of the messages."""
        return [position for _, position, *_ in expanded(self.store(bodies, **options))]

    def matched(self, bodies, **options):
        """Delivers; returns which messages were matched."""
        return [matched for *_, matched, _ in expanded(self.store(bodies, **options))]

    def permit(self, **options):
        """The positions that get a permit now."""
        return self.outcomes(**options)[0]

    def outcomes(self, **options):
        """The positions that get a permit now, and those of them that are to be rejected."""
        reply = self.harness.do(c.PermitLinked(*self.names, **(self.proof() | options)))
        positions = reply.positions.tolist()
        self._permitted |= dict.fromkeys(self._numbers.get(each, 0) for each in positions)
        return positions, set(reply.rejected)

    def prove(self, more):
        """Reports `more` further proven acknowledgements to the core."""
        self.proven += more
        self.permit()

    def info(self):
        """The link as an operator sees it."""
        return views.link_info(self.harness.core.state, self.name)

    def state(self):
        """The link as the core has it, checked."""
        link = self.harness.core._state.links[self.name]
        link.check()
        return link


def accept(harness, *positions, queue="q"):
    """A consumer takes messages and accepts them; the other messages are requeued."""
    settle(harness, Outcome.ACCEPTED, *positions, queue=queue)


def settle(harness, outcome, *positions, queue="q"):
    """A consumer takes messages and gives them an outcome; the other messages are requeued."""
    delivery = harness.do(c.Deliver(b"consumer", queue, 1_000_000))
    first = harness.core._state.channels[b"consumer"].next_tag - delivery.messages
    wanted = BitMap64(positions)
    there = harness.core._state.queues[views.queue_ids(harness.core.state)[queue]].unacked
    tags = [first + rank for rank, position in enumerate(there) if position in wanted]
    assert len(tags) == len(wanted)
    settled = harness.do(c.Settle(b"consumer", outcome, BitMap64(tags)))
    harness.do(c.CloseChannel(b"consumer"))
    return settled


def expanded(reply):
    """(number, position, matched, permitted) of each row."""
    return [
        (run.first_number + row, run.first_position + row, run.matched, run.permitted)
        for run in reply.runs
        for row in range(run.rows)
    ]


def key(name):
    """The origin key of an id; zeros for an empty id."""
    if not name:
        return 0, 0
    return int.from_bytes(name.encode()[-8:].rjust(8), "little"), len(name)


def check(body):
    """A number that stands for the fingerprint of a body."""
    return int.from_bytes(body.encode()[-8:].ljust(8, b"#"), "little")
