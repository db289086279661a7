"""The clients around links: remote publishers, remote faults, runners, operators."""

from contextlib import suppress

from ackq.errors import AckqError
from ackq.v1 import links_pb2
from tests.crash.simulation.clients.channel import Consumer
from tests.crash.simulation.clients.client import Client, Troublemaker
from tests.crash.simulation.clients.link_process import LinkProcess
from tests.crash.simulation.clients.operator import Watcher
from tests.crash.simulation.clients.wire import body_of
from tests.crash.simulation.network import Cut, Refused

LINK = "link"
# How often the removal of a link in use is tried.
_REMOVALS = 30
# Share of messages that have the id of the previous one, with another content.
_SAME_ID = 0.1
# The disk is made to stand still when a consumer holds this many messages.
_HOARD = 6
# How often the conditions are checked before the last standstill is given up.
_LOOKS = 200
# Longest time that a process runs on after another one was started.
_ZOMBIE_S = 4.0
# Errors with which a link's process ends by itself: another one runs the link, or it was removed.
_ENDS = ("fenced", "already_held", "link_not_found", "closed")


class ForeignPublisher(Troublemaker):
    """Publishes to the remote broker, each message once.

    Args:
        elsewhere: The remote broker.
        books: Record each message before it is published.
        count: Messages in all.
        names: Number of different contents; 0: each has its own.
        ids: Messages have ids, each its own; some use the previous id with another content.
    """

    def __init__(self, world, oracle, name, elsewhere, books, count, *, names, ids):
        super().__init__(world, oracle, name)
        self._elsewhere = elsewhere
        self._books = books
        self._count = count
        self._names = names
        self._ids = ids
        self._made = 0
        self._message_id = ""

    async def work(self):
        while self._made < self._count:
            for _ in range(self.rng.choice((1, 1, 3, 6))):
                self.publish(self.rng)
            await self.pause(self.pace_s)

    @property
    def undelivered(self):
        """Whether the remote broker has messages that no consumer holds."""
        return bool(self._elsewhere.count()[0])

    def publish(self, rng, sizes=(0, 20, 100, 800)):
        """Publishes a message, with a body of one of these sizes if it has a content of its own."""
        name = f"m{rng.randrange(self._names) if self._names else self._made}"
        body = body_of(name, 0 if self._names else rng.choice(sizes))
        if self._ids and not (self._message_id and rng.random() < _SAME_ID):
            self._message_id = f"id-{self._made}"
        self._books.published(name, body, self._made)
        self._elsewhere.publish(name, body, self._message_id)
        self._made += 1


class Weather(Troublemaker):
    """Injects faults into the remote broker.

    Args:
        elsewhere: The remote broker.
        deaths: Whether its node dies.
    """

    def __init__(self, world, oracle, name, elsewhere, *, deaths):
        super().__init__(world, oracle, name)
        self._elsewhere = elsewhere
        self._deaths = deaths

    async def work(self):
        self.finished = True
        while True:
            await self.pause(2.0)
            if self._deaths and self.sometimes(0.5):
                down_s = self.rng.choice((0.0, 0.1, 0.5, 3.0))
                if self.sometimes(0.5):
                    self._elsewhere.die(down_s)
                else:
                    self._elsewhere.die_at(self.rng.randrange(6), down_s)
            else:
                self.world.trace("cut elsewhere")
                self._elsewhere.cut()


class Lightning(Client):
    """Cuts the power of the local broker right after a link received an answer.

    Args:
        books: Call it at each answer that promises something.
    """

    def __init__(self, world, oracle, name, books):
        super().__init__(world, oracle, name)
        self._left = [self.rng.randrange(1, 20) for _ in range(self.rng.choice((1, 1, 2)))]
        books.on_told = self._told

    async def work(self):
        self.finished = True

    def _told(self):
        if not self._left or self.world.calm:
            return
        self._left[0] -= 1
        if not self._left[0]:
            del self._left[0]
            self.world.process.plan(self.rng.choice(("power", "power", "kill")), 0)


