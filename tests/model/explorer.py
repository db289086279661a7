"""Visits every reachable world, breadth first, and reports the first one with a flaw.

So the reported trace is a shortest one.
"""

from collections import Counter, deque
from typing import NamedTuple


class Found(NamedTuple):
    """The result of an exploration: the number of worlds, and the flaw with its trace, if any."""

    worlds: int
    wrong: str = ""
    trace: tuple[str, ...] = ()

    def is_sound(self, more_than):
        """Checks that no world of enough worlds has a flaw."""
        assert not self.wrong, str(self)
        assert self.worlds > more_than

    def has(self, flaw):
        """Checks that a flaw was found."""
        print(self)
        assert flaw in self.wrong
        assert self.trace

    def __str__(self):
        lines = [f"{number:3d}. {event}" for number, event in enumerate(self.trace, 1)]
        return "\n".join([f"{self.worlds} worlds. {self.wrong or 'Nothing is wrong.'}", *lines])


def explore(spark, messages=3, bound=1_000_000, judge=None):
    """Explores at most `bound` worlds of a model; `judge` returns the flaw of a world, or ""."""
    judge = judge or flaw
    first = spark.first(messages)
    names = tuple(f"m{number}" for number in range(1, messages + 1))
    came = {first: None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for event, after in spark.events(world):
            if after in came:
                continue
            came[after] = (world, event)
            wrong = judge(spark.broker, after, names)
            if wrong:
                return Found(len(came), wrong, trace(came, after))
            if len(came) > bound:
                raise AssertionError(f"more than {bound} worlds")
            if not after.stuck:
                waiting.append(after)
    return Found(len(came))


def trace(came, world):
    """Returns the events that led to a world."""
    events = []
    while came[world] is not None:
        world, event = came[world]
        events.append(event)
    return tuple(reversed(events))


def flaw(broker, world, names):
    """Returns the flaw of a world as text; "" if there is none."""
    queued, dead = broker.held(world.broker)
    taken = Counter(name for *_, rows in world.sink for name in rows)
    for name in names:
        ends = taken[name] + world.other.count(name) + dead.count(name)
        if ends > 1 and name not in world.operated:
            return f"{name} is doubled: {places(world, dead, name)}"
        if not ends and name not in queued:
            return f"{name} is lost"
    return repeated(world)


def repeated(world):
    """Returns a flaw that is none of single messages: of a batch, or of the query."""
    batches = [entry[:2] for entry in world.read]
    for entry in batches:
        if batches.count(entry) > 1:
            return f"batch {entry[1]} was read with other rows: {world.read}"
    if world.stuck and not world.lost:
        return f"the query can not go on: {world.stuck}"
    return world.wrong


def places(world, dead, name):
    """Names the places where a message ended."""
    found = [f"batch {batch} of query {query}" for query, batch, rows in world.sink if name in rows]
    found += ["the consumer's"] * world.other.count(name)
    return ", ".join(found + ["a dead letter"] * dead.count(name))
