"""What virtual clients have in common: a generator of their own, connections, patience."""

import asyncio

from tests.crash.simulation.network import Cut, Refused
from tests.crash.simulation.users import OWNER

# What a client waits for a word before it takes its connection for dead.
PATIENCE_S = 20.0


class Silent(Cut):
    """Nothing came for so long that the connection counts as dead; it may not be."""


class Ended(Exception):  # noqa: N818 - an event
    """The world is closing."""


class Client:
    """A process beside the broker.

    Args:
        world: Where it lives.
        oracle: Is told everything.
        name: Unique; seeds the generator.
    """

    # Whether it comes to an end when the world closes.
    ends = True
    # Whose token its calls have, where the broker has users.
    user = OWNER

    def __init__(self, world, oracle, name):
        self.world = world
        self.oracle = oracle
        self.name = name
        self.rng = world.random(name)
        # Seconds at most between two things that it does: faults shall meet it at work.
        self.pace_s = self.rng.choice((0.1, 0.5, 1.5))
        self.finished = False
        self._connection = None

    async def run(self):
        """Lives until its work is done or the world closes."""
        try:
            await self.work()
        except Ended:
            pass
        finally:
            self.finished = True

    async def work(self):
        """Does its work."""
        raise NotImplementedError

    # --- chance and time ---

    def sometimes(self, chance):
        return self.rng.random() < chance

    def token(self):
        return self.rng.randbytes(16)

    async def pause(self, longest=0.2):
        """A little later."""
        await self.world.sleep(self.rng.random() * longest)
        if self.ends and self.world.closing:
            raise Ended

    # --- the broker ---

    async def patiently(self, awaitable, seconds=PATIENCE_S):
        """An answer; Silent when none comes for so long."""
        try:
            async with asyncio.timeout(seconds):
                return await awaitable
        except TimeoutError:
            raise Silent(f"no word for {seconds} s") from None

    async def send(self, stream, request):
        """Sends a request; Silent when there is no room for it for long."""
        await self.patiently(stream.write(request))

    def connect(self):
        """A connection of its user."""
        return self.world.connect(user=self.user)

    def open(self, method):
        """A stream on a connection of its own; the one before is given up."""
        if self._connection is not None:
            self._connection.cut(server_after_s=self.rng.choice((0.0, 0.0, 1.0, 5.0)))
        self._connection = self.connect()
        return self._connection.open(method)

    def trip(self, chance):
        """Its own connection breaks now and then, for the broker maybe later."""
        if self._connection is not None and self.sometimes(chance):
            self._connection.cut(server_after_s=self.rng.choice((0.0, 0.0, 0.5, 3.0)))

    def excuses(self, refusal):
        """Whether a refusal is no fault of the broker's: it stops, its disk is full or broken."""
        if refusal.code == "damaged" and "the disk cannot read" in refusal.message:
            return any(fault.kind == "read" for _, fault in self.world.faults)
        return refusal.code in ("unavailable", "disk_full")

    async def call(self, method, request, *, tries=1):
        """An answer; asks again on another connection after a cut, so many times in all."""
        while True:
            try:
                return await self.patiently(self.connect().call(method, request))
            except Cut:
                tries -= 1
                if not tries:
                    raise
            except Refused as refusal:
                if not self.excuses(refusal):
                    raise
            await self.pause()

    async def stream_rows(self, method, request, decode):
        """The rows of a call that is answered by frames."""
        stream = self.connect().open(method)
        await self.send(stream, request)
        await stream.close_writes()
        found = []
        while (frame := await self.patiently(stream.read())) is not None:
            found += decode(frame)
        return found


class Troublemaker(Client):
    """One who ends before the world closes, so that what is there can be moved."""

    async def pause(self, longest=0.2):
        """As `Client.pause`."""
        await super().pause(longest)
        if self.world.calm:
            raise Ended
