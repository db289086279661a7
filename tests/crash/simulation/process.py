"""The broker's process in the simulation: process lifetimes of `server.serve` on one disk.

A life is one run of the real broker, with an event loop of its own. It ends by a kill at any
scheduling point, by a power cut, by a clean stop, or by itself after a disk error; then its loop
never runs again, its threads unwind, and its connections break.
"""

import asyncio
from functools import partial

from ackq.errors import AckqError
from ackq_broker import server
from ackq_broker.security.setup import SecurityOptions
from tests.crash.simulation.kernel import Loop
from tests.crash.simulation.network import Server

_DATA = "/data"


class Life:
    """One run of the broker."""

    def __init__(self, kernel):
        self._kernel = kernel
        self.loop = Loop(kernel, self)
        self.fibers = []
        self.ended = ""
        self.server = None
        self.ready = None
        self.stop = None
        self.task = None
        self.error = None

    def end(self, kind, error=None):
        """Ends the run, so that none of its code runs again; the first of two ends counts."""
        if not self.ended:
            self.ended, self.error = kind, error
            self._kernel.life_ended = True


class Process:
    """Starts and ends runs of the broker.

    Args:
        kernel: The scheduler.
        system: The machine.
        disk: Its disk.
        segment_bytes: Size of the journal's segments.
        noticed_s: Returns the time until a client notices an end of a given kind.
        security: Replaces the broker's `SecurityOptions`; None: the defaults.
    """

    def __init__(self, kernel, system, disk, segment_bytes, noticed_s, security=None):
        self._noticed_s = noticed_s
        self._security = security or SecurityOptions()
        self._kernel = kernel
        self._disk = disk
        self._system = system
        self._segment_bytes = segment_bytes
        self._planned = self._next = self._watched = self._strike = None
        self._left = 0
        disk.on_change = self.changed
        kernel.on_answer = partial(self.changed, "answer")
        self.life = None
        self.lives = 0
        # Kept: an object that is collected runs its `finally`.
        self._past = []
        kernel.alarm = self._alarm
        self._most_steps = kernel.alarm_step

    @property
    def server(self):
        """The server that takes connections now; None: no broker serves."""
        life = self.life
        found = life is not None and not life.ended and life.server
        return found if found and found.serving and life.ready else None

    def start(self):
        """Begins a run of the broker."""
        assert self.life is None
        kernel = self._kernel
        life = self.life = Life(kernel)
        self.lives += 1
        if self._next is not None:
            planned, self._next = self._next, None
            planned()
        kernel.loops.append(life.loop)
        life.stop = asyncio.Event()
        options = server.Options(
            data=self._system.Path(_DATA),
            listen=(),
            sync=True,
            failpoint=lambda _: None,
            memory_limit=1 << 30,
            security=self._security,
            segment_bytes=self._segment_bytes,
            reserve_bytes=1 << 20,
            backup_dir=self._system.Path("/backups"),
        )
        life.task = life.loop.create_task(self._serve(life, options))
        return life

    async def _serve(self, life, options):
        def ready(found):
            life.ready = found

        try:
            await server.serve(options, life.stop, ready)
            life.end("stopped")
        except (AckqError, OSError) as error:
            life.end("refused", error)

    def make_server(self, **_):
        """Replaces `grpc.aio.server`."""
        life = self._kernel.life
        life.server = Server(life)
        return life.server

    def plan(self, kind, steps):
        """Plans the end of the current run after `steps` more steps: "kill" or "power"."""
        self._planned = kind
        self._kernel.alarm_step = self._kernel.steps + 1 + steps

    def plan_at(self, kind, change, count, steps):
        """As `plan`, `steps` steps after the n-th change of one kind.

        Kinds: those of the disk, an "answer" at a client, "offsets" in a driver's checkpoint.
        """
        self._watched, self._left = change, count
        self._strike = partial(self.plan, kind, steps)

    def plan_next(self, kind, steps):
        """As `plan`, counted from the begin of the next run."""
        self._next = partial(self.plan, kind, steps)

    def plan_next_at(self, kind, change, count, steps):
        """As `plan_at`, counted from the begin of the next run."""
        self._next = partial(self.plan_at, kind, change, count, steps)

    def calm(self):
        """Cancels the planned ends."""
        self._watched = self._next = None
        self._kernel.alarm_step = self._most_steps

    def changed(self, change):
        """Ends the current run soon if this is the change that was planned for."""
        if change == self._watched:
            self._left -= 1
            if self._left < 0:
                self._watched = None
                self._strike()

    def _alarm(self):
        self._kernel.alarm_step = self._most_steps
        self.end(self._planned)

    def end(self, kind):
        """Ends the current run at once."""
        if self.life is not None:
            self.life.end(kind)

    def stop(self):
        """Asks the current run to stop, as SIGTERM does."""
        if self.life is not None:
            self.life.stop.set()

    def reap(self):
        """Removes a run that has ended; returns it, or None."""
        life, kernel = self.life, self._kernel
        if life is None or not life.ended:
            return None
        kernel.loops.remove(life.loop)
        life.loop.close()
        kernel.jobs = [job for job in kernel.jobs if job.life is not life]
        while life.fibers:
            fiber = life.fibers[0]
            if fiber.waits:
                kernel.wake(fiber)
            kernel.resume(fiber)
        self._disk.close_all(life)
        if life.ended == "power":
            self._disk.cut_power()
        self.life = None
        self._past.append(life)
        if life.server is not None:
            for connection in tuple(life.server.connections):
                connection.broken(self._noticed_s(life.ended))
        return life