class Runner(Troublemaker):
    """Runs a link's processes: kills, freezes and stops them, and starts others next to them.

    Args:
        elsewhere: The remote broker.
        books: The books of the processes.
        rules: Returns the link's rules.
        prefetch: The link's window.
    """

    def __init__(self, world, oracle, name, elsewhere, books, rules, prefetch):
        super().__init__(world, oracle, name)
        self._elsewhere = elsewhere
        self._books = books
        self._rules = rules
        self._prefetch = prefetch
        self._fates = self.rng.choice(
            (("kill", "freeze", "stop", "edge"), ("kill",), ("freeze", "edge"), ("stop", "kill"))
        )
        self.processes = []

    def start(self):
        """Starts another process of the link."""
        process = LinkProcess(
            self.world, self._elsewhere, self._books, self._rules(), self.rng, self._prefetch
        )
        self.processes.append(process)
        return process

    async def work(self):
        self.finished = True
        process = self.start()
        while True:
            await self.pause(self.pace_s + 1.0)
            self._look()
            if process.ended:
                process = self.start()
                continue
            process = await getattr(self, f"_{self.rng.choice(self._fates)}")(process)

    def _look(self):
        """Checks why a process has ended by itself."""
        for process in self.processes:
            error = process.error
            if isinstance(error, AckqError) and error.code not in _ENDS:
                self.oracle.wrong(f"L17: a link's process ended: {error.code}: {error}")
                process.error = None

    async def _kill(self, process):
        process.kill()
        if self.sometimes(0.5):
            await self.pause(0.5)
        return self.start()

    async def _stop(self, process):
        process.stop()
        if self.sometimes(0.5):
            await self.pause(0.5)
        return self.start()

    async def _edge(self, process):
        process.cut_edge()
        return process

    async def _freeze(self, process):
        """Freezes a process unnoticed: another one is started, which it meets when it goes on."""
        process.freeze(self.rng.choice((0.2, 1.0, 3.0)))
        await self.pause(0.5)
        new = self.start()
        noticed_s = self._elsewhere.rules.noticed_s * self.rng.random()
        now_s = self.world.now_s()
        self.world.kernel.at(now_s + noticed_s, process.expel)
        self.world.kernel.at(now_s + self.rng.random() * _ZOMBIE_S, process.kill)
        return new

    async def running(self):
        """The newest process, with all others killed; a new one if it has ended."""
        if not self.processes or self.processes[-1].ended:
            return await self.end_all()
        for process in self.processes[:-1]:
            process.kill()
        return self.processes[-1]

    async def end_all(self):
        """Kills all processes, and starts a new one."""
        self._look()
        for process in self.processes:
            process.kill()
        return self.start()


class Hoarder(Consumer):
    """Holds up to 12 messages; accepts one at a time while `settles`, all in a calm world.

    It accepts none in a calm world while it `holds`: the last standstill of the disk is still to
    come.
    """

    # Less than the local broker waits between two permits, so that both streams of a link look in
    # turn.
    quiet_s = 0.04
    windows = (50,)
    cuts = 0
    settles = holds = False

    @property
    def held(self):
        """The number of messages that it holds."""
        return len(self._held)

    async def _busy(self):
        self._take_some(1)
        while self._held and self.world.calm and not self.holds:
            self._settle()
        if self._held and self.settles:
            self._settle()

    def _prefetch(self, _):
        return 12


