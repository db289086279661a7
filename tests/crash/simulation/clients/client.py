"""The common parts of virtual clients: a random generator, connections, patience."""

import asyncio

from tests.crash.simulation.network import Cut, Refused
from tests.crash.simulation.users import OWNER

# How long a client waits for an answer before it takes its connection for dead.
PATIENCE_S = 20.0


class Silent(Cut):
    """No answer came for so long that the connection counts as dead; it may still be alive."""


class Ended(Exception):  # noqa: N818 - an event
    """The world is closing."""


class Client:
    """A simulated client process.

    Args:
        world: The world that it runs in.
        oracle: Records what it does and observes.
        name: Unique; seeds the generator.
    """

    # Whether it ends when the world closes.
    ends = True
    # The user of its calls, where the broker has users.
    user = OWNER

    def __init__(self, world, oracle, name):
        self.world = world
        self.oracle = oracle
        self.name = name
        self.rng = world.random(name)
        # Longest pause between two of its actions: faults should hit it at work.
        self.pace_s = self.rng.choice((0.1, 0.5, 1.5))
        self.finished = False
        self._connection = None

    async def run(self):
        """Runs until its work is done or the world closes."""
        try:
            await self.work()
        except Ended:
            pass
        finally:
            self.finished = True

    async def work(self):
        """Does the client's work."""
        raise NotImplementedError

    # --- chance and time ---

    def sometimes(self, chance):
        return self.rng.random() < chance

    def token(self):
        return self.rng.randbytes(16)

    async def pause(self, longest=0.2):
        """Sleeps for a random time up to `longest`; raises Ended if the world is closing."""
        await self.world.sleep(self.rng.random() * longest)
        if self.ends and self.world.closing:
            raise Ended

    # --- the broker ---

    async def patiently(self, awaitable, seconds=PATIENCE_S):
        """The result of an awaitable; raises Silent after `seconds` without one."""
        try:
            async with asyncio.timeout(seconds):
                return await awaitable
        except TimeoutError:
            raise Silent(f"no word for {seconds} s") from None

    async def send(self, stream, request):
        """Sends a request; raises Silent when there is no room for it for long."""
        await self.patiently(stream.write(request))

    def connect(self):
        """A connection as its user."""
        return self.world.connect(user=self.user)

    def open(self, method):
        """A stream on a connection of its own; the client's previous connection is cut."""
        if self._connection is not None:
            self._connection.cut(server_after_s=self.rng.choice((0.0, 0.0, 1.0, 5.0)))
        self._connection = self.connect()
        return self._connection.open(method)

    def trip(self, chance):
        """Cuts its own connection with this chance; the broker may notice it later."""
        if self._connection is not None and self.sometimes(chance):
            self._connection.cut(server_after_s=self.rng.choice((0.0, 0.0, 0.5, 3.0)))

    def excuses(self, refusal):
        """Whether a refusal is no bug: the broker stops, or its disk is full or damaged."""
        if refusal.code == "damaged" and "the disk cannot read" in refusal.message:
            return any(fault.kind == "read" for _, fault in self.world.faults)
        return refusal.code in ("unavailable", "disk_full")

    async def call(self, method, request, *, tries=1):
        """The answer to a call, which is repeated on another connection after a cut."""
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
        """The rows of a call that is answered by a stream of frames."""
        stream = self.connect().open(method)
        await self.send(stream, request)
        await stream.close_writes()
        found = []
        while (frame := await self.patiently(stream.read())) is not None:
            found += decode(frame)
        return found


class Troublemaker(Client):
    """A client that ends before the world closes, so that the remaining messages can be moved."""

    async def pause(self, longest=0.2):
        """As `Client.pause`."""
        await super().pause(longest)
        if self.world.calm:
            raise Ended
