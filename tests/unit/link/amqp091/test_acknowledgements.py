"""Acknowledgement frames, and their proof by credit, against a model of a broker."""

import random
from collections import deque

import pytest

from ackq_link.amqp091.acknowledgements import AckFrame, Acknowledgements, Credit


def acknowledgements(*windows):
    """Of so many deliveries to each consumer, which has a window of ten."""
    acks = Acknowledgements()
    for count in windows:
        credit = Credit(10)
        for _ in range(count):
            acks.delivered(credit)
    return acks


def up_to(tag):
    return AckFrame(tag, multiple=True, rejected=False)


def alone(tag, *, rejected=False):
    return AckFrame(tag, multiple=False, rejected=rejected)


@pytest.mark.parametrize(
    ("settled", "frames"),
    [
        ([(1, 5)], [up_to(5)]),
        ([(1, 2), (3, 5)], [up_to(5)]),
        ([(1, 1)], [alone(1)]),
        ([(3, 4)], [alone(3), alone(4)]),
        ([(3, 4), (1, 2)], [up_to(4)]),
        ([(4, 4), (1, 2)], [up_to(2), alone(4)]),
    ],
)
def test_frames_cover_as_much_as_they_can(settled, frames):
    """L12: cumulative where everything below is settled, else one frame per delivery."""
    acks = acknowledgements(5)
    for first, last in settled:
        acks.settle(first, last)
    assert acks.frames() == frames
    assert acks.frames() == []


def test_what_was_rejected_is_below_an_acknowledgement():
    """L12, L28: a cumulative acknowledgement covers only rejections sent before it."""
    acks = acknowledgements(7)
    acks.settle(2, 3, rejected=True)
    acks.settle(5, 5, rejected=True)
    for tag in (1, 4, 6):
        acks.settle(tag, tag)
    assert acks.frames() == [*(alone(tag, rejected=True) for tag in (2, 3, 5)), up_to(6)]
    acks.settle(7, 7, rejected=True)
    assert acks.frames() == [alone(7, rejected=True)]


def test_a_frame_has_one_consumer():
    """L10: the broker applies a frame per consumer in no known order, so frames are split."""
    acks = acknowledgements(2, 2)
    acks.settle(1, 4)
    assert acks.frames() == [up_to(2), up_to(4)]


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
            self.acks.settle(first, last, rejected=self.rng.random() < 0.2)
            self.settled += range(first, last + 1)

    def send(self):
        self.sent += self.acks.frames()

    def apply(self):
        if self.sent:
            frame = self.sent.popleft()
            known = sorted(set(self.owner) - self.applied)
            tags = [t for t in known if t <= frame.tag] if frame.multiple else [frame.tag]
            assert set(tags) <= set(self.settled), "it acknowledges what was not settled"
            for tag in tags:
                self.unacked[self.owner[tag]].discard(tag)
            self.applied.update(tags)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_proven_that_is_not_applied(seed):
    """L10, L12: for random windows, orders and consumers; at the end all but a window is proven."""
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