class Standstill(Troublemaker):
    """Stalls the local broker's disk, and cuts the link's side of its connection meanwhile.

    The link reconnects while its old stream at the local broker still waits for the disk.

    Args:
        publisher: Fills the bytes that may wait for the disk.
        runner: Its newest process is cut off.
        hoarder: Accepts its messages while both streams of the link run.
    """

    def __init__(self, world, oracle, name, publisher, runner, hoarder):
        super().__init__(world, oracle, name)
        self._publisher = publisher
        self._runner = runner
        self._hoarder = hoarder
        self._still = False

    async def work(self):
        self.finished = self._hoarder.holds = True
        while True:
            await self.pause(0.5)
            if self._hoarder.held >= _HOARD:
                await self._stand_still()

    async def last(self):
        """Stalls the disk once more, in a calm world: no later subscription brings lost permits."""
        for _ in range(_LOOKS):
            await self.world.sleep(0.2)
            process = await self._runner.running()
            if self._still or not process.idle or self._publisher.undelivered:
                continue
            if self._hoarder.held >= _HOARD:
                await self._stand_still()
                break
            self._publisher.publish(self.rng)
        self._hoarder.holds = False

    async def _stand_still(self):
        self._still = True
        still_s = self.rng.choice((4.0, 6.0))
        self.world.trace("the disk stands still for", still_s)
        self.world.slow_disk(still_s, still_s)
        for _ in range(6):
            self._publisher.publish(self.rng, (800,))
            await self.world.sleep(self.rng.random() * 0.2)
        for process in self._runner.processes[-1:]:
            process.cut_edge(late_s=2 * still_s)
        self._hoarder.settles = True
        await self.world.sleep(0.8 * still_s)
        self._hoarder.settles = self._still = False


class LinkWatcher(Watcher):
    """Asks for the link's figures repeatedly: what an answer reports is on disk (I1, L10)."""

    def __init__(self, world, oracle, name, books):
        super().__init__(world, oracle, name)
        self._books = books

    async def look(self):
        """Asks once for the links' figures, checks and returns them."""
        told = dict(self._books.told)
        listed = await self.call("ListLinks", links_pb2.ListLinksRequest(), tries=3)
        for info in listed.links:
            self._books.look(info, told.get(info.incarnation, 0))
        return listed.links

    async def remove(self):
        """Removes the link once the remote broker has none of its messages."""
        for info in await self.look():
            self._books.ending(info)
            request = links_pb2.RemoveLinkRequest(link=info.link, forget=True)
            for _ in range(_REMOVALS):
                try:
                    await self.call("RemoveLink", request, tries=3)
                    break
                except Refused as refusal:
                    if refusal.code != "in_use":
                        raise
                await self.pause(2.0)


class LinkResumption(Client):
    """Resumes a paused link, and retries through faults."""

    ends = False

    async def work(self):
        request = links_pb2.PauseLinkRequest(link=LINK, paused=False)
        try:
            await self.call("PauseLink", request, tries=1000)
        except Refused as refusal:
            if refusal.code != "link_not_found":
                raise


class LinkOperator(Troublemaker):
    """Pauses the link, resumes it, and removes it.

    Args:
        books: Record a removal.
        removes: Whether it removes links that hold messages.
        runner: Its processes are killed before a removal.
    """

    def __init__(self, world, oracle, name, books, runner, *, removes):
        super().__init__(world, oracle, name)
        self._books = books
        self._runner = runner
        self._removes = removes

    async def work(self):
        self.finished = True
        while True:
            await self.pause(2.0)
            with suppress(Cut):
                try:
                    await self._act()
                except Refused as refusal:
                    known = ("link_not_found", "in_use")
                    if refusal.code not in known and not self.excuses(refusal):
                        self.oracle.wrong(f"L25: {self.name} was refused: {refusal}")

    async def _act(self):
        if self._removes and self.sometimes(0.3):
            await self._remove()
            return
        try:
            await self.call("PauseLink", links_pb2.PauseLinkRequest(link=LINK, paused=True))
            await self.pause(0.5)
        finally:
            again = LinkResumption(self.world, self.oracle, self.name)
            self.world.spawn(self.name, again.run)

    async def _remove(self):
        """L25: removes the link, whatever it holds."""
        for process in self._runner.processes:
            process.kill()
        request = links_pb2.RemoveLinkRequest(link=LINK, forget=True)
        # Without an answer the number of copies is unknown.
        self._books.removing()
        info = await self.call("RemoveLink", request)
        self._books.removed(info)
