"""The course of a world: clients run, the broker ends once more, and the oracle judges."""

import asyncio
from collections import Counter

from tests.crash.simulation.clients.cast import Cast
from tests.crash.simulation.clients.link_cast import LinkCast
from tests.crash.simulation.oracle.drain import drain

_ENDS = ("stop", "stop", "kill", "power")
_MOST_WRONGS = 8
_LOOK_S = 0.25
# More than the sum of all clock jumps of a world.
_AHEAD_US = 1_000_000_000_000


class Scenario:
    """A world's clients and its end; called once, as a coroutine function.

    Args:
        world: The world.
        clients: Names of the clients to keep; None: all that the seed draws.
    """

    cast = Cast

    def __init__(self, world, clients=None):
        self._cast = self.cast(world)
        if clients is not None:
            self._cast.keep(clients)

    @property
    def names(self):
        """The names of the clients."""
        return tuple(client.name for client in self._cast.clients)

    def counts(self):
        """The figures of the run, for the totals of a search."""
        return Counter(self._cast.oracle.figures)

    async def __call__(self, world):
        """Runs the clients; raises AssertionError with the violations."""
        cast = self._cast
        await world.wait_served()
        await cast.declare()
        tasks = [world.spawn(client.name, client.run) for client in cast.clients]
        for _ in range(int(world.seconds / _LOOK_S)):
            if cast.done():
                break
            await asyncio.sleep(_LOOK_S)
        await self._before_close(world)
        await world.close()
        await asyncio.gather(*tasks)
        self._end_jumps(world)
        await world.end_broker(world.random("end").choice(_ENDS))
        await drain(world, cast.oracle)
        wrong = self._verdict(world.process.lives - 1)
        more = len(wrong) - _MOST_WRONGS
        text = "\n".join(wrong[:_MOST_WRONGS]) + (f"\nand {more} more" if more > 0 else "")
        assert not wrong, text

    async def _before_close(self, world):
        """Runs while clients are still active; a link scenario overrides it."""

    def _verdict(self, restarts):
        """The violations, a line each."""
        return self._cast.oracle.verdict(restarts)

    def _end_jumps(self, world):
        """After clock jumps, sets the machine's clock ahead of every time in the journal.

        Otherwise, waits by the broker's clock would last as long as that clock is ahead (Q8).
        """
        if world.clock_jumps:
            world.system.wall_offset_us += _AHEAD_US


class LinkScenario(Scenario):
    """As `Scenario`, in a world with a link."""

    cast = LinkCast

    async def _before_close(self, world):
        await world.calm_down()
        if world.clock_jumps:
            self._end_jumps(world)
            await world.end_broker("stop")  # the next start believes the clock
        await world.wait_served()
        await self._cast.move_all()

    def _verdict(self, restarts):
        return super()._verdict(restarts) + self._cast.books.verdict()
