"""Dead letters by cause, counted in slices (M5, C13)."""

from collections import Counter

import pytest

from ackq.errors import QueueNotFoundError
from ackq_broker.core.commands import DeadLetterGroup
from ackq_broker.http import dead_letters
from ackq_broker.http.dead_letters import DeadLetterCounts


class World:
    """Queues with dead letters, as a core has them; time passes by pauses, and by each group."""

    def __init__(self, **queues):
        self.queues = queues
        self.state = self
        self.now_s = 0.0
        self.pauses = 0
        self.reads = Counter()
        self.counts = DeadLetterCounts(self, lambda: self.now_s, self.pause)

    def ready(self, queue):
        if queue not in self.queues:
            raise QueueNotFoundError("gone", queue=queue)

    def dead_letters(self, queue):
        self.reads[queue] += 1
        for group in self.queues[queue]:
            self.now_s += 0.0001
            yield DeadLetterGroup(*group)

    async def pause(self, seconds):
        self.pauses += 1
        self.now_s += seconds


@pytest.fixture(autouse=True)
def world_views(monkeypatch):
    """The views of the core are those of the world."""
    monkeypatch.setattr(dead_letters, "views", World)


async def test_by_cause_and_reason():
    """C13: the commonest first; one that moved at another time counts with the others."""
    world = World(
        d=[("a", "rejected", "x", 1), ("b", "expired", "expired", 5), ("a", "rejected", "x", 2)]
    )
    found = (await world.counts.of("d")).as_dict()
    assert (found["messages"], found["reason_count"]) == (8, 2)
    assert found["causes"] == [
        {"cause": "expired", "queue": "b", "messages": 5},
        {"cause": "rejected", "queue": "a", "messages": 3},
    ]
    assert found["reasons"][1] == {"cause": "rejected", "queue": "a", "reason": "x", "messages": 3}


async def test_many_reasons_are_counted_in_slices():
    """I6: ten thousand of them, of which the commonest are told."""
    world = World(d=[("a", "rejected", str(number), 1) for number in range(10_000)])
    found = (await world.counts.of("d")).as_dict()
    assert (found["messages"], found["reason_count"], len(found["reasons"])) == (10_000, 10_000, 50)
    assert world.pauses == 20


async def test_counts_are_kept_by_what_they_cost():
    """I6: a second takes twenty, and a queue that costs nothing is counted each second."""
    world = World(slow=[("a", "rejected", "x", 1)] * 10_000, quick=[])
    for _ in range(3):
        await world.counts.of_all(["slow", "quick"])
        world.now_s += 5
    assert (world.reads["slow"], world.reads["quick"]) == (1, 3)


async def test_a_queue_that_went_is_left_out():
    """M5: the table that named it was older."""
    world = World(d=[])
    assert [each.queue for each in await world.counts.of_all(["c", "d"])] == ["d"]


async def test_counts_that_are_not_fresh_are_forgotten():
    """M5, I6: of whatever queues were asked for, one after the other."""
    world = World(**{f"q{number}": [("a", "rejected", "x", 1)] for number in range(50)})
    for number in range(50):
        await world.counts.of(f"q{number}")
        world.now_s += 0.5
    assert len(world.counts._counted) <= 3
