"""Sessions and channels that retain messages of the same queues, and all rewinds, in random order.

Without a model: the state itself says who retains a message.
"""

import contextlib
import random

import pytest
from pyroaring import BitMap64

from ackq.errors import PreconditionFailedError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.sizes import sized
from tests.unit.core.harness import PUBLISHER, Harness

OUTCOMES = (*(Outcome.ACCEPTED,) * 4, Outcome.REJECTED, Outcome.RELEASED)


class Room:
    """A channel and two sessions that read two queues; each step is a random act of somebody."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.harness = Harness()
        self.harness.declare("q", retain_ms=20_000, dead_letter_queue="d", message_ttl_ms=9_000)
        self.harness.declare("d", retain_ms=9_000, max_length=6, overflow="drop-head")
        retain = {"s": 15_000, "t": 0}
        self.readers = [self.harness.open("q", "d", session=s, retain_ms=retain[s]) for s in retain]
        self.read = {}

    def step(self):
        acts = (self.publish, self.consume, self.lease, self.rewind, self.pass_time, self.operate)
        self.draw.choices(acts, (3, 4, 6, 3, 2, 1))[0]()

    def publish(self):
        self.harness.publish_to("q", self.draw.randint(1, 4), persistent=self.draw.random() < 0.8)

    def consume(self):
        for tag, _, _ in self.harness.deliver("c", self.draw.choice("qqd"), 5)[:4]:
            self.harness.settle("c", self.draw.choice(OUTCOMES), tag)

    def lease(self):
        reader = self.draw.choice(self.readers)
        end = reader.advance(reader.info().end_tag, max_messages=3).end_tag
        for row in reader.rows(reader.info().floor_tag, end):
            self.read[reader.command.session, row[0]] = row

    def rewind(self):
        since_us = self.draw.choice((0, self.harness.now_us - 4_000_000))
        with_rejected = self.draw.random() < 0.5
        queue = c.RewindQueue(self.draw.choice("qd"), since_us)
        session = c.RewindSession(
            self.draw.choice("st"), c.Rewind(from_us=since_us), with_rejected=with_rejected
        )
        # The session may have a lease, or not retain everything from there on.
        with contextlib.suppress(PreconditionFailedError):
            self.harness.do(self.draw.choice((queue, session)))

    def pass_time(self):
        self.harness.wait(self.draw.choice((0.5, 4)))
        self.harness.do(c.Housekeep(frozenset("st")))

    def operate(self):
        if self.draw.random() < 0.5:
            self.harness.restart()
            self.harness.do(c.OpenPublisher(PUBLISHER, resume=True))
        else:
            self.harness.do(self.draw.choice((c.PurgeQueue("q"), c.GiveWay(30))))

    def check(self):
        """Compares what each queue keeps with what batches and queues retain."""
        state = self.harness.core.state
        held = {queue_id: queue.retained.since() for queue_id, queue in state.queues.items()}
        for name, session in state.sessions.items():
            for lease in session.kept:
                for part in lease.segments:
                    held[part.queue_id] |= part.present(lease.holes)
                names = name, session.incarnation
                pieces = views.retained_pieces(state, *names, lease.floor, lease.end, 1_000)
                tags = range(lease.floor + 1, lease.end + 1)
                rows = [self.read[name, tag] for tag in tags if tag not in lease.holes]
                assert self.harness.rows(pieces) == rows
        for queue_id, queue in state.queues.items():
            assert queue.kept == held[queue_id] - queue.present
        used = (BitMap64(queue.placements.block_ids()) for queue in state.queues.values())
        assert views.live_blocks(state) == BitMap64.union(*used)


@pytest.mark.parametrize("seed", range(sized(5, 50)))
def test_what_is_retained_stays_and_nothing_else(seed):
    """S13, S14, K2, I2, I4: with restarts, expiries, purges and the ends of retention."""
    room = Room(seed)
    for _ in range(120):
        room.step()
        room.check()
