"""A world: the real broker, its simulated machine, and the clients and faults drawn from a seed.

`run` makes a world from a seed, runs it until its clients are done, ends the broker once more, and
asks the oracle for its verdict.
"""

import asyncio
import random
import zlib
from contextlib import contextmanager
from functools import partialmethod
from types import SimpleNamespace

from ackq import limits
from ackq_broker import server
from ackq_broker.engine import in_flight, snapshot
from ackq_broker.engine.engine import Engine
from ackq_broker.journal.write import group_commit, transient
from ackq_broker.service.sessions import liveness
from tests.crash.simulation import faults, link_machine, system, users
from tests.crash.simulation.disk import SimulatedDisk
from tests.crash.simulation.kernel import Kernel, Loop
from tests.crash.simulation.network import Connection
from tests.crash.simulation.process import Life, Process

# Limit of the clients' end after the world closes, in virtual time: longer is a hang.
PATIENCE_S = 1_200.0
# The same where a window of one message has to pass all messages of the remote broker.
_LINK_PATIENCE_S = 1500.0
# Longest pauses between an end of the broker and its next start.
_PAUSES_S = (0.0, 0.0, 0.1, 0.1, 0.5, 0.5, 1.0, 20.0)


class World:
    """A simulated world, in which clients run.

    Args:
        seed: Determines the whole world.
        seconds: Time until it closes.
        without: Indices of faults that are left out.
        keep_trace: Keep the lines of the trace.
        links: It has links, whose memory is shorter than in production.

    Attributes:
        calm: No further fault is injected.
        closing: Clients are to end.
        lines: The trace.
        users: Replaces the broker's `SecurityOptions`; None: there are no users.
    """

    def __init__(self, seed, seconds, *, without=(), keep_trace=False, links=False):
        self.seed = seed
        self.seconds = seconds
        self.calm = self.closing = False
        self.lines = []
        self._patience_s = _LINK_PATIENCE_S if links else PATIENCE_S
        self._keep_trace = keep_trace
        self._digest = 0
        chance = self.random("world")
        self.kernel = Kernel(
            seed,
            switch_chance=chance.choice((0.05, 0.2, 0.6)),
            step_s=chance.choice((0.0, 0.0, 0.00002, 0.0005)),
        )
        self.disk = SimulatedDisk(self.random("disk"), self.kernel.note)
        self._sync_s = chance.choice((0.0, 0.002, 0.03, 0.25))
        self._usual_sync_s = self._sync_s
        self._delays = self.random("network")
        self._delay_s = chance.choice((0.0, 0.001, 0.02, 0.2))
        self._window = chance.choice((1, 4, 16))
        self.system = system.System(
            self.kernel, self.disk, seed, self._next_sync_s, chance.choice((0.0, 0.9, 0.98))
        )
        self.system.Path("/data").mkdir()
        self.system.Path("/backups").mkdir()
        self.users = users.drawn(self.random("users"))
        self.process = Process(
            self.kernel,
            self.system,
            self.disk,
            segment_bytes=chance.choice((1500, 4096, 16_384)),
            noticed_s=self._noticed_s,
            security=self.users,
        )
        self._limits = {
            "SNAPSHOT_EVERY_BYTES": chance.choice((1, 2000, 6000, 1 << 30)),
            "MAX_GROUP_BYTES": chance.choice((500, 1 << 24)),
        }
        lone = self.random("lone")
        self._others = (
            (transient, "_FILE_BYTES", chance.choice((600, 64 << 20))),
            (in_flight, "_POLL_S", 2.0),
            (snapshot, "_SLICE_S", chance.choice((-1.0, 0.003))),
            (group_commit, "_QUICK_SYNCS", lone.choice((1, 1, 8))),
        )
        if lone.random() < 1 / 4:
            self._others += ((Engine, "_write", _write_lone), (group_commit, "_QUICK_S", 1.0))
        # Turns of the broker's loop so long that several publishers' messages arrive in one.
        turn_s = self.random("turns").choice((0.0, 0.02, 0.2))
        self._others += ((Engine, "put_off", partialmethod(_put_off, turn_s)),)
        # Readers of sessions time out sooner than in production, so that others replace them.
        away_ms = chance.choice((500, 500, 2000, 15_000))
        holders = SimpleNamespace(HEARTBEAT_MS=away_ms, HOLDER_CUT_GRACE_MS=away_ms // 8)
        self._others += ((liveness, "limits", holders),)
        drawn = list(enumerate(faults.draw(self.random("faults"), seconds)))
        self.faults = [(index, fault) for index, fault in drawn if index not in without]
        if links:
            link_limits, others = link_machine.patches(self)
            self._limits |= link_limits
            self._others += others
        self._restarts = self.random("restarts")
        self._connections = []
        self._loop = Loop(self.kernel)
        self.kernel.loops.append(self._loop)

    # --- for clients ---

    def random(self, name):
        """A random generator per name, so that another client does not change its numbers."""
        return random.Random(f"{self.seed}/{name}")

    def now_us(self):
        """The machine's wall clock, in microseconds."""
        return self.system.wall_us()

    def now_s(self):
        """Virtual seconds, on a clock that nobody sets."""
        return self.kernel.now_s

    async def sleep(self, seconds):
        """Sleeps in virtual time."""
        await asyncio.sleep(seconds)

    def spawn(self, name, run):
        """Runs a coroutine function as a task; its failure fails the world."""
        return self._loop.create_task(self._guard(name, run))

    def connect(self, loop=None, user=users.OWNER):
        """A connection to the broker that serves now; if none serves, each use raises `Cut`."""
        connection = Connection(
            self.kernel,
            loop or self._loop,
            self.process.server,
            self._next_delay_s,
            self._window,
            users.metadata(user if self.users else ""),
        )
        self._connections.append(connection)
        return connection

    def add_loop(self, loop):
        """Schedules the event loop of another process, or resumes it."""
        self.kernel.loops.append(loop)

    def remove_loop(self, loop):
        """Takes an event loop off the schedule, for good or for a while."""
        self.kernel.loops.remove(loop)

    @property
    def retention_ends(self):
        """Whether retention may end early: where room is short, or by a clock that is set."""
        return any(fault.kind in ("room", "full", "clock") for _, fault in self.faults)

    @property
    def clock_jumps(self):
        """Whether a fault of this world sets the machine's clock."""
        return any(fault.kind == "clock" for _, fault in self.faults)

    def trace(self, *what):
        """A line of the run's log."""
        line = f"{self.kernel.now_s - 1000:.6f} {' '.join(map(str, what))}"
        self._digest = zlib.crc32(line.encode(), self._digest)
        if self._keep_trace:
            self.lines.append(line)

    @property
    def digest(self):
        """The digest of the whole run, which is equal for equal runs."""
        return f"{self._digest:08x}{self.kernel.digest:08x}-{self.kernel.steps}"

    # --- for faults ---

    def connections(self):
        """The open connections."""
        self._connections = [each for each in self._connections if not each.client_cut]
        return self._connections

    def stall(self, seconds):
        """Stalls the broker's process for some seconds."""
        kernel, life = self.kernel, self.process.life
        if life is not None and kernel.frozen is None:
            kernel.frozen = life
            kernel.at(kernel.now_s + seconds, self._thaw)

    def slow_disk(self, sync_s, seconds):
        """Makes syncs slow for a while."""
        self._sync_s = sync_s
        self.kernel.at(self.kernel.now_s + seconds, self._disk_is_usual)

    def give_room(self):
        """Gives the disk its free space back."""
        self.disk.free_bytes = 1 << 40

    # --- its course ---

    def run(self, scenario):
        """Runs `scenario(world)`, a coroutine function with the clients; raises what failed."""
        self.spawn("world", lambda: self._course(scenario))
        with self._installed():
            try:
                self.kernel.run(self._bury_broker)
            finally:
                self._bury()

    async def wait_served(self):
        """Returns when a broker serves."""
        while self.process.server is None:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.05)

    async def calm_down(self):
        """Ends all faults, also those that are armed or planned."""
        self.calm = True
        self.disk.disarm()
        self.process.calm()
        self.give_room()

    async def close(self):
        """Ends all faults, and asks clients to end."""
        self.closing = True
        await self.calm_down()

    async def end_broker(self, kind):
        """Ends the broker by "kill", "power" or "stop", and returns when the next one serves."""
        await self.wait_served()
        life = self.process.life
        if kind == "stop":
            self.process.stop()
        else:
            self.process.end(kind)
        while self.process.life is life:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.05)
        await self.wait_served()

    async def _course(self, scenario):
        kernel = self.kernel
        self.process.start()
        for _, fault in self.faults:
            kernel.at(kernel.now_s + fault.at_s, self._perform, fault)
        try:
            async with asyncio.timeout(self.seconds + self._patience_s):
                await scenario(self)
        except TimeoutError:
            raise AssertionError("clients hang") from None
        kernel.finish()

    def _perform(self, fault):
        if not self.calm:
            faults.perform(fault, self)

    async def _guard(self, name, run):
        try:
            await run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it fails the world
            error.add_note(f"in {name}")
            self.kernel.fail(error)

    def _bury_broker(self):
        life = self.process.reap()
        if life is None:
            return
        self.trace("broker ended", life.ended, life.error or "")
        if self.kernel.frozen is life:
            self.kernel.frozen = None
        if life.error is not None and not (self.disk.faults and _of_disk(life.error)):
            self.kernel.fail(life.error)
            return
        pause_s = self._restarts.choice(_PAUSES_S) * self._restarts.random()
        self.kernel.at(self.kernel.now_s + pause_s, self._restart)

    def _restart(self):
        self.trace("broker starts")
        self.process.start()

    def _bury(self):
        """Ends the broker and the clients' loop, so that none of their code runs when collected."""
        self.process.end("kill")
        self.process.reap()
        self._loop.close()
        # Code that runs at its collection finds its process dead.
        self.kernel.life = Life(self.kernel)
        self.kernel.life.end("buried")

    def _thaw(self):
        self.kernel.frozen = None

    def _disk_is_usual(self):
        self._sync_s = self._usual_sync_s

    def _next_sync_s(self):
        return self._sync_s * (0.5 + self.kernel.random()) if self._sync_s else 0.0

    def _next_delay_s(self):
        return self._delay_s * self._delays.random() if self._delay_s else 0.0

    def _noticed_s(self, kind):
        late = 20.0 if kind == "power" and self._restarts.random() < 0.3 else 0.01
        return self._restarts.random() * late

    @contextmanager
    def _installed(self):
        patches = [
            *system.patches(self.system),
            (server, "aio", _Aio(self.process)),
            (server, "add_reflection", lambda *_: None),
            *((limits, name, value) for name, value in self._limits.items()),
            *self._others,
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in patches]
        for module, name, value in patches:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


def _write_lone(engine, decided, block, _write=Engine._write, **_):
    """Replaces `Engine._write`: every decision counts as the only one, not only lone publishes."""
    _write(engine, decided, block, lone=True)


class _Aio:
    """`grpc.aio`, as far as the broker makes its server with it."""

    def __init__(self, process):
        self.server = process.make_server


def _put_off(engine, turn_s, decide):
    """Replaces `Engine.put_off`: a turn of the loop takes some time."""
    if not engine._put_off:
        asyncio.get_running_loop().call_later(turn_s, engine.or_fail(engine.catch_up))
    engine._put_off.append(decide)


def _of_disk(error):
    """Whether an error is, or was caused by, an error of the disk."""
    while error is not None:
        if isinstance(error, OSError):
            return True
        error = error.__cause__ or error.__context__
    return False
