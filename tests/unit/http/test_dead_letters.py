"""Dead letters by cause, counted in slices (M5, C13)."""

from collections import Counter

import pytest

from ackq.errors import QueueNotFoundError
from ackq_broker.core.commands import DeadLetterGroup
from ackq_broker.http import dead_letters
from ackq_broker.http.dead_letters import DeadLetterCounts


class World:
    """Queues with dead letters, like a core's; time passes by pauses and by each group read."""

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
    """Replaces the views of the core with those of the test's `World`."""
    monkeypatch.setattr(dead_letters, "views", World)


async def test_many_reasons_are_counted_in_slices():
    """I6: ten thousand reasons are counted in slices, and only the 50 most frequent are listed."""
    world = World(d=[("a", "rejected", str(number), 1) for number in range(10_000)])
    found = (await world.counts.of("d")).as_dict()
    assert (found["messages"], found["reason_count"], len(found["reasons"])) == (10_000, 10_000, 50)
    assert world.pauses == 20


async def test_counts_are_kept_by_what_they_cost():
    """I6: a count that took 1 s is kept for 20 s; one that costs nothing is made each second."""
    world = World(slow=[("a", "rejected", "x", 1)] * 10_000, quick=[])
    for _ in range(3):
        await world.counts.of_all(["slow", "quick"])
        world.now_s += 5
    assert (world.reads["slow"], world.reads["quick"]) == (1, 3)


async def test_a_queue_that_went_is_left_out():
    """M5: a queue deleted since the queue table was read has no dead-letter counts."""
    world = World(d=[])
    assert [each.queue for each in await world.counts.of_all(["c", "d"])] == ["d"]


async def test_counts_that_are_not_fresh_are_forgotten():
    """M5, I6: outdated dead-letter counts of queues are dropped, so their number stays bounded."""
    world = World(**{f"q{number}": [("a", "rejected", "x", 1)] for number in range(50)})
    for number in range(50):
        await world.counts.of(f"q{number}")
        world.now_s += 0.5
    assert len(world.counts._counted) <= 3
