"""Lists that are read in slices and cached for a moment (M5, I6)."""

import asyncio

from ackq.errors import QueueNotFoundError
from ackq_broker.http.listing import Listing
from tests.fakes.journal import HeldEngine


class World:
    """Names that each take some time to read; time passes only by reads and pauses."""

    def __init__(self, names, cost_s=0.0004):
        self.names = tuple(names)
        self.cost_s = cost_s
        self.now_s = 0.0
        self.pauses = []
        self.reads = []
        self.gone = set()
        self.listing = Listing(
            HeldEngine(), lambda: self.names, self.read, lambda: self.now_s, self.pause
        )

    def read(self, name):
        self.reads.append(name)
        self.now_s += self.cost_s
        if name in self.gone:
            raise QueueNotFoundError("gone", queue=name)
        return name.upper()

    async def pause(self, seconds):
        self.pauses.append(len(self.reads))
        self.now_s += seconds


async def test_a_pause_after_each_millisecond():
    """I6: reading a list yields after each millisecond, here after three rows of 0.4 ms."""
    world = World("abcdefgh")
    await world.listing.get()
    assert world.pauses == [3, 6]


async def test_a_list_takes_a_twentieth_of_the_time_at_most():
    """I6: a list that took one second to read is cached for 20 s."""
    world = World((str(number) for number in range(1000)), cost_s=0.001)
    first = await world.listing.get()
    world.now_s += 19
    assert await world.listing.get() is first
    world.now_s += 1.1
    assert await world.listing.get() is not first


async def test_names_that_come_and_go_are_seen():
    """I6: the order is computed again for new names; one that went between slices is left out."""
    world = World("ab")
    await world.listing.get()
    world.names, world.now_s, world.gone = ("b", "c", "A"), 10, {"c"}
    assert (await world.listing.get()).rows == ("A", "B")


async def test_a_count_does_not_wait_for_a_long_reading():
    """M5, I6: it is that of the last reading, and absent before the first; the reading goes on."""
    world, going = World("abcdefgh"), asyncio.Event()
    world.listing._pause = lambda _: going.wait()
    assert await world.listing.within(0) is None
    going.set()
    first = await world.listing.get()
    assert len(world.reads) == 8
    going.clear()
    world.now_s += 10
    assert await world.listing.within(0) is await world.listing.within(0) is first
    going.set()
    assert await world.listing.within(10) is not first
    assert len(world.reads) == 16
