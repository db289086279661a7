"""Acknowledgement frames, and their proof by credit, against a model of a broker."""

import random
from collections import deque

import pytest

from ackq_link.amqp091.acknowledgements import Acknowledgements, Credit


class ModelBroker:
    """A channel with a window per consumer, whose frames are applied late and singly."""

    def __init__(self, rng):
        self.rng = rng
        self.acks = Acknowledgements()
        self.owner = {}
        self.unacked = {}
        self.sent = deque()
        self.applied = set()
        self.settled = []
        self.rejected = set()
        self.tag = 0
        self.consume()

    def consume(self):
        self.credit = Credit(self.rng.randint(1, 6))
        self.unacked[self.credit] = set()

    def deliver(self):
        if len(self.unacked[self.credit]) < self.credit.prefetch:
            self.tag += 1
            self.owner[self.tag] = self.credit
            self.unacked[self.credit].add(self.tag)
            self.acks.delivered(self.credit)

    def settle(self):
        left = sorted(set(self.owner) - set(self.settled))
        if left:
            first = self.rng.choice(left)
            last = first
            while last + 1 in left and self.rng.random() < 0.6:
                last += 1
            rejected = self.rng.random() < 0.2
            self.acks.settle(first, last, rejected=rejected)
            self.settled += range(first, last + 1)
            self.rejected.update(range(first, last + 1) if rejected else ())

    def send(self):
        self.sent += self.acks.frames()

    def apply(self):
        if self.sent:
            frame = self.sent.popleft()
            known = sorted(set(self.owner) - self.applied)
            tags = [t for t in known if t <= frame.tag] if frame.multiple else [frame.tag]
            assert set(tags) <= set(self.settled), "it acknowledges what was not settled"
            assert {tag in self.rejected for tag in tags} == {frame.rejected}
            assert len({self.owner[tag] for tag in tags}) == 1, "consumers have no common order"
            for tag in tags:
                self.unacked[self.owner[tag]].discard(tag)
            self.applied.update(tags)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_proven_that_is_not_applied(seed):
    """L10, L12, L28: for random windows, orders and consumers; in the end all but a window is."""
    rng = random.Random(seed)
    broker = ModelBroker(rng)
    for _ in range(400):
        steps = (broker.deliver, broker.settle, broker.send, broker.apply, broker.consume)
        rng.choices(steps, (8, 5, 4, 5, 0.3))[0]()
        proven = broker.acks.proven
        assert set(broker.settled[:proven]) <= broker.applied
    for _ in range(30):
        broker.deliver()
        broker.settle()
        broker.send()
        while broker.sent:
            broker.apply()
    assert len(broker.settled) - broker.acks.proven <= 6 + 6
